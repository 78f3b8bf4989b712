"""Coroutines are timed between their awaits: some of them, and without a change to what they do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from functools import wraps
from time import perf_counter
from typing import Any

import pytest

from aiostream_data._engine.calls.loop_steps import EVERY_S, LoopSteps
from aiostream_data._engine.diagnosis.stacks import coroutine_frames
from aiostream_data.metrics.counters import LOOP_CALLS, LOOP_HELD, LOOP_LOOKS

HELD_S = 0.02


def on_a_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    @wraps(test)
    def run() -> None:
        asyncio.run(test())

    return run


def watched(call: Any, extra: dict[str, float] | None = None) -> Any:
    return LoopSteps({} if extra is None else extra).watched(call, perf_counter())


@on_a_loop
async def test_only_the_steps_of_a_call_count_and_not_what_it_awaits() -> None:
    async def blocks_twice() -> str:
        time.sleep(HELD_S)
        await asyncio.sleep(10 * HELD_S)
        time.sleep(HELD_S)
        return "done"

    extra: dict[str, float] = {}
    assert await watched(blocks_twice(), extra) == "done"
    assert 2 * HELD_S <= extra[LOOP_HELD] < 8 * HELD_S


@on_a_loop
async def test_one_call_in_a_millisecond_is_timed_and_all_are_counted() -> None:
    async def nothing() -> None:
        pass

    extra: dict[str, float] = {}
    steps = LoopSteps(extra)
    for number in range(21):
        await steps.watched(nothing(), 1.0 + number * EVERY_S / 9.99)
    assert (extra[LOOP_LOOKS], extra[LOOP_CALLS]) == (3, 21)


@on_a_loop
async def test_an_error_of_a_timed_call_is_the_call_s_own() -> None:
    async def fails() -> None:
        await asyncio.sleep(0)
        raise KeyError("own")

    with pytest.raises(KeyError, match="own"):
        await watched(fails())


@on_a_loop
async def test_a_timed_call_can_be_cancelled_and_may_catch_that() -> None:
    waits = asyncio.Event()

    async def catches() -> str:
        try:
            waits.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "caught"
        return "not cancelled"

    async def awaits() -> Any:
        return await watched(catches())

    task = asyncio.create_task(awaits())
    await waits.wait()
    task.cancel()
    assert await task == "caught"


@on_a_loop
async def test_the_stack_of_a_timed_call_shows_its_function() -> None:
    async def innermost() -> None:
        await asyncio.Event().wait()

    async def outermost() -> None:
        await watched(innermost())

    task = asyncio.create_task(outermost())
    await asyncio.sleep(0)
    names = [frame.f_code.co_name for frame in coroutine_frames(task.get_coro())]
    task.cancel()
    assert names[:2] == ["outermost", "innermost"]


@on_a_loop
async def test_a_future_is_awaited_as_it_is() -> None:
    future = asyncio.get_running_loop().create_future()
    future.set_result(3)
    assert watched(future) is future
    assert await future == 3
