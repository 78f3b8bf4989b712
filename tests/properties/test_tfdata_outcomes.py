"""Random plans give what tf.data gave: elements, dtypes, shapes, the place of an error, and the cardinality."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from differential import ours
from differential.outcomes import Outcome, Plan, difference
from differential.recorded import read

OUTCOMES = Path(__file__).parents[1] / "data" / "tfdata_outcomes.jsonl.xz"
PARTS = 6
PLAN: Plan = [["range", 1]]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("part", range(PARTS))
def test_a_drawn_plan_gives_what_tfdata_gave(part: int) -> None:
    for recorded in islice(read(OUTCOMES), part, None, PARTS):
        found = recorded.difference(ours.run(recorded.plan))
        assert not found, f"plan {recorded.seed}: {found}\n{json.dumps(recorded.plan)}"


def test_the_outcomes_are_of_many_plans_with_errors_and_refusals() -> None:
    records = list(read(OUTCOMES))
    assert len({json.dumps(record.plan) for record in records}) > 4_500
    assert sum(record.outcome.failed for record in records) > 50
    assert sum(record.outcome.refused for record in records) > 50
    assert sum(len(record.outcome.elements) > 2 for record in records) > 2_000


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"elements": [["int64", [], [2]]]}, "element 0 is"),
        ({"elements": []}, "0 elements"),
        ({"failed": True}, "and an error"),
        ({"refused": True}, "refused"),
        ({"cardinality": 2}, "cardinality"),
    ],
)
def test_each_difference_is_told(change: dict[str, Any], says: str) -> None:
    theirs = Outcome(False, [["int64", [], [1]]], False, 1)
    assert difference(PLAN, theirs, theirs) == ""
    assert says in difference(PLAN, theirs._replace(**change), theirs)
