"""Damaged states, each with the right checksum, are refused with their path, or read on: quickly and in little memory.

``ASD_STATE_MUTANTS=50000`` in the environment tries that many, of another seed with ``ASD_STATE_SEED=7``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from resume_plans import write_files
from state_mutants import PLANS, run

MUTANTS = int(os.environ.get("ASD_STATE_MUTANTS", "500"))
SEED = int(os.environ.get("ASD_STATE_SEED", "1"))

Json = Any


@pytest.mark.filterwarnings("ignore:.*more than the memory limit:RuntimeWarning")  # of a plan with little memory
@pytest.mark.timeout(120 + MUTANTS / 4)
def test_damaged_states_are_refused_or_read_on_at_once_and_in_little_memory(tmp_path: Path) -> None:
    report = run(MUTANTS, SEED, write_files(tmp_path))
    assert report.wrong == []
    assert report.slow == []
    assert report.large == []
    assert report.outcomes["refused"] > MUTANTS // 2, str(report)


def test_every_operator_has_a_plan_whose_states_are_damaged() -> None:
    from aiostream_data._engine.compile import STAGES, STEPS
    from aiostream_data.plan.base import walk

    folder = Path()
    found = {type(node).__name__ for case in PLANS.values() for node in walk(case.make(folder).plan)}
    of_runs = {"Block", "Recalled", "ParseRows", "EqualRows", "Agree", "RankShard", "MarkPadding"}
    of_runs |= {"WorkerShard", "LoaderShard"}
    of_runs |= {"WindowItems", "WindowSlices"}  # in the windows of group_by_window()
    of_runs |= {"TableFile"}  # in the data sets that from_parquet() interleaves
    assert {*STAGES, *STEPS} - found <= of_runs
