"""Changes of weights reach every run of their mixture, go through states, and are forgotten when they are over."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aiostream_data._engine.resume.weight_changes import WeightChanges
from aiostream_data.errors import PlanError, StateMismatchError
from aiostream_data.transforms.mixing import MixOrder
from aiostream_data.weights import Schedule, schedule_of

PLAN = schedule_of([1, 1], ("a", "b"))
ONLY_A, ONLY_B = (1.0, 0.0), (0.0, 1.0)
MIXTURE = 4


def begun(changes: WeightChanges, epoch: int = 0, rows: int = 0, plan: Schedule = PLAN) -> MixOrder:
    """Begin a run that has decided some rows."""
    order = MixOrder(plan)
    changes.begin((MIXTURE, epoch), order)
    order.load(0, 1000)
    order.load(1, 1000)
    order.advance(rows)
    return order


def resumed(changes: WeightChanges) -> WeightChanges:
    return WeightChanges(json.loads(json.dumps(changes.state())))


def weights_at(order: MixOrder, *rows: int) -> list[Any]:
    return [order.schedule.at(row).weights for row in rows]


def test_without_changes_there_is_no_state() -> None:
    changes = WeightChanges()
    begun(changes, rows=5)
    assert changes.state() is None


def test_a_change_holds_from_the_next_row_of_the_run() -> None:
    changes = WeightChanges()
    order = begun(changes, rows=5)
    assert changes.set(MIXTURE, PLAN, ONLY_A) == 5
    assert changes.set(MIXTURE, PLAN, ONLY_B, from_row=9) == 9
    assert weights_at(order, 4, 5, 8, 9) == [(1.0, 1.0), ONLY_A, ONLY_A, ONLY_B]


def test_a_refused_change_changes_nothing() -> None:
    changes = WeightChanges()
    begun(changes, rows=5)
    with pytest.raises(PlanError, match="the next row is 5"):
        changes.set(MIXTURE, PLAN, ONLY_A, from_row=4)
    assert changes.state() is None


def test_a_change_before_the_first_row_waits_for_the_run() -> None:
    changes = WeightChanges()
    assert changes.set(MIXTURE, PLAN, ONLY_A) == 0
    assert changes.set(MIXTURE, PLAN, ONLY_B, from_row=7) == 7
    assert weights_at(begun(changes), 6, 7) == [(1.0, 1.0), ONLY_B]


def test_runs_that_are_ahead_and_runs_that_begin_later_change_as_well() -> None:
    changes = WeightChanges()
    first, ahead = begun(changes, 0, rows=50), begun(changes, 1, rows=3)
    assert changes.set(MIXTURE, PLAN, ONLY_A, from_row=60) == 60
    assert weights_at(first, 59, 60) == [(1.0, 1.0), ONLY_A]
    assert weights_at(ahead, 2, 3) == [(1.0, 1.0), ONLY_A]
    assert weights_at(begun(changes, 2), 0) == [ONLY_A]


def test_a_run_that_has_decided_all_its_rows_no_longer_changes() -> None:
    changes = WeightChanges()
    order = begun(changes, 0, rows=50)
    changes.end((MIXTURE, 0))
    begun(changes, 1, rows=3)
    assert changes.set(MIXTURE, PLAN, ONLY_A) == 3
    assert order.schedule == PLAN


def test_every_run_of_a_state_changes_at_the_same_rows_again() -> None:
    changes = WeightChanges()
    begun(changes, 0, rows=50)
    begun(changes, 1, rows=3)
    changes.set(MIXTURE, PLAN, ONLY_A)
    again = resumed(resumed(changes))
    assert weights_at(begun(again, 0), 49, 50) == [(1.0, 1.0), ONLY_A]
    assert again.state() == changes.state()
    assert weights_at(begun(again, 1), 2, 3) == [(1.0, 1.0), ONLY_A]
    assert weights_at(begun(again, 2), 0) == [ONLY_A]


def test_a_run_that_was_decided_before_a_change_is_decided_without_it_again() -> None:
    changes = WeightChanges()
    begun(changes, 0, rows=50)
    changes.end((MIXTURE, 0))
    begun(changes, 1, rows=3)
    changes.set(MIXTURE, PLAN, ONLY_A)
    assert begun(resumed(changes), 0).schedule == PLAN


def test_a_plan_with_other_weights_than_the_state_was_taken_with_keeps_its_own() -> None:
    changes = WeightChanges()
    begun(changes, 0, rows=50)
    changes.set(MIXTURE, PLAN, ONLY_A)
    other = schedule_of([1, 3], ("a", "b"))
    again = resumed(changes)
    assert begun(again, 0, plan=other).schedule == other
    assert begun(again, 1, plan=other).schedule == other


def test_what_is_set_after_resuming_stands_above_what_the_state_says() -> None:
    changes = WeightChanges()
    begun(changes, 0, rows=50)
    changes.set(MIXTURE, PLAN, ONLY_A)
    again = resumed(changes)
    again.set(MIXTURE, PLAN, ONLY_B)
    assert weights_at(begun(again, 0), 0, 70) == [ONLY_B, ONLY_B]


def test_changes_that_no_row_to_come_is_under_are_forgotten() -> None:
    changes = WeightChanges()
    order = begun(changes)
    for _ in range(50):
        order.advance(10)
        changes.set(MIXTURE, PLAN, ONLY_A)
    state = changes.state()
    assert state is not None
    assert len(state["runs"][0][2]) == 50
    changes.forget((MIXTURE, 0), 495)
    state = changes.state()
    assert state is not None
    assert [change[0] for change in state["runs"][0][2]] == [490, 500]
    begun(changes, 1)
    changes.forget((MIXTURE, 1), 0)
    state = changes.state()
    assert state is not None
    assert [run[1] for run in state["runs"]] == [1]


def test_what_was_forgotten_is_known_for_who_reads_from_the_beginning_again() -> None:
    changes = WeightChanges()
    begun(changes, rows=5)
    changes.set(MIXTURE, PLAN, ONLY_A)
    changes.set(MIXTURE, PLAN, ONLY_B, from_row=9)
    changes.forget((MIXTURE, 0), 50)
    begun(changes, 1)
    changes.forget((MIXTURE, 1), 0)
    again = WeightChanges(changes.state(from_the_beginning=True))
    assert weights_at(begun(again, 0), 4, 5, 9) == [(1.0, 1.0), ONLY_A, ONLY_B]
    assert weights_at(begun(again, 1), 0) == [ONLY_B]


def test_epochs_before_the_first_change_are_read_again_without_it() -> None:
    changes = WeightChanges()
    for epoch in range(3):
        begun(changes, epoch)
        changes.end((MIXTURE, epoch))
        changes.forget((MIXTURE, epoch), 9)
    changes.set(MIXTURE, PLAN, ONLY_A)
    again = WeightChanges(changes.state(from_the_beginning=True))
    assert begun(again, 0).schedule == begun(again, 2).schedule == PLAN
    assert weights_at(begun(again, 3), 0) == [ONLY_A]


def test_other_mixtures_are_left_alone() -> None:
    changes = WeightChanges()
    order = begun(changes, rows=2)
    changes.set(MIXTURE + 1, PLAN, ONLY_A)
    assert order.schedule == PLAN
    assert begun(changes, 1).schedule == PLAN


@pytest.mark.parametrize(
    "saved", [3, {}, {"runs": [[1, 2]], "last": []}, {"runs": [], "last": [[1, [0, None, []], 0]]}]
)
def test_damaged_changes_are_refused(saved: Any) -> None:
    with pytest.raises(StateMismatchError, match="weight changes are damaged"):
        WeightChanges(saved)
