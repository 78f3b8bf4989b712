"""Loaders that are used in ways that nobody should need end as others do, and keep nobody waiting."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import warnings
from collections.abc import Callable
from itertools import chain
from time import perf_counter
from typing import Any

import pytest
from leaks import leaves_nothing

import aiostream_data as asd
from aiostream_data.errors import LoaderClosedError

HUNDRED = asd.Dataset.range(100)


@pytest.mark.parametrize("ends_with", ["the last element", "an error"])
def test_two_threads_that_iterate_one_loader_share_its_elements_and_both_end(ends_with: str) -> None:
    received: list[int] = []
    errors: list[BaseException] = []
    both = threading.Barrier(2)

    def work(number: int) -> int:
        return 1 // (99 - number) + number if ends_with == "an error" else number

    def consume() -> None:
        both.wait()
        try:
            received.extend(loader)
        except (ZeroDivisionError, LoaderClosedError) as error:
            errors.append(error)

    with leaves_nothing(), HUNDRED.map(work).open() as loader:
        threads = [threading.Thread(target=consume, daemon=True) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert [thread.is_alive() for thread in threads] == [False, False]
    if ends_with == "an error":
        assert sum(isinstance(error, ZeroDivisionError) for error in errors) == 1
    else:
        assert sorted(received) == list(range(100))


@pytest.mark.parametrize("how", ["next", "for"])
def test_threads_that_receive_parcels_at_the_same_time_lose_no_element(how: str) -> None:
    rows = 20_000

    def consume(loader: asd.Loader[int], received: list[int]) -> None:
        with contextlib.suppress(StopIteration, LoaderClosedError):  # others may have received all before it begins
            if how == "for":
                received.extend(loader)
                return
            while True:
                received.append(next(loader))

    switch_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for _ in range(20):
            received: list[list[int]] = [[], [], [], []]
            with leaves_nothing(), asd.Dataset.range(rows).open() as loader:
                threads = [threading.Thread(target=consume, args=(loader, own), daemon=True) for own in received]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join(20)
            assert sorted(chain.from_iterable(received)) == list(range(rows))
    finally:
        sys.setswitchinterval(switch_s)


@pytest.mark.parametrize("ends_with", ["the last element", "an error"])
def test_tasks_that_iterate_one_loader_share_its_elements_and_all_end(ends_with: str) -> None:
    def work(number: int) -> int:
        return 1 // (99 - number) + number if ends_with == "an error" else number

    async def consume(loader: asd.Loader[int], received: list[int]) -> None:
        async for number in loader:
            received.append(number)
            if number % 7 == 0:
                await asyncio.sleep(0.001)

    async def main(received: list[int]) -> list[BaseException | None]:
        async with HUNDRED.map(work).open() as loader:
            tasks = [asyncio.create_task(consume(loader, received)) for _ in range(5)]
            async with asyncio.timeout(20):
                return await asyncio.gather(*tasks, return_exceptions=True)

    for _ in range(3):
        received: list[int] = []
        with leaves_nothing():
            found = asyncio.run(main(received))
        if ends_with == "an error":
            kinds = sorted(type(error).__name__ for error in found)
            assert kinds == ["LoaderClosedError"] * 4 + ["ZeroDivisionError"]
        else:
            assert found == [None] * 5
            assert sorted(received) == list(range(100))


CLOSING: dict[str, Callable[[Callable[[int], int]], asd.Dataset[Any]]] = {
    "map": HUNDRED.map,
    "filter": lambda function: HUNDRED.filter(lambda number: function(number) >= 0),
    "flat_map": lambda function: HUNDRED.flat_map(lambda number: [function(number)]),
    "generator": lambda function: asd.Dataset.from_generator(lambda: map(function, range(100))),
}


@pytest.mark.parametrize("where", CLOSING)
def test_a_function_may_close_the_loader_that_calls_it_and_does_not_wait_for_itself(where: str) -> None:
    def close(number: int) -> int:
        if number == 5:
            assert is_open.wait(10.0)  # functions run ahead as soon as a loader is opened
            began = perf_counter()
            loader.close()
            waited.append(perf_counter() - began)
        return number

    is_open = threading.Event()
    waited: list[float] = []
    with leaves_nothing(), warnings.catch_warnings():
        warnings.simplefilter("error")
        loader = CLOSING[where](close).open()
        is_open.set()
        with pytest.raises(LoaderClosedError):
            list(loader)
        loader.close()
    assert waited[0] < 1.0
