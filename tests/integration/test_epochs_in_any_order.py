"""Results in any order: epochs of a repeated source stay apart, and the rows are those of an ordered run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
import pytest

from aiostream_data import Dataset

ROWS, TIMES = 6, 3
EXPECTED = [number for _ in range(TIMES) for number in range(ROWS)]

pytestmark = pytest.mark.leaves_nothing


def _called(is_late: Callable[[int], bool], **options: Any) -> Dataset[int]:
    later = threading.Event()

    def function(number: int) -> int:
        if is_late(number):
            later.wait(0.02)
        return number

    return Dataset.range(ROWS).map(function, concurrency=4, **options)


def _awaited(is_late: Callable[[int], bool], **options: Any) -> Dataset[int]:
    async def function(number: int) -> int:
        if is_late(number):
            await asyncio.sleep(0.02)
        return number

    return Dataset.range(ROWS).map(function, concurrency=4, **options)


@pytest.mark.parametrize("make", [_called, _awaited])
@pytest.mark.parametrize("options", [{}, {"ordered": False}])
def test_all_rows_of_an_epoch_come_before_those_of_the_next(make: Any, options: Any) -> None:
    dataset = make(lambda number: number == 0, **options).repeat(TIMES)
    with dataset.open(deterministic=not options) as loader:
        found = list(map(int, loader))
    assert [sorted(found[first : first + ROWS]) for first in range(0, len(found), ROWS)] == [[*range(ROWS)]] * TIMES


def test_rows_of_an_epoch_come_in_any_order() -> None:
    is_first_done, others = threading.Event(), threading.Semaphore(0)

    def function(number: int) -> int:
        if number:
            others.release()
        else:
            assert others.acquire(timeout=30)
            assert is_first_done.wait(0.05) is False
        return number

    dataset = Dataset.range(ROWS).map(function, concurrency=4).repeat(TIMES)
    with dataset.open(deterministic=False) as loader:
        found = list(map(int, loader))
    assert found != EXPECTED
    assert sorted(found) == sorted(EXPECTED)


def test_random_draws_and_origins_are_those_of_an_ordered_run() -> None:
    def draw(number: int, rng: np.random.Generator) -> tuple[int, float]:
        return int(number), float(rng.random())

    dataset = _called(lambda number: number == 0).repeat(TIMES).map(draw).repeat(2).map(draw_again)
    seen = []
    for deterministic in (True, False):
        with dataset.open(seed=3, deterministic=deterministic) as loader:
            seen.append(sorted((*row, *_epochs(loader, row)) for row in loader))
    assert seen[0] == seen[1]
    assert len({draws for _, _, draws, *_ in seen[0]}) == 2 * len(EXPECTED)


def draw_again(number: int, first: float, rng: np.random.Generator) -> tuple[int, float, float]:
    return number, first, float(rng.random())


def _epochs(loader: Any, row: Any) -> list[int]:
    return [origin.epoch for origin in loader.origins(row)]


@pytest.mark.parametrize("make", [_called, _awaited])
@pytest.mark.parametrize("first_in_order", [True, False])
@pytest.mark.parametrize("count", range(1, len(EXPECTED)))
def test_a_run_resumes_in_the_other_order(make: Any, first_in_order: bool, count: int) -> None:
    dataset = make(lambda number: number % 2 == 0).repeat(TIMES)
    with dataset.open(deterministic=first_in_order) as loader:
        found = list(map(int, islice(loader, count)))
        state = loader.state_dict()
    with dataset.open(deterministic=not first_in_order, state=state) as loader:
        found += map(int, loader)
    assert [sorted(found[first : first + ROWS]) for first in range(0, len(found), ROWS)] == [[*range(ROWS)]] * TIMES


@pytest.mark.parametrize("make", [_called, _awaited])
def test_an_error_ends_a_run_whose_next_epoch_waits(make: Any) -> None:
    def fails(number: int) -> bool:
        if number == 0:
            raise ValueError("the first row")
        return number == 1

    with pytest.raises(ValueError, match="the first row"):
        list(make(fails).repeat(TIMES).open(deterministic=False))


@pytest.mark.parametrize("make", [_called, _awaited])
def test_a_loader_closes_while_the_next_epoch_waits(make: Any) -> None:
    with make(lambda number: number == 0).repeat().open(deterministic=False) as loader:
        assert int(next(iter(loader))) in range(ROWS)
