"""A user function that fails: its own error arrives, says where it came from, and everything stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from time import perf_counter
from typing import Any

import pytest

import aiostream_data as asd

HUNDRED = asd.Dataset.range(100)


class OddError(Exception):
    """An error that only this test knows."""


def fail(number: int) -> Any:
    if number == 7:
        raise OddError("seven")
    return True


async def fail_later(number: int) -> Any:
    await asyncio.sleep(0)
    return fail(number)


def generate() -> Iterator[int]:
    for number in range(100):
        fail(number)
        yield number


async def generate_async() -> AsyncIterator[int]:
    for number in range(100):
        fail(number)
        yield number


MAPPED: dict[str, Callable[[], asd.Dataset[Any]]] = {
    "thread": lambda: HUNDRED.map(fail, executor="thread"),
    "inline": lambda: HUNDRED.map(fail, executor="inline"),
    "unordered": lambda: HUNDRED.map(fail, concurrency=3, ordered=False),
    "coroutine": lambda: HUNDRED.map(fail_later),
    "unordered coroutine": lambda: HUNDRED.map(fail_later, ordered=False),
    "filter": lambda: HUNDRED.filter(fail),
    "flat_map": lambda: HUNDRED.flat_map(lambda x: [fail(x)]),
    "interleave": lambda: HUNDRED.interleave(lambda x: [fail(x)], cycle_length=3),
}
GENERATED: dict[str, Callable[[], asd.Dataset[Any]]] = {
    "generator": lambda: asd.Dataset.from_generator(generate),
    "async generator": lambda: asd.Dataset.from_generator(generate_async),
    "iterable": lambda: asd.Dataset.from_iterable(generate()),
    "inner generator": lambda: asd.Dataset.range(2).flat_map(lambda x: asd.Dataset.from_generator(generate)),
    "inner iterator": lambda: asd.Dataset.range(2).flat_map(lambda x: generate()),
    "cached": lambda: HUNDRED.map(fail).cache(),
    "repeated": lambda: HUNDRED.map(fail).repeat(),
    "batched": lambda: HUNDRED.map(fail).shuffle(5).batch(5).prefetch(2),
    "zipped": lambda: asd.Dataset.zip(HUNDRED, HUNDRED.map(fail)),
    "concatenated": lambda: HUNDRED.take(3).concatenate(HUNDRED.map(fail)),
    "taken": lambda: HUNDRED.map(fail).take(50),
}
BUILD = MAPPED | GENERATED


@pytest.mark.parametrize("build", BUILD.values(), ids=BUILD)
def test_the_error_of_a_user_function_arrives_as_it_is(build: Callable[[], asd.Dataset[Any]]) -> None:
    started = perf_counter()
    with pytest.raises(OddError) as caught:
        list(build())
    assert type(caught.value) is OddError
    assert str(caught.value) == "seven"
    assert perf_counter() - started < 2


@pytest.mark.parametrize("build", BUILD.values(), ids=BUILD)
def test_the_error_of_a_user_function_arrives_in_an_async_loop(build: Callable[[], asd.Dataset[Any]]) -> None:
    async def consume() -> None:
        async for _ in build():
            pass

    with pytest.raises(OddError, match="seven"):
        asyncio.run(consume())


@pytest.mark.parametrize("build", MAPPED.values(), ids=MAPPED)
def test_notes_name_stage_function_and_record(build: Callable[[], asd.Dataset[Any]]) -> None:
    with pytest.raises(OddError) as caught:
        list(build())
    notes = "\n".join(caught.value.__notes__)
    assert "record: range record 7" in notes
    assert "element: 7" in notes
    assert "function: " in notes
    assert "stage: " in notes


@pytest.mark.parametrize("build", GENERATED.values(), ids=GENERATED)
def test_notes_name_the_stage_of_a_failed_source(build: Callable[[], asd.Dataset[Any]]) -> None:
    with pytest.raises(OddError) as caught:
        list(build())
    assert any(note.startswith("stage: ") for note in caught.value.__notes__)


SIGNALS = [KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError]


def raiser(kind: type[BaseException]) -> Callable[[int], Any]:
    def function(number: int) -> Any:
        if number == 7:
            raise kind("from the function")
        return [True]

    return function


def raising_chains(kind: type[BaseException]) -> dict[str, asd.Dataset[Any]]:
    function = raiser(kind)

    async def later(number: int) -> Any:
        await asyncio.sleep(0)
        return function(number)

    class Raising:
        def __init__(self) -> None:
            self.number = 0

        def __iter__(self) -> Iterator[Any]:
            return self

        def __next__(self) -> Any:
            self.number += 1
            return function(self.number)

    class RaisingLater(Raising):
        def __aiter__(self) -> AsyncIterator[Any]:
            return self

        async def __anext__(self) -> Any:
            self.number += 1
            return function(self.number)

    return {
        "map": HUNDRED.map(function),
        "coroutine": HUNDRED.map(later),
        "unordered coroutine": HUNDRED.map(later, ordered=False),
        "batched": HUNDRED.map(lambda rows: function(7), batched=True),
        "rng": HUNDRED.map(lambda number, rng: function(number)),
        "filter": HUNDRED.filter(lambda number: function(number)[0]),
        "flat_map": HUNDRED.flat_map(function),
        "generator": asd.Dataset.from_generator(Raising),
        "async generator": asd.Dataset.from_generator(RaisingLater),
        "inner": HUNDRED.take(2).flat_map(lambda number: asd.Dataset.from_generator(RaisingLater)),
        "cached": asd.Dataset.from_generator(RaisingLater).cache().repeat(2),
    }


CHAINS = list(raising_chains(OddError))


@pytest.mark.parametrize("kind", SIGNALS)
@pytest.mark.parametrize("chain", CHAINS)
def test_a_signal_raised_by_a_function_is_delivered_and_never_taken_for_an_end(
    chain: str, kind: type[BaseException]
) -> None:
    started = perf_counter()
    with pytest.raises(kind, match="from the function") as caught:
        list(raising_chains(kind)[chain])
    assert type(caught.value) is kind
    assert perf_counter() - started < 2


@pytest.mark.parametrize("chain", [name for name in CHAINS if name not in ("generator",)])
def test_stop_iteration_raised_by_a_function_is_an_error_and_not_an_end(chain: str) -> None:
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(raising_chains(StopIteration)[chain])


def test_stop_async_iteration_raised_by_a_function_is_an_error_and_not_an_end() -> None:
    for chain in ("map", "filter", "flat_map", "coroutine"):
        with pytest.raises(RuntimeError, match="StopAsyncIteration"):
            list(raising_chains(StopAsyncIteration)[chain])


def test_stop_iteration_for_the_last_element_is_not_an_end_either() -> None:
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(asd.Dataset.range(8).map(raiser(StopIteration)))


def test_no_element_after_the_failed_one_is_delivered() -> None:
    given: list[int] = []
    with pytest.raises(OddError):
        given.extend(number for number in HUNDRED.map(lambda x: (fail(x), x)[1]))
    assert given == list(range(len(given)))
    assert len(given) <= 7


def test_a_failure_waits_for_no_function_that_was_not_begun() -> None:
    begun: list[int] = []

    def fail_first(number: int) -> int:
        begun.append(number)
        if number == 0:
            raise OddError("first")
        return number

    with pytest.raises(OddError):
        list(asd.Dataset.range(100_000).map(fail_first, concurrency=4))
    assert len(begun) < 50_000
