"""``reduce`` and ``areduce``: all elements combined into one value."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from aiostream_data import Dataset, PlanError, StageBuildError

NUMBERS = Dataset.range(10)


def add(total: int, number: int) -> int:
    return total + int(number)


async def add_later(total: int, number: int) -> int:
    await asyncio.sleep(0)
    return add(total, number)


def append(before: list[Any], element: Any) -> list[Any]:
    before.append(element)
    return before


def fails_at(bad: int, total: int, number: int) -> int:
    if number == bad:
        raise ValueError(f"bad {bad}")
    return total


@pytest.mark.parametrize("function", [add, add_later])
def test_a_script_gets_the_last_state(function: Any) -> None:
    assert NUMBERS.reduce(function, 0) == 45
    assert Dataset.range(0).reduce(function, 7) == 7


@pytest.mark.parametrize("function", [add, add_later, lambda total, number: add_later(total, number)])
def test_a_coroutine_gets_the_last_state(function: Any) -> None:
    async def main() -> tuple[int, int]:
        return await NUMBERS.areduce(function, 0), await Dataset.range(0).areduce(function, 7)

    assert asyncio.run(main()) == (45, 7)


def test_a_plain_function_works_inside_a_running_loop() -> None:
    async def main() -> int:
        return NUMBERS.reduce(add, 0)

    assert asyncio.run(main()) == 45


def test_a_running_loop_is_not_blocked_for_a_coroutine_function() -> None:
    async def main() -> None:
        NUMBERS.reduce(add_later, 0)

    with pytest.raises(PlanError, match=r"Use await dataset\.areduce\(\)"):
        asyncio.run(main())


def test_elements_come_in_order_and_tuples_are_one_argument() -> None:
    pairs = Dataset.from_tensor_slices((np.arange(3), np.arange(3) * 2)).map(lambda one, two: (int(one), int(two)))
    assert pairs.reduce(append, []) == [(0, 0), (1, 2), (2, 4)]


def test_the_initial_state_is_not_changed() -> None:
    initial = ["first"]
    assert NUMBERS.take(2).reduce(append, initial) == ["first", 0, 1]
    assert initial == ["first"]


def test_every_call_reads_a_new_epoch_and_a_seed_repeats_it() -> None:
    shuffled = Dataset.range(100).shuffle(100)
    assert shuffled.reduce(append, []) != shuffled.reduce(append, [])
    assert shuffled.reduce(append, [], seed=1, epoch=0) == shuffled.reduce(append, [], seed=1, epoch=0)


def test_a_state_selects_the_rest() -> None:
    with NUMBERS.open() as loader:
        assert [next(loader) for _ in range(4)] == [0, 1, 2, 3]
        state = loader.state_dict()
    assert NUMBERS.reduce(append, [], state=state) == [4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("bad", [0, 4, 9])
def test_an_error_names_function_record_and_element(bad: int) -> None:
    for call in (NUMBERS.reduce, lambda *args: asyncio.run(NUMBERS.areduce(*args))):
        with pytest.raises(ValueError, match=f"bad {bad}") as caught:
            call(partial(fails_at, bad), 0)
        notes = "\n".join(caught.value.__notes__)
        assert "stage: reduce" in notes
        assert "fails_at" in notes
        assert f"record: range record {bad}" in notes
        assert f"element: {bad}" in notes


def test_an_error_of_the_dataset_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        NUMBERS.map(lambda number: 1 // (5 - number)).reduce(add, 0)


def test_a_cancelled_reduction_ends() -> None:
    started = asyncio.Event()

    async def waits(total: int, number: int) -> int:
        started.set()
        await asyncio.Event().wait()
        return 0

    async def main() -> None:
        task = asyncio.ensure_future(NUMBERS.repeat().take(10**9).areduce(waits, 0))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def generated(total: int, number: int) -> Iterator[int]:
    yield number


def test_arguments_that_cannot_work_are_refused_at_the_call() -> None:
    numbers: Dataset[Any] = NUMBERS
    with pytest.raises(PlanError, match="a finite dataset"):
        numbers.repeat().reduce(add, 0)
    with pytest.raises(PlanError, match=r"reduce\(\) needs a function"):
        numbers.reduce(3, 0)  # type: ignore[arg-type]
    with pytest.raises(StageBuildError, match="generator function"):
        numbers.reduce(generated, 0)  # type: ignore[arg-type]
    with pytest.raises(StageBuildError, match="with two arguments"):
        numbers.reduce(lambda total: 0, 0)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="returned a coroutine"):
        numbers.reduce(lambda total, number: add_later(total, number), 0)
    with pytest.raises(TypeError, match="sead"):
        numbers.reduce(add, 0, sead=1)
