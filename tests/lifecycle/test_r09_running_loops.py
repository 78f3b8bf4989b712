"""R09: the same elements come wherever the loader is iterated."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from leaks import leaves_nothing

from aiostream_data import Dataset

DATASET = Dataset.range(500).map(lambda value: 2 * value).shuffle(50, seed=1).batch(10)


def _plain() -> list[Any]:
    with DATASET.open(seed=1) as loader:
        return list(loader)


async def _for_inside_a_coroutine() -> list[Any]:
    with DATASET.open(seed=1) as loader:
        return [batch for batch in loader]  # noqa: C416 - a plain loop is what is tested


async def _async_for() -> list[Any]:
    async with DATASET.open(seed=1) as loader:
        return [batch async for batch in loader]


async def _for_inside_async_with() -> list[Any]:
    async with DATASET.open(seed=1) as loader:
        return list(loader)


async def _shorthand() -> list[Any]:
    return [batch async for batch in DATASET]


def _same(found: list[Any]) -> None:
    np.testing.assert_array_equal(np.concatenate(found), np.concatenate(_plain()))


@pytest.mark.parametrize("consume", [_for_inside_a_coroutine, _async_for, _for_inside_async_with])
def test_r09_inside_a_coroutine(consume: Callable[[], Any]) -> None:
    with leaves_nothing():
        _same(asyncio.run(consume(), debug=True))


def test_r09_async_for_over_the_data_set_itself() -> None:
    with leaves_nothing():
        found = asyncio.run(_shorthand())
    assert sorted(np.concatenate(found).tolist()) == list(range(0, 1000, 2))


@pytest.mark.parametrize("consume", [_for_inside_a_coroutine, _async_for])
def test_r09_under_uvloop(consume: Callable[[], Any]) -> None:
    uvloop = pytest.importorskip("uvloop")
    with leaves_nothing(), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        _same(runner.run(consume()))


def test_r09_in_cells_of_a_notebook_whose_loop_goes_on_between_them() -> None:
    with leaves_nothing(), asyncio.Runner() as notebook:
        kept: list[Any] = []

        async def first_cell() -> None:
            loader = DATASET.open(seed=1)
            kept.append(loader)
            for number, batch in enumerate(loader):
                kept.append(batch)
                if number == 4:
                    break

        async def second_cell() -> None:
            loader = kept.pop(0)
            kept.extend(loader)
            await loader.aclose()

        notebook.run(first_cell())
        notebook.run(second_cell())
        _same(kept)


def test_r09_two_loaders_at_once_in_one_task_and_in_two() -> None:
    async def main() -> None:
        async with DATASET.open(seed=1) as first, DATASET.open(seed=1) as second:
            async for batch in first:
                np.testing.assert_array_equal(batch, await anext(second))
        for found in await asyncio.gather(_async_for(), _async_for(), _async_for()):
            _same(found)

    with leaves_nothing():
        asyncio.run(main(), debug=True)


def test_r09_from_a_thread_that_is_not_the_main_one() -> None:
    found: list[Any] = []
    with leaves_nothing():
        threads = [threading.Thread(target=lambda: found.append(_plain())) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(found) == 3
    for batches in found:
        _same(batches)


def test_r09_opened_in_one_thread_iterated_in_another_and_closed_in_a_third() -> None:
    found: list[Any] = []
    with leaves_nothing():
        loader = DATASET.open(seed=1)
        for target in (lambda: found.extend(loader), loader.close):
            thread = threading.Thread(target=target)
            thread.start()
            thread.join()
    _same(found)


def test_r09_other_tasks_of_the_consumers_loop_go_on_while_it_consumes() -> None:
    async def main() -> int:
        turns = 0

        async def count_turns() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count_turns())
        async with DATASET.open() as loader:
            batches = [batch async for batch in loader]
        counting.cancel()
        assert len(batches) == 50
        return turns

    assert asyncio.run(main()) >= 20


@pytest.mark.parametrize("attempt", range(5))
def test_r09_a_timeout_around_anext_loses_no_element(attempt: int) -> None:
    async def main() -> list[int]:
        found: list[int] = []
        go = threading.Event()

        def generate() -> Any:
            for number in range(20):
                if number % 5 == attempt:
                    go.wait(0.01)
                yield number

        async with Dataset.from_generator(generate).open() as loader:
            while True:
                try:
                    async with asyncio.timeout(0.001 * attempt):
                        found.append(await anext(loader))
                except TimeoutError:
                    await asyncio.sleep(0.001)
                except StopAsyncIteration:
                    return found

    with leaves_nothing():
        assert asyncio.run(main()) == list(range(20))
