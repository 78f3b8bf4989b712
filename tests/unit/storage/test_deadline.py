"""A deadline ends its own block, and is never mistaken for a cancellation from outside."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from aiostream_data.storage.alarms import Alarms
from aiostream_data.storage.deadline import Deadline, left_s, paused_deadline


def run(case: Callable[[Alarms], Awaitable[None]]) -> None:
    async def main() -> None:
        alarms = Alarms()
        try:
            await asyncio.wait_for(case(alarms), 10)
        finally:
            alarms.close()

    asyncio.run(main())


def test_a_block_that_takes_too_long_ends_with_it_and_its_task_goes_on() -> None:
    async def case(alarms: Alarms) -> None:
        with Deadline(alarms, 0.01) as deadline:
            await asyncio.sleep(10)
        assert deadline.passed
        task = asyncio.current_task()
        assert task is not None
        assert not task.cancelling()
        await asyncio.sleep(0)

    run(case)


def test_a_block_that_ends_in_time_ends_as_it_is() -> None:
    async def case(alarms: Alarms) -> None:
        with Deadline(alarms, 0.01) as deadline:
            pass
        assert not deadline.passed
        with pytest.raises(ValueError, match="mine"), Deadline(alarms, 0.01):
            raise ValueError("mine")
        await asyncio.sleep(0.03)  # and nothing cancels the task later

    run(case)


def test_without_a_limit_nothing_is_cancelled() -> None:
    async def case(alarms: Alarms) -> None:
        with Deadline(alarms, None):
            assert left_s() is None
            await asyncio.sleep(0.01)

    run(case)


def test_a_cancellation_from_outside_stays_one() -> None:
    async def case(alarms: Alarms) -> None:
        async def limited() -> None:
            with Deadline(alarms, 10):
                await asyncio.sleep(10)

        task = asyncio.ensure_future(limited())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(case)


def test_a_cancellation_from_outside_at_the_same_moment_stays_one() -> None:
    async def case(alarms: Alarms) -> None:
        deadline = Deadline(alarms, 10)

        async def limited() -> None:
            with deadline:
                await asyncio.sleep(10)

        task = asyncio.ensure_future(limited())
        await asyncio.sleep(0)
        deadline.is_due()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(case)


def test_the_inner_of_two_deadlines_ends_alone() -> None:
    async def case(alarms: Alarms) -> None:
        with Deadline(alarms, 10):
            with Deadline(alarms, 0.01) as inner:
                await asyncio.sleep(10)
            assert inner.passed
            assert 9 < (left_s() or 0.0) < 10
            await asyncio.sleep(0)

    run(case)


def test_a_pause_does_not_count() -> None:
    async def case(alarms: Alarms) -> None:
        with Deadline(alarms, 0.2):
            with paused_deadline():
                await asyncio.sleep(0.4)
            assert (left_s() or 0.0) > 0.1

        with Deadline(alarms, 0.05) as deadline:
            with paused_deadline():
                await asyncio.sleep(0.1)
            await asyncio.sleep(10)
        assert deadline.passed

    run(case)


def test_a_task_beside_the_call_cannot_pause_its_deadline() -> None:
    async def case(alarms: Alarms) -> None:
        async def beside() -> None:
            with paused_deadline():
                await asyncio.sleep(10)

        with Deadline(alarms, 0.05) as deadline:
            task = asyncio.ensure_future(beside())
            try:
                await asyncio.sleep(10)
            finally:
                task.cancel()
                await asyncio.wait([task])
        assert deadline.passed

    run(case)
