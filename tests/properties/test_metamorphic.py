"""However a drawn plan is run, it gives the same elements, random draws, origins and hash.

A plan and its runs come from one seed; a failure prints it, and a program that does the run again. ``make test``
runs 75 plans. ``ASD_EXAMPLES=10`` in the environment runs 3,000, and ``ASD_FIRST_PLAN=5000`` selects others.
For many more, see ``metamorphic/__main__.py``.
"""

from __future__ import annotations

import os
import random
import warnings
from collections.abc import Iterator

import pytest
from drawn_cases import TIMES
from metamorphic import cuts
from metamorphic.cases import CASE_S, Counted, try_seed
from metamorphic.circumstances import draw_runs
from metamorphic.drawing import Step
from metamorphic.plans import draw_plan
from metamorphic.program import NOWHERE

from aiostream_data import Dataset

PLANS = max(20, round(300 * TIMES))
FIRST = int(os.environ.get("ASD_FIRST_PLAN", "0"))
PARTS = 20
"""Tests that share the plans, so that each ends in time."""

NO_OPERATORS = {
    "aget_single_element",
    "ainfer_spec",
    "areduce",
    "cardinality",
    "debug",
    "element_spec",
    "explain",
    "fetch",
    "fingerprint",
    "get_single_element",
    "infer_spec",
    "memory_bound",
    "open",
    "options",
    "plan",
    "reduce",
    "replay",
    "shuffle_quality",
}
"""What is public of a data set and appends nothing to a plan, or needs a log of an earlier run."""


@pytest.fixture(autouse=True)
def _small_limits_are_no_news() -> Iterator[None]:
    """Ignore the warning that one row is larger than a memory limit of 64 KB."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "cannot limit memory use", RuntimeWarning)
        warnings.filterwarnings("ignore", "cannot keep the decompressors", RuntimeWarning)
        yield


@pytest.mark.timeout(4 * CASE_S * max(1.0, TIMES))
@pytest.mark.parametrize("part", range(PARTS))
def test_a_drawn_plan_gives_the_same_however_it_is_run(part: int) -> None:
    counted = Counted()
    for seed in range(FIRST + part, FIRST + PLANS, PARTS):
        failures = try_seed(seed, counted=counted)
        if failures:
            pytest.fail("\n\n".join(map(str, failures)), pytrace=False)
    assert counted.runs >= counted.plans
    assert counted.not_applicable <= counted.runs // 4


def test_every_public_operator_and_source_is_drawn() -> None:
    public = {name for name in dir(Dataset) if not name.startswith("_")} - NO_OPERATORS
    code = "".join(draw_plan(random.Random(seed)).code for seed in range(2000))
    missing = {name for name in public if f".{name}(" not in code and name != "in_subprocess"}
    assert not missing


def test_every_kind_of_run_is_drawn() -> None:
    plans = [draw_plan(random.Random(seed)) for seed in range(400)]
    runs = repr([draw_runs(random.Random(seed), plan, 12, 0.2) for seed, plan in enumerate(plans)])
    for switch in (
        "Ranks(",
        "Workers(",
        "'process'",
        "workers=1",
        "workers=3",
        "debug=True",
        "elsewhere=True",
        "memory_limit=",
    ):
        assert switch in runs
    for switch in ("deterministic=False", "'inline'", "spill=", "ahead=", "read_ahead", "cut=", "all_states=True"):
        assert switch in runs


def joins_deep(step: Step) -> int:
    """Return how many joins are nested in a program."""
    return max(map(joins_deep, step.inputs), default=0) + (len(step.inputs) > 1)


def test_joins_are_nested_three_deep() -> None:
    depths = [joins_deep(draw_plan(random.Random(seed)).step) for seed in range(300)]
    assert {0, 1, 2, 3} <= set(depths)
    assert sum(depth >= 2 for depth in depths) >= 50


def test_a_plan_and_its_program_come_from_the_seed_alone() -> None:
    plans = [draw_plan(random.Random(seed)) for seed in range(50)]
    assert plans == [draw_plan(random.Random(seed)) for seed in range(50)]
    assert all(isinstance(NOWHERE.build(plan.code), Dataset) for plan in plans)


def test_the_constants_that_are_changed_exist() -> None:
    assert not cuts.missing_constants()
