"""A state taken in any order is gone on with in order: what was held back comes first, and nothing is lost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest

from aiostream_data import Dataset, Skip
from aiostream_data.errors import StateMismatchError

COUNT = 60
GOOD = [number for number in range(COUNT) if number % 3 != 1]
BEFORE, LATER = 9, 7
"""Elements received in any order, and then in order until the next state."""


def _fail_at_some(number: int) -> int:
    if number % 3 == 1:
        raise ValueError("one of three")
    return number


def _called(first: threading.Event, on_error: Any) -> Dataset[Any]:
    def function(number: int) -> int:
        if number == 0:
            assert first.wait(30)
        return _fail_at_some(number)

    return Dataset.range(COUNT).map(function, concurrency=3, on_error=on_error)


def _awaited(first: threading.Event, on_error: Any) -> Dataset[Any]:
    async def function(number: int) -> int:
        while number == 0 and not first.is_set():
            await asyncio.sleep(0.001)
        return _fail_at_some(number)

    return Dataset.range(COUNT).map(function, concurrency=3, on_error=on_error)


def _filtered_above(first: threading.Event, on_error: Any) -> Dataset[Any]:
    return _called(first, on_error).filter(lambda number: number >= 0, concurrency=3)


@pytest.mark.parametrize("make", [_called, _awaited, _filtered_above])
def test_no_row_is_lost_by_a_second_state_where_rows_were_held_and_others_are_left_out(
    make: Callable[[threading.Event, Any], Dataset[Any]],
) -> None:
    first = threading.Event()
    dataset = make(first, Skip())
    with dataset.open(deterministic=False) as loader:
        received = [int(number) for number in islice(loader, BEFORE)]
        state = loader.state_dict()
        first.set()
    assert 0 not in received
    with dataset.open(state=state) as loader:
        in_order = [int(number) for number in islice(loader, LATER)]
        state = loader.state_dict()
    assert in_order[0] == 0
    with dataset.open(state=state) as loader:
        rest = [int(number) for number in loader]
    assert sorted([*received, *in_order, *rest]) == GOOD


def test_a_stage_in_order_leaves_the_rows_that_one_below_it_held_to_that_one() -> None:
    first, is_held = threading.Event(), threading.Event()

    def fails_late(number: int) -> int:
        if number == 0:
            is_held.set()
            assert first.wait(30)
            raise ValueError("the one that was held")
        return _fail_at_some(number)

    failing = Dataset.range(COUNT).map(fails_late, concurrency=3, ordered=False, on_error=Skip())
    dataset = failing.filter(lambda number: number != 3)
    with dataset.open() as loader:
        received = [int(number) for number in islice(loader, BEFORE)]
        assert is_held.is_set()
        state = loader.state_dict()
        first.set()
    with dataset.open(state=state) as loader:
        rest = [int(number) for number in loader]
    assert sorted([*received, *rest]) == [number for number in GOOD if number not in (0, 3)]


def test_a_state_in_the_middle_of_an_element_is_refused_where_elements_come_in_any_order() -> None:
    dataset = Dataset.range(COUNT).map(int, concurrency=3).batch(4).unbatch()
    with dataset.open() as loader:
        received = [int(number) for number in islice(loader, 6)]
        in_the_middle = loader.state_dict()
        received += [int(number) for number in islice(loader, 2)]
        between_two = loader.state_dict()
    with pytest.raises(StateMismatchError, match="deterministic=True"):
        list(dataset.open(state=in_the_middle, deterministic=False))
    with dataset.open(state=between_two, deterministic=False) as loader:
        assert sorted([*received, *(int(number) for number in loader)]) == list(range(COUNT))
