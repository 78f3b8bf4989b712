"""Which hops are late: those that run for long, not those that wait for a worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from event_order import run, settle

from aiostream_data._engine.calls import late_hops
from aiostream_data._engine.calls.late_hops import LateHops
from aiostream_data.executors.base import Outcome

LATE_S = 0.01

Hop = asyncio.Future[Outcome]


@pytest.fixture(autouse=True)
def soon_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_hops, "STRAGGLER_S", LATE_S)


class Seen:
    """The numbers of late hops that were reported."""

    def __init__(self, workers: int, most: int = 32) -> None:
        self.counts: list[int] = []
        self._changed = asyncio.Event()
        self.hops = LateHops(most, self._note, workers)

    def _note(self) -> None:
        self.counts.append(len(self.hops))
        self._changed.set()

    def begin(self) -> Hop:
        hop: Hop = asyncio.get_running_loop().create_future()
        self.hops.watch(hop)
        return hop

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not is_so():
                self._changed.clear()
                await self._changed.wait()


def test_a_hop_is_late_until_it_ends() -> None:
    async def case() -> None:
        seen = Seen(workers=1)
        hop = seen.begin()
        await seen.until(lambda: len(seen.hops) == 1)
        hop.set_result(Outcome())
        await settle()
        assert seen.counts == [1, 0]

    run(case())


def test_a_hop_in_the_queue_is_late_only_after_it_had_a_worker() -> None:
    async def case() -> None:
        seen = Seen(workers=1, most=1)
        first, second = seen.begin(), seen.begin()
        await seen.until(lambda: seen.counts == [1])  # the late first hop lets the second one begin
        first.set_result(Outcome())
        await seen.until(lambda: seen.counts == [1, 0, 1] or seen.counts == [1, 0])
        second.set_result(Outcome())
        await settle()
        assert len(seen.hops) == 0

    run(case())


def test_a_hop_that_ends_in_the_queue_is_never_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_hops, "STRAGGLER_S", 60.0)  # a busy machine delays no hop for so long

    async def case() -> None:
        seen = Seen(workers=1)
        first, second, third = seen.begin(), seen.begin(), seen.begin()
        second.cancel()
        first.set_result(Outcome())
        await settle()
        third.set_result(Outcome())
        await settle()
        assert seen.counts == []

    run(case())
