"""A stream is brought to a length with its own last rows, and goes on exactly from any place."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiostream_data.errors import RankError
from aiostream_data.transforms.equal_rows import REPEATED, FillOrder, check_had, window_of


def filled_up(rows: list[int], length: int, window: int, chunk: int, state: dict[str, Any] | None = None) -> list[int]:
    """Return what a run gives until it has given ``length`` rows in all, fillers of earlier runs included."""
    order = FillOrder(window)
    if state is not None:
        order.restore(state)
    given: list[int] = []
    for start in range(0, len(rows), chunk):
        came = rows[start : start + chunk]
        given += came[order.push(len(came))]
    last = rows[-window:] if window else []
    while len(given) < length:
        given += [last[number] for number in order.fill(1, len(last))]
    return given


def test_the_last_rows_fill_up_in_turn() -> None:
    assert filled_up([0, 1, 2, 3], 9, 2, 3) == [0, 1, 2, 3, 2, 3, 2, 3, 2]


@given(st.integers(1, 20), st.integers(0, 30), st.integers(1, 6), st.integers(1, 7), st.data())
def test_a_stream_goes_on_from_every_place_and_from_a_place_of_that(
    rows: int, fillers: int, window: int, chunk: int, data: st.DataObject
) -> None:
    window = min(window, rows)
    source = list(range(rows))
    whole = filled_up(source, rows + fillers, window, chunk)
    state: dict[str, Any] | None = None
    place = passed = 0
    for _ in range(3):
        order = FillOrder(window)
        if state is not None:
            order.restore(state)
        count = data.draw(st.integers(0, rows + fillers - place))
        left = rows - passed
        while left and left > rows - passed - order.again - count:
            part = min(chunk, left)
            order.push(part)
            left -= part
        state = json.loads(json.dumps(order.state(count)))
        place, passed = place + count, passed + order.input_rows(count)
        assert state is not None
        assert filled_up(source[passed:], rows + fillers - place, window, chunk, state) == whole[place:]


@pytest.mark.parametrize(
    ("own", "rows", "tail", "window"),
    [(10, 8, "repeat", 0), (10, 10, "pad", 0), (8, 10, "drop", 0), (8, 10, "pad", 1), (8, 10, "repeat", 8)],
)
def test_only_as_many_rows_are_kept_as_may_be_needed(own: int, rows: int, tail: Any, window: int) -> None:
    assert window_of(own, rows, tail) == window


def test_few_rows_are_kept_of_many() -> None:
    assert window_of(10**6, 10**7, "repeat") == REPEATED


def test_fewer_rows_than_were_said_are_an_error() -> None:
    check_had(8, 10, 8)
    with pytest.raises(RankError, match="its files have 10 rows according to counts=, but 8 rows were read"):
        check_had(8, 10, 9)
