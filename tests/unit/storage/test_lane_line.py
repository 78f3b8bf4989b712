"""Requests that wait in the line of a lane are woken, whatever happens to those before them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from aiostream_data.storage import lanes
from aiostream_data.storage.lanes import Lane


def narrow_lane() -> Lane:
    lane = Lane()
    lane.aimd.limit = 1.0
    return lane


async def waiting(lane: Lane, count: int) -> list[asyncio.Task[None]]:
    """Start requests that wait in line."""
    tasks = [asyncio.create_task(lane.enter()) for _ in range(count)]
    await asyncio.sleep(0)
    return tasks


def test_a_request_that_is_cancelled_as_it_is_woken_wakes_the_next() -> None:
    async def run() -> None:
        lane = narrow_lane()
        await lane.enter()
        first, second = await waiting(lane, 2)
        lane.leave()  # wakes the first, whose future is resolved by the next turn of the loop
        first.cancel()
        await asyncio.wait_for(second, 5)
        with pytest.raises(asyncio.CancelledError):
            await first
        assert lane.in_flight == 1

    asyncio.run(run())


def test_a_request_that_is_cancelled_in_line_leaves_the_others_their_turn() -> None:
    async def run() -> None:
        lane = narrow_lane()
        await lane.enter()
        first, second = await waiting(lane, 2)
        first.cancel()
        await asyncio.wait([first])
        assert not second.done()
        lane.leave()
        await asyncio.wait_for(second, 5)
        assert lane.in_flight == 1

    asyncio.run(run())


def test_a_pause_that_ends_while_it_is_looked_at_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        lane = narrow_lane()
        lane.aimd.quiet_until = 1.0
        readings = iter([0.9999])
        monkeypatch.setattr(lanes, "time", SimpleNamespace(monotonic=lambda: next(readings, 1.0001)))
        await asyncio.wait_for(lane._wait_in_line(), 5)
        assert lane.in_flight == 1

    asyncio.run(run())
