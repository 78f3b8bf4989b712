"""Measure how long a user's coroutines keep the event loop between their awaits.

How this works. A call that blocks is suspended too late: the loop waits for it, and with it everything else. So the
steps of a call are timed, each from where it resumes to where it awaits. One call in a millisecond is enough, so that
cheap calls cost no more than before.
"""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine, Generator
from time import perf_counter
from types import CodeType, FrameType
from typing import Any, Final

from aiostream_data.metrics.counters import LOOP_CALLS, LOOP_HELD, LOOP_LOOKS

EVERY_S: Final = 0.001
"""Seconds between the beginnings of two calls that are timed."""


class LoopSteps:
    """Times some of a stage's calls. Loop thread only.

    Args:
        extra: Of the stage's counters; the seconds that steps took are added there.
    """

    __slots__ = ("_calls", "_due", "_extra")

    def __init__(self, extra: dict[str, float]) -> None:
        self._extra = extra
        self._calls = 0
        self._due = 0.0

    def watched(self, call: Awaitable[Any], now: float) -> Awaitable[Any]:
        """Return what to await for a call that begins ``now``: the call itself, or the same with timed steps.

        Args:
            now: Of ``perf_counter()``.
        """
        self._calls += 1
        if now < self._due or not isinstance(call, Coroutine):
            return call
        self._due = now + EVERY_S
        extra = self._extra
        extra[LOOP_CALLS] = extra.get(LOOP_CALLS, 0) + self._calls
        extra[LOOP_LOOKS] = extra.get(LOOP_LOOKS, 0) + 1
        self._calls = 0
        return _TimedSteps(call, extra)


class _TimedSteps(Generator[Any, Any, Any]):
    """Run a coroutine step by step, as ``await`` does, and note how long its steps take."""

    __slots__ = ("_call", "_extra")

    def __init__(self, call: Coroutine[Any, Any, Any], extra: dict[str, float]) -> None:
        self._call = call
        self._extra = extra

    def __await__(self) -> Generator[Any, Any, Any]:
        return self

    def send(self, value: Any) -> Any:
        began = perf_counter()
        try:
            return self._call.send(value)
        finally:
            self._note(began)

    def throw(self, *error: Any) -> Any:
        began = perf_counter()
        try:
            return self._call.throw(*error)
        finally:
            self._note(began)

    def close(self) -> None:
        self._call.close()

    def _note(self, began: float) -> None:
        self._extra[LOOP_HELD] = self._extra.get(LOOP_HELD, 0.0) + perf_counter() - began

    # -- as stacks look for them

    @property
    def cr_frame(self) -> FrameType | None:
        return getattr(self._call, "cr_frame", None)

    @property
    def cr_code(self) -> CodeType | None:
        return getattr(self._call, "cr_code", None)

    @property
    def cr_await(self) -> Any:
        return getattr(self._call, "cr_await", self._call)
