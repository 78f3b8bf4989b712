"""interleave and flat_map: tf.data's order, nesting, and inner data sets that end early or are empty."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from time import perf_counter
from typing import Any

import numpy as np
import pytest

import aiostream_data as asd
from aiostream_data.errors import PlanError

GOLDEN = [1] * 4 + [2] * 4 + [1] * 2 + [2] * 2 + [3] * 4 + [4] * 4 + [3] * 2 + [4] * 2 + [5] * 6
"""From tf.data's documentation: range(1, 6), each repeated 6 times, cycle_length=2, block_length=4."""


def repeated(number: int) -> asd.Dataset[int]:
    return asd.Dataset.from_tensors(number).repeat(6)


def repeated_through_a_run_of_its_own(number: int) -> asd.Dataset[int]:
    return asd.Dataset.from_tensors(number).map(lambda x: x).repeat(6)


def repeated_by_a_generator(number: int) -> Iterator[int]:
    yield from [number] * 6


async def repeated_by_an_async_generator(number: int) -> AsyncIterator[int]:
    for _ in range(6):
        await asyncio.sleep(0)
        yield number


@pytest.mark.parametrize("function", [repeated, repeated_through_a_run_of_its_own, repeated_by_a_generator])
def test_interleave_gives_the_order_of_tf_datas_documentation(function: Any) -> None:
    assert list(asd.Dataset.range(1, 6).interleave(function, cycle_length=2, block_length=4)) == GOLDEN


def test_interleave_takes_async_generators_as_inner_data_sets() -> None:
    dataset = asd.Dataset.range(1, 6).interleave(
        lambda x: asd.Dataset.from_iterable(repeated_by_an_async_generator(x)), cycle_length=2, block_length=4
    )
    assert list(dataset) == GOLDEN


def test_an_exhausted_slot_is_refilled_only_when_the_cycle_comes_round_to_it() -> None:
    lengths = {0: 1, 1: 4, 2: 2, 3: 2}
    dataset = asd.Dataset.range(4).interleave(lambda x: [x] * lengths[x], cycle_length=2)
    # Slot 0 is empty after its first element; slot 1 goes next, and only then is slot 0 filled with 2.
    assert list(dataset) == reference_interleave([[x] * lengths[x] for x in range(4)], cycle=2, block=1)


def reference_interleave(streams: list[list[int]], cycle: int, block: int) -> list[int]:
    """Do what tf.data's kernel does, with lists."""
    waiting = list(streams)
    slots: list[list[int] | None] = [None] * cycle
    order: list[int] = []
    slot = 0
    while waiting or any(rows is not None for rows in slots):
        rows = slots[slot]
        if rows is None and waiting:
            rows = list(waiting.pop(0))
        if rows is not None:
            order += rows[:block]
            # Fewer rows than asked for are how the end shows; the slot is then empty until its next turn.
            slots[slot] = rows[block:] if len(rows) >= block else None
        slot = (slot + 1) % cycle
    return order


@pytest.mark.parametrize("cycle", [1, 2, 3, 8])
@pytest.mark.parametrize("block", [1, 2, 5])
def test_interleave_of_uneven_and_empty_inner_data_sets_keeps_tf_datas_order(cycle: int, block: int) -> None:
    streams = [[10 * number + k for k in range(length)] for number, length in enumerate([3, 0, 7, 1, 0, 0, 5, 2])]
    dataset = asd.Dataset.range(8).interleave(lambda x: streams[x], cycle_length=cycle, block_length=block)
    assert list(dataset) == reference_interleave(streams, cycle, block)


def test_unordered_interleave_gives_the_same_elements() -> None:
    dataset = asd.Dataset.range(20).interleave(lambda x: [x] * x, cycle_length=5, ordered=False)
    assert sorted(dataset) == sorted(x for x in range(20) for _ in range(x))


def test_flat_map_drains_one_inner_data_set_after_another() -> None:
    dataset = asd.Dataset.from_tensor_slices([[1, 2], [3, 4]]).flat_map(asd.Dataset.from_tensor_slices)
    assert list(dataset) == [1, 2, 3, 4]
    assert list(asd.Dataset.range(3).flat_map(lambda x: range(x))) == [0, 0, 1]


def test_flat_map_nests() -> None:
    dataset = asd.Dataset.range(3).flat_map(
        lambda x: asd.Dataset.range(x + 1).flat_map(lambda y: asd.Dataset.range(y + 1))
    )
    assert list(dataset) == [z for x in range(3) for y in range(x + 1) for z in range(y + 1)]


def test_inner_data_sets_may_batch_and_shuffle() -> None:
    dataset = asd.Dataset.range(2).flat_map(lambda x: asd.Dataset.range(10 * x, 10 * x + 4).shuffle(4, seed=1).batch(2))
    batches = [batch.tolist() for batch in dataset]
    assert [len(batch) for batch in batches] == [2] * 4
    assert sorted(batches[0] + batches[1]) == [0, 1, 2, 3]
    assert sorted(batches[2] + batches[3]) == [10, 11, 12, 13]


def test_an_endless_inner_data_set_is_cut_by_take() -> None:
    dataset = asd.Dataset.range(2).interleave(lambda x: asd.Dataset.from_tensors(x).repeat(), cycle_length=2)
    assert list(dataset.take(5)) == [0, 1, 0, 1, 0]


def test_interleave_of_nothing_is_empty() -> None:
    assert list(asd.Dataset.range(0).interleave(repeated)) == []
    assert list(asd.Dataset.range(5).interleave(lambda x: asd.Dataset.range(0), cycle_length=2)) == []


def test_inner_arrays_and_tuples_are_iterated() -> None:
    given = list(asd.Dataset.range(2).flat_map(lambda x: np.full((2, 2), x)))
    assert [row.tolist() for row in given] == [[0, 0], [0, 0], [1, 1], [1, 1]]
    assert list(asd.Dataset.range(2).flat_map(lambda x: (x, "a"))) == [0, "a", 1, "a"]


@pytest.mark.parametrize("wrong", [3, None, "text", b"bytes", {"a": 1}])
def test_what_is_no_data_set_nor_iterable_is_refused(wrong: Any) -> None:
    with pytest.raises(PlanError, match=r"flat_map\(\) must return a Dataset or an iterable"):
        list(asd.Dataset.range(3).flat_map(lambda x: wrong))


def test_generators_inside_are_finalised_when_the_consumer_has_enough() -> None:
    opened, closed = [], []

    def endless(number: int) -> Iterator[int]:
        opened.append(number)
        try:
            while True:
                yield number
        finally:
            closed.append(number)

    dataset = asd.Dataset.range(9).interleave(endless, cycle_length=3).take(4)
    assert list(dataset) == [0, 1, 2, 0]
    assert sorted(closed) == sorted(opened)


@pytest.mark.parametrize(
    "function",
    [lambda x: [x, x], lambda x: asd.Dataset.range(x, x + 2), lambda x: asd.Dataset.from_tensors(x).repeat(2)],
    ids=["lists", "ranges", "repeated"],
)
def test_thousands_of_tiny_inner_data_sets_take_no_time(function: Any) -> None:
    started = perf_counter()
    assert sum(1 for _ in asd.Dataset.range(5000).flat_map(function)) == 10_000
    assert perf_counter() - started < 8
