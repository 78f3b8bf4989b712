"""Measure how long user coroutines block the event loop between their awaits.

A coroutine that blocks delays every other task on the loop. This module measures each step of a coroutine call: from
    one resumption to the next await. At most one call per millisecond is timed, so cheap calls have almost no overhead.
"""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine, Generator
from time import perf_counter
from types import CodeType, FrameType
from typing import Any, Final

from aiostream_data.metrics.counters import LOOP_CALLS, LOOP_HELD, LOOP_LOOKS

EVERY_S: Final = 0.001
"""Minimum seconds between the starts of two timed calls."""


class LoopSteps:
    """Measure the duration of some of a stage's calls.

    This class is not thread-safe: use it only on the event loop's thread.

    Args:
        extra: Stage counters that receive the number of timed calls and the total seconds of their steps.
    """

    __slots__ = ("_calls", "_due", "_extra")

    def __init__(self, extra: dict[str, float]) -> None:
        self._extra = extra
        self._calls = 0
        self._due = 0.0

    def watched(self, call: Awaitable[Any], now: float) -> Awaitable[Any]:
        """Return ``call`` itself. If a sample is due, return an awaitable that times the steps of ``call``.

        Args:
            now: Start time of the call, from ``perf_counter()``.
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
    """Run a coroutine step by step, as ``await`` does, and sum the durations of its steps."""

    __slots__ = ("_call", "_extra")

    def __init__(self, call: Coroutine[Any, Any, Any], extra: dict[str, float]) -> None:
        self._call = call
        self._extra = extra

    def __await__(self) -> Generator[Any, Any, Any]:
        return self

    def __next__(self) -> Any:
        return self.send(None)  # the inherited method would add a frame of the standard library to tracebacks

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

    # -- attributes read by tools that print coroutine stacks

    @property
    def cr_frame(self) -> FrameType | None:
        return getattr(self._call, "cr_frame", None)

    @property
    def cr_code(self) -> CodeType | None:
        return getattr(self._call, "cr_code", None)

    @property
    def cr_await(self) -> Any:
        return getattr(self._call, "cr_await", self._call)
