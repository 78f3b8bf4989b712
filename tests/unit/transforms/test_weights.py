"""Weights are checked where they are written, looked up by row, and become whole-number shares."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiostream_data.errors import PlanError
from aiostream_data.weights import UNIT, WeightSpan, schedule_of, shares_of, vector_of

AB = ("a", "b")


def test_no_weights_are_equal_weights() -> None:
    assert schedule_of(None, AB).at(10**9) == WeightSpan((1.0, 1.0), None)


@pytest.mark.parametrize("weights", [[3, 1], (3.0, 1.0), np.array([3, 1]), {"b": 1, "a": 3}])
def test_weights_come_as_a_sequence_or_by_name(weights: Any) -> None:
    assert schedule_of(weights, AB).at(0) == WeightSpan((3.0, 1.0), None)


def test_steps_hold_from_their_row_to_the_next_one() -> None:
    steps: Any = [(0, [1, 0]), (10, {"a": 1, "b": 1}), (25, [0, 1])]
    schedule = schedule_of(steps, AB)
    assert [schedule.at(row) for row in (0, 9, 10, 24, 25, 99)] == [
        *[WeightSpan((1.0, 0.0), 10)] * 2,
        *[WeightSpan((1.0, 1.0), 25)] * 2,
        *[WeightSpan((0.0, 1.0), None)] * 2,
    ]


def test_a_function_is_asked_for_every_so_many_rows() -> None:
    asked = []

    def weights(row: int) -> list[int]:
        asked.append(row)
        return [1, row]

    schedule = schedule_of(weights, AB, 100)
    assert [schedule.at(row) for row in (0, 99, 100, 250)] == [
        *[WeightSpan((1.0, 0.0), 100)] * 2,
        WeightSpan((1.0, 100.0), 200),
        WeightSpan((1.0, 200.0), 300),
    ]
    assert set(asked) == {0, 100, 200}


def test_changes_stand_above_the_schedule_from_their_row_on() -> None:
    schedule = schedule_of([(0, [1, 1]), (50, [2, 1])], AB).changed(30, (0.0, 1.0)).changed(70, (5.0, 1.0))
    assert [schedule.at(row) for row in (0, 30, 69, 70)] == [
        WeightSpan((1.0, 1.0), 30),
        *[WeightSpan((0.0, 1.0), 70)] * 2,
        WeightSpan((5.0, 1.0), None),
    ]
    assert schedule.changed(30, (9.0, 1.0)).at(80) == WeightSpan((9.0, 1.0), None)


def test_changes_are_over_when_a_later_one_is_in_force() -> None:
    schedule = schedule_of([1, 1], AB).changed(7, (0.0, 1.0)).changed(9, (2.0, 1.0))
    assert [len(schedule.since(row).changes) for row in (0, 7, 8, 9, 99)] == [2, 2, 2, 1, 1]
    assert schedule.since(99).at(10) == schedule.at(10)


def test_changes_are_plain_data_and_are_given_up_where_the_plan_has_changed() -> None:
    changed = schedule_of([1, 1], AB).changed(7, (0.0, 1.0))
    state = changed.changes_state
    assert state == [[7, [0.0, 1.0], [1.0, 1.0]]]
    assert schedule_of([1, 1], AB).with_changes_of(state) == changed
    assert schedule_of([2, 1], AB).with_changes_of(state).changes == ()


REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: schedule_of([1], AB), r"weights must have one number per dataset \(2\), got 1"),
    (lambda: schedule_of([1, -1], AB), r"weights must be finite, at least 0, and not all 0, got \[1, -1\]"),
    (lambda: schedule_of([0, 0], AB), r"not all 0"),
    (lambda: schedule_of([1, float("nan")], AB), r"finite"),
    (lambda: schedule_of([1, float("inf")], AB), r"finite"),
    (lambda: schedule_of(["x", "y"], AB), r"must be numbers"),  # type: ignore[arg-type]
    (lambda: schedule_of("ab", AB), r"weights must be a sequence of numbers or a dict by name, got str"),  # type: ignore[arg-type]
    (lambda: schedule_of(3, AB), r"got int"),  # type: ignore[arg-type]
    (lambda: schedule_of({"a": 1}, AB), r"must have the names a, b, got a"),
    (lambda: schedule_of([(1, [1, 1])], AB), r"must start at 0 and increase, got \[1\]"),
    (lambda: schedule_of([(0, [1, 1]), (5, [1, 1]), (5, [1, 1])], AB), r"got \[0, 5, 5\]"),
    (lambda: schedule_of([(0, [1, 1]), (5, [1])], AB), r"the weights from row 5 on must have one number"),
    (lambda: schedule_of([(0, 1, 1)], AB), r"a step of a schedule must be \(first row, weights\)"),  # type: ignore[arg-type]
    (lambda: schedule_of(lambda row: [row], AB), r"the weights for row 0 must have one number"),
]


@pytest.mark.parametrize(("build", "message"), REFUSED)
def test_what_cannot_be_weights_is_refused_with_the_rule(build: Callable[[], Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        build()


def test_weights_count_as_the_decimal_numbers_they_are_written_as() -> None:
    most, least = shares_of((0.8, 0.2))
    assert most == 4 * least
    thirds = shares_of((1 / 3, 1 / 3, 1 / 3))
    assert len(set(thirds)) == 1


def test_tiny_weights_keep_a_share_and_zero_has_none() -> None:
    shares = shares_of((1.0, 1e-30, 0.0))
    assert (shares[1], shares[2], sum(shares)) == (1, 0, UNIT)


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=8).filter(any))
def test_shares_have_the_proportions_of_the_weights(weights: list[float]) -> None:
    shares = shares_of(vector_of(weights, tuple(map(str, range(len(weights))))))
    unit, total = sum(shares), sum(map(Fraction, weights))
    assert UNIT // 2 <= unit <= UNIT
    assert [share > 0 for share in shares] == [weight > 0 for weight in weights]
    assert all(
        abs(Fraction(share, unit) - Fraction(weight) / total) < 1e-11
        for share, weight in zip(shares, weights, strict=True)
    )
