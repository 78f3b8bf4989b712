"""Map, with every executor: what the function is called with, and that order and rng never depend on how it runs."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, NamedTuple

import numpy as np
import pytest
from user_functions import add, double, draw

import aiostream_data as asd
from aiostream_data.errors import PlanError
from aiostream_data.plan.base import ExecutorName

THOUSAND = asd.Dataset.range(1000)
EXECUTORS: list[ExecutorName] = ["auto", "thread", "process", "inline"]


class Named(NamedTuple):
    left: int
    right: int


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("concurrency", [1, 2, asd.AUTO])
def test_map_gives_the_functions_results_in_order(executor: ExecutorName, concurrency: Any) -> None:
    dataset = asd.Dataset.range(200).map(double, executor=executor, concurrency=concurrency)
    assert list(dataset) == [2 * number for number in range(200)]


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_map_unpacks_a_tuple_into_arguments(executor: ExecutorName) -> None:
    assert list(THOUSAND.take(3).zip(THOUSAND).map(add, executor=executor)) == [0, 2, 4]


def test_map_unpacks_neither_dicts_nor_namedtuples() -> None:
    dicts = asd.Dataset.from_tensor_slices({"a": [1, 2], "b": [3, 4]})
    assert list(dicts.map(lambda row: row["a"] + row["b"])) == [4, 6]
    named = asd.Dataset.from_tensor_slices(Named([1, 2], [3, 4]))  # type: ignore[arg-type]
    assert list(named.map(lambda row: row.left * row.right)) == [3, 8]


def test_filter_flat_map_and_coroutines_unpack_tuples_too() -> None:
    async def plus(left: int, right: int) -> int:
        return left + right

    pairs = THOUSAND.take(4).enumerate()
    assert list(pairs.filter(lambda number, value: number + value > 3)) == [(2, 2), (3, 3)]
    assert list(pairs.take(2).flat_map(lambda number, value: [number, -value])) == [0, 0, 1, -1]
    assert list(pairs.map(plus)) == [0, 2, 4, 6]


def test_each_element_decides_for_itself_whether_it_is_unpacked() -> None:
    mixed = asd.Dataset.from_iterable([1, (2, 3), (4,), 5])
    assert list(mixed.map(lambda *given: len(given))) == [1, 2, 1, 1]
    tuple_first = asd.Dataset.from_iterable([(2, 3), 1])
    assert list(tuple_first.map(lambda *given: given)) == [(2, 3), (1,)]


def test_none_and_odd_results_are_elements_like_any_other() -> None:
    odd: list[Any] = [None, [1, 2], "x", {1}, {}, (), 3, 2.5, object]
    assert list(asd.Dataset.range(len(odd)).map(lambda number: odd[number])) == odd
    assert list(THOUSAND.take(2).map(lambda number: None)) == [None, None]


def test_results_of_changing_shape_are_given_as_they_are() -> None:
    given = list(THOUSAND.take(4).map(lambda number: np.full(number, number)))
    assert [array.tolist() for array in given] == [[], [1], [2, 2], [3, 3, 3]]


def test_results_may_reuse_one_array_without_changing_what_was_given() -> None:
    # Calls of one worker; the results are taken before the next call of another chunk.
    given = list(THOUSAND.take(5).map(lambda number: np.full(2, number), executor="inline").batch(5))
    assert given[0].tolist() == [[number, number] for number in range(5)]


@pytest.mark.parametrize("ordered", [True, False])
def test_unordered_map_gives_the_same_elements(ordered: bool) -> None:
    given = list(THOUSAND.map(lambda x: x + 1, concurrency=7, ordered=ordered))
    assert sorted(given) == list(range(1, 1001))
    if ordered:
        assert given == list(range(1, 1001))


def test_an_unordered_map_does_not_wait_for_the_slow_one() -> None:
    release = threading.Event()

    def slow_at_zero(number: int) -> int:
        if number == 0:
            assert release.wait(20)
        return number

    dataset = asd.Dataset.range(40).map(slow_at_zero, concurrency=2, ordered=False)
    with dataset.open() as loader:
        given = [next(iter(loader))]
        release.set()
        given += loader
    assert given[0] != 0
    assert sorted(given) == list(range(40))


@pytest.mark.parametrize("ordered", [True, False])
def test_sixty_four_coroutines_are_awaited_at_once(ordered: bool) -> None:
    awaited, most = 0, 0

    async def fetch(number: int) -> int:
        nonlocal awaited, most
        awaited += 1
        most = max(most, awaited)
        for _ in range(number % 5):
            await asyncio.sleep(0)
        awaited -= 1
        return number * number

    given = list(THOUSAND.map(fetch, concurrency=64, ordered=ordered))
    squares = [number * number for number in range(1000)]
    assert (given if ordered else sorted(given)) == squares
    assert 32 <= most <= 64


def test_a_coroutine_that_waits_for_a_later_one_shows_that_they_run_together() -> None:
    gate: dict[str, asyncio.Event] = {}

    async def meet(number: int) -> int:
        event = gate.setdefault("all here", asyncio.Event())
        if number == 63:
            event.set()
        await event.wait()
        return number

    assert list(asd.Dataset.range(64).map(meet, concurrency=64)) == list(range(64))


def test_an_object_with_an_async_call_is_awaited() -> None:
    class Fetch:
        async def __call__(self, number: int) -> int:
            await asyncio.sleep(0)
            return -number

    assert list(THOUSAND.take(3).map(Fetch())) == [0, -1, -2]


def test_a_batched_function_gets_arrays_and_returns_as_many_rows() -> None:
    seen: list[np.ndarray[Any, Any]] = []

    def scale(rows: dict[str, Any]) -> dict[str, Any]:
        seen.append(rows["x"])
        return {"y": rows["x"] * 2, "both": np.stack([rows["x"], rows["x"]], axis=1)}

    given = list(asd.Dataset.from_tensor_slices({"x": np.arange(500)}).map(scale, batched=True))
    assert [row["y"] for row in given] == [2 * number for number in range(500)]
    assert given[7]["both"].tolist() == [7, 7]
    assert sum(map(len, seen)) == 500


def test_a_batched_function_with_another_number_of_rows_is_refused() -> None:
    with pytest.raises(PlanError, match="as many rows as it received"):
        list(THOUSAND.map(lambda rows: rows[:-1], batched=True))


def rng_numbers(**how: Any) -> list[Any]:
    return list(asd.Dataset.range(300).map(draw, seed=5, **how))


def test_rng_draws_the_same_numbers_for_any_concurrency_and_executor() -> None:
    reference = rng_numbers(concurrency=1)
    assert len({drawn for _, drawn, _ in reference}) == 300
    for concurrency in (2, 7):
        assert rng_numbers(executor="thread", concurrency=concurrency) == reference
    assert rng_numbers(executor="process", concurrency=2) == reference
    assert rng_numbers(executor="inline") == reference
    assert sorted(rng_numbers(concurrency=3, ordered=False)) == reference


def test_rng_draws_the_same_numbers_in_a_coroutine() -> None:
    async def draw_later(number: int, rng: np.random.Generator) -> tuple[int, int, float]:
        await asyncio.sleep(0)
        return draw(number, rng)

    assert list(asd.Dataset.range(300).map(draw_later, seed=5)) == rng_numbers()


def test_rng_draws_differently_in_every_epoch() -> None:
    once = asd.Dataset.range(50).map(draw, seed=5)
    both = list(once.repeat(2))
    assert [row[0] for row in both] == [*range(50), *range(50)]
    assert not {row[1] for row in both[:50]} & {row[1] for row in both[50:]}
    mapped_after = list(asd.Dataset.range(50).repeat(2).map(draw, seed=5))
    assert not {row[1] for row in mapped_after[:50]} & {row[1] for row in mapped_after[50:]}


def test_rng_draws_differently_in_every_epoch_over_cached_elements() -> None:
    cached = asd.Dataset.range(50).cache()
    both = list(cached.map(draw, seed=5).repeat(2))
    assert not {row[1] for row in both[:50]} & {row[1] for row in both[50:]}


def test_rng_draws_differently_for_another_seed_and_another_stage() -> None:
    other = list(asd.Dataset.range(300).map(draw, seed=6))
    assert not {row[1] for row in other} & {row[1] for row in rng_numbers()}
    two = asd.Dataset.range(50).map(draw, seed=5).map(lambda n, a, x, rng: (a, int(rng.integers(1 << 40))), seed=5)
    assert all(first != second for first, second in two)


def test_rng_follows_the_record_and_not_its_place_in_the_stream() -> None:
    shuffled = asd.Dataset.range(300).shuffle(300, seed=1).map(draw, seed=5)
    kept = asd.Dataset.range(300).filter(lambda x: x % 3 == 0).map(draw, seed=5)
    assert {row[0]: row[2] for row in shuffled}.keys() == {row[0] for row in rng_numbers()}
    assert len(list(kept)) == 100


def test_a_function_of_another_name_for_its_parameter_gets_no_rng() -> None:
    assert list(THOUSAND.take(2).map(lambda x, generator=None: generator)) == [None, None]
