"""Cache, devices, and the two ways to iterate: the same elements however they are held and asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import aiostream_data as asd
from aiostream_data.errors import LoaderClosedError


class Calls:
    """Counts the elements that pass."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, element: Any) -> Any:
        self.count += 1
        return element


def test_a_second_epoch_over_a_cache_does_not_call_upstream_again() -> None:
    calls = Calls()
    dataset = asd.Dataset.range(5).map(calls).cache()
    assert list(dataset.repeat(3)) == [0, 1, 2, 3, 4] * 3
    assert calls.count == 5
    assert list(dataset) == [0, 1, 2, 3, 4]
    assert calls.count == 5


def test_iterators_of_chains_over_one_cache_share_it() -> None:
    calls = Calls()
    cached = asd.Dataset.range(5).map(calls).cache()
    assert list(cached.map(lambda x: -x)) == [0, -1, -2, -3, -4]
    assert next(iter(cached.batch(5))).tolist() == [0, 1, 2, 3, 4]
    assert calls.count == 5


def test_an_incomplete_pass_is_thrown_away() -> None:
    calls = Calls()
    cached = asd.Dataset.range(50_000).map(calls).cache()
    assert list(cached.take(2)) == [0, 1]
    seen = calls.count
    assert len(list(cached)) == 50_000
    assert calls.count == seen + 50_000


def test_a_pass_that_failed_is_thrown_away() -> None:
    failing = [True]

    def fail_once(number: int) -> int:
        if number == 3 and failing.pop():
            failing.append(False)
            raise OSError("try again")
        return number

    cached = asd.Dataset.range(5).map(fail_once).cache()
    with pytest.raises(OSError, match="try again"):
        list(cached)
    failing[:] = [False]
    assert list(cached) == [0, 1, 2, 3, 4]


def test_two_runs_of_one_cache_in_one_loader_read_its_input_once_and_never_wait_for_each_other() -> None:
    calls = Calls()
    cached = asd.Dataset.range(50_000).map(calls).cache()
    assert list(asd.Dataset.zip(cached.skip(20_000), cached).take(2)) == [(20_000, 0), (20_001, 1)]
    assert len(list(asd.Dataset.zip(cached, cached))) == 50_000
    assert calls.count <= 100_000
    again = asd.Dataset.range(30_000).cache()
    assert sum(1 for _ in asd.Dataset.range(3).interleave(lambda _: again, cycle_length=3)) == 90_000


def test_shuffle_behind_a_cache_still_draws_anew() -> None:
    dataset = asd.Dataset.range(100).cache().shuffle(100, seed=1)
    given = list(dataset.repeat(2))
    assert given[:100] != given[100:]


def test_shuffle_below_a_cache_is_frozen_by_it() -> None:
    given = list(asd.Dataset.range(100).shuffle(100, seed=1).cache().repeat(2))
    assert given[:100] == given[100:]


def test_a_failure_behind_a_cache_names_the_record_in_a_later_loader_too() -> None:
    cached = asd.Dataset.range(5).cache()
    assert list(cached) == [0, 1, 2, 3, 4]
    other = asd.Dataset.from_iterable(["a", "b", "c", "d", "e"])
    for dataset in (cached.map(lambda x: 1 // (x - 3)), asd.Dataset.zip(cached, other).map(lambda x, _: 1 // (x - 3))):
        with pytest.raises(ZeroDivisionError) as caught:
            list(dataset)
        assert "record: range record 3" in caught.value.__notes__


def test_to_device_cpu_gives_equal_values_in_arrays_of_the_consumers_own() -> None:
    dataset = asd.Dataset.from_tensor_slices({"x": np.arange(12, dtype=np.float32).reshape(6, 2), "y": np.arange(6)})
    kept = list(dataset.batch(2).to_device("cpu", depth=2))
    assert [batch["y"].tolist() for batch in kept] == [[0, 1], [2, 3], [4, 5]]
    assert np.concatenate([batch["x"] for batch in kept]).tolist() == np.arange(12).reshape(6, 2).tolist()
    kept[0]["x"][:] = -1
    assert kept[1]["x"].tolist() == [[4, 5], [6, 7]]


def mixed() -> asd.Dataset[Any]:
    return (
        asd.Dataset.range(200)
        .shuffle(50, seed=1)
        .map(lambda x, rng: (x, int(rng.integers(100))), seed=2)
        .filter(lambda x, drawn: drawn != 3)
        .repeat(2)
    )


def test_sync_and_async_iteration_give_the_same_elements() -> None:
    async def collect() -> list[Any]:
        return [element async for element in mixed()]

    assert asyncio.run(collect()) == list(mixed())


def test_an_open_loader_gives_what_is_left_to_a_second_loop() -> None:
    with asd.Dataset.range(5).open() as loader:
        assert [next(iter(loader)), next(iter(loader))] == [0, 1]
        assert list(loader) == [2, 3, 4]
        with pytest.raises(LoaderClosedError, match="no more elements"):
            iter(loader)


def test_an_async_loader_works_inside_a_running_loop() -> None:
    async def collect() -> list[int]:
        async with asd.Dataset.range(5).map(lambda x: x + 1).open() as loader:
            return [element async for element in loader]

    assert asyncio.run(collect()) == [1, 2, 3, 4, 5]


def test_a_plain_loop_works_inside_a_running_loop() -> None:
    async def collect() -> list[int]:
        return list(asd.Dataset.range(3))

    assert asyncio.run(collect()) == [0, 1, 2]


def test_an_endless_prefetch_reads_only_so_far_ahead() -> None:
    produced: list[int] = []

    def count() -> Iterator[int]:
        for number in range(10**6):
            produced.append(number)
            yield number

    with asd.Dataset.from_generator(count).batch(10).prefetch(2).open() as loader:
        assert next(iter(loader)).tolist() == list(range(10))
    assert len(produced) < 10**6
