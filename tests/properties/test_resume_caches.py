"""A cache resumes exactly, over an order that is free too: nothing is lost or given twice, whoever kept the rows."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import plan_functions as fn
import pytest
from small_chunks import Recut, small_chunks

from aiostream_data import Dataset
from aiostream_data.errors import StateMismatchError
from aiostream_data.testing.resume import resumes_everywhere

Make = Callable[[Path], Dataset[Any]]


def numbers(count: int) -> Dataset[Any]:
    return Dataset.range(count).map(fn.number, ordered=False, concurrency=3)


def files(folder: Path) -> Dataset[Any]:
    paths = [folder / f"{number}.bin" for number in range(3)]
    for number, path in enumerate(paths):
        path.write_bytes(bytes(range(30 * number, 30 * number + 30)))
    return Dataset.from_fixed_length(paths, 3, cycle_length=2, ordered=False)


def read_twice(_: Path) -> Dataset[Any]:
    cached = numbers(12).cache()
    return cached.concatenate(cached).shuffle(5, seed=3).repeat(2)


PLANS: dict[str, Make] = {
    "rows": lambda _: numbers(20).cache(),
    "rows again and again": lambda _: numbers(12).filter(fn.is_kept).cache().repeat(3),
    "batches": lambda _: numbers(14).batch(3).cache().repeat(2).unbatch(),
    "files": lambda folder: files(folder).cache().repeat(2),
    "read at two places": read_twice,
    "shuffled behind": lambda _: numbers(20).cache().shuffle(7, seed=1).repeat(2),
    "no rows": lambda _: numbers(20).filter(fn.never).cache().repeat(2),
}


@pytest.mark.parametrize("make", PLANS.values(), ids=PLANS.keys())
def test_a_cache_over_a_free_order_resumes_in_every_pass(make: Make, tmp_path: Path) -> None:
    with small_chunks() as cut:
        recut: Any = Recut(make(tmp_path), cut, itertools.cycle([(3, 50), (1, 20)]))
        resumes_everywhere(recut, unordered=True, every=1)


def test_data_sets_within_resume_behind_a_cache_where_the_whole_order_is_free() -> None:
    dataset = Dataset.range(9).flat_map(fn.few).cache().map(fn.drawn, seed=1)
    with small_chunks() as cut:
        recut: Any = Recut(dataset, cut, itertools.cycle([(3, 50), (1, 20)]))
        resumes_everywhere(recut, unordered=True, every=1, open_options={"deterministic": False})


def test_a_pass_goes_on_as_it_began_after_another_loader_has_filled_the_cache_in_another_order() -> None:
    cached = numbers(200).cache()
    with cached.open() as loader:
        begun = [next(rows) for rows in [iter(loader)] for _ in range(50)]
        state = loader.state_dict()
    assert sorted(cached) == sorted(numbers(200))
    with cached.open(state=state) as loader:
        assert sorted([*begun, *loader]) == sorted(numbers(200))


def test_a_state_that_counts_rows_of_an_order_is_refused_where_the_order_is_free() -> None:
    def plan() -> Dataset[Any]:
        return Dataset.range(20).map(fn.number, concurrency=3).cache().repeat(2)

    with plan().open() as loader:
        rows = iter(loader)
        for _ in range(30):
            next(rows)
        state = loader.state_dict()
    with (
        pytest.raises(StateMismatchError, match="deterministic=True"),
        plan().open(state=state, deterministic=False) as loader,
    ):
        list(loader)


def test_rows_of_a_source_that_can_be_read_once_are_refused_instead_of_waited_for() -> None:
    def plan() -> Dataset[Any]:
        return Dataset.from_iterable(iter(range(20))).map(fn.number, ordered=False, concurrency=3).cache().repeat(2)

    with plan().open() as loader:
        rows = iter(loader)
        for _ in range(30):
            next(rows)
        state = loader.state_dict()
    with pytest.raises(StateMismatchError, match="only once"), plan().open(state=state) as loader:
        list(loader)


@pytest.mark.parametrize("again", [1, 3])
def test_repetitions_below_a_cache_draw_apart_and_the_same_for_whoever_reads_it(again: int) -> None:
    dataset = Dataset.range(3, 9).repeat(2).cache().repeat(again).map(fn.drawn, seed=1)
    first = list(dataset.open(seed=4))
    assert list(dataset.open(seed=4)) == first
    assert len({drawn for _, drawn in first}) == len(first) == 12 * again


@pytest.mark.parametrize("again", [1, 2])
def test_repetitions_below_a_cache_resume_with_their_draws(again: int) -> None:
    dataset = Dataset.range(9).repeat(2).cache().repeat(again).flat_map(fn.few_shuffled)
    with small_chunks() as cut:
        recut: Any = Recut(dataset, cut, itertools.cycle([(3, 50), (1, 20)]))
        resumes_everywhere(recut, every=4)
