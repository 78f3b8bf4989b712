"""Alarms ring once, in time and in their order, unless they were taken back; all of them by one timer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from aiostream_data.storage.alarms import Alarms


@dataclass(eq=False)
class Call:
    """Notes when it is due."""

    rang: list[Call]
    also: Callable[[], object] = field(default=lambda: None)

    def is_due(self) -> None:
        self.rang.append(self)
        self.also()


class StoppedLoop(asyncio.SelectorEventLoop):
    """A loop whose clock stands where the test has put it."""

    now = 100.0

    def time(self) -> float:
        return self.now


def pass_by(loop: StoppedLoop, seconds: float) -> None:
    """Let so many seconds pass, and everything be done that is due by then."""
    loop.now += seconds

    async def settle() -> None:
        for _ in range(3):
            await asyncio.sleep(0)

    loop.run_until_complete(settle())


def with_loop(case: Callable[[StoppedLoop, Alarms], None]) -> None:
    loop = StoppedLoop()
    alarms = Alarms()
    try:
        case(loop, alarms)
    finally:
        loop.run_until_complete(_close(alarms))
        loop.close()


async def _close(alarms: Alarms) -> None:
    alarms.close()


def set_all(loop: StoppedLoop, alarms: Alarms, *calls: tuple[float, Any]) -> None:
    async def main() -> None:
        for after_s, call in calls:
            alarms.set(after_s, call)

    loop.run_until_complete(main())


def test_they_ring_once_each_when_their_time_has_come() -> None:
    def case(loop: StoppedLoop, alarms: Alarms) -> None:
        rang: list[Call] = []
        late, soon, both = Call(rang), Call(rang), Call(rang)
        set_all(loop, alarms, (3.0, late), (1.0, soon), (1.0, both))
        pass_by(loop, 0.9)
        assert rang == []
        pass_by(loop, 0.2)
        assert rang == [soon, both]
        pass_by(loop, 1.8)
        assert rang == [soon, both]
        pass_by(loop, 0.2)
        pass_by(loop, 10.0)
        assert rang == [soon, both, late]

    with_loop(case)


def test_what_is_taken_back_does_not_ring_even_when_it_is_due_beside_the_one_that_does_it() -> None:
    def case(loop: StoppedLoop, alarms: Alarms) -> None:
        rang: list[Call] = []
        gone, other = Call(rang), Call(rang)
        first = Call(rang, lambda: alarms.take_back(other))
        set_all(loop, alarms, (1.0, gone), (1.0, first), (1.0, other))
        alarms.take_back(gone)
        alarms.take_back(gone)
        pass_by(loop, 5.0)
        assert rang == [first]

    with_loop(case)


def test_one_that_fails_keeps_no_other_from_ringing() -> None:
    def case(loop: StoppedLoop, alarms: Alarms) -> None:
        told: list[BaseException] = []
        loop.set_exception_handler(lambda _, context: told.append(context["exception"]))
        rang: list[Call] = []

        def fail() -> None:
            raise LookupError("no room")

        failing, beside, later = Call(rang, fail), Call(rang), Call(rang)
        set_all(loop, alarms, (1.0, failing), (1.0, beside), (2.0, later))
        pass_by(loop, 1.5)
        assert rang == [failing, beside]
        assert [type(error) for error in told] == [LookupError]
        pass_by(loop, 1.0)
        assert rang == [failing, beside, later]

    with_loop(case)


@pytest.mark.parametrize("count", [1, 1000])
def test_however_many_there_are_the_loop_has_few_timers(count: int) -> None:
    def case(loop: StoppedLoop, alarms: Alarms) -> None:
        rang: list[Call] = []
        calls = [Call(rang) for _ in range(count)]
        set_all(loop, alarms, *((1.0 + number, call) for number, call in enumerate(calls)))
        assert len(loop._scheduled) == 1  # type: ignore[attr-defined]
        for call in calls:
            alarms.take_back(call)
        pass_by(loop, 2.0)
        assert len(loop._scheduled) == 0  # type: ignore[attr-defined]
        assert rang == []

    with_loop(case)


def test_after_closing_nothing_rings_and_no_timer_is_left() -> None:
    def case(loop: StoppedLoop, alarms: Alarms) -> None:
        rang: list[Call] = []
        set_all(loop, alarms, (1.0, Call(rang)))
        alarms.close()
        alarms.close()
        pass_by(loop, 5.0)
        assert rang == []

    with_loop(case)
