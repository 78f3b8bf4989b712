"""Tasks of the stages of one run: when the run is left, they are cancelled and awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, TypeAlias

from aiostream_data._engine.flow.channel import ReceiverClosed, StreamAborted
from aiostream_data._engine.flow.drained import Drained
from aiostream_data._engine.flow.root_cause import raise_as_it_is, root_error

Work: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
"""Coroutine function without arguments that runs one stage."""

Launch: TypeAlias = Callable[[Work, str], None]
"""Function that starts the task of a stage, given its coroutine function and its name."""


class StageTasks:
    """Async context manager that owns the tasks of a run. It provides the function that starts a task.

    On exit, it cancels every task and waits until all tasks have ended.

    Args:
        drained: Event of the run, which is set on exit.

    Raises:
        BaseException: The first error of the run, without the errors that this error caused in other stages.
        ReceiverClosed: The ``async with`` block raised ReceiverClosed. The caller must not treat the run as complete.
    """

    __slots__ = ("_drained", "_group", "_running")

    def __init__(self, drained: Drained) -> None:
        self._drained = drained
        self._group = asyncio.TaskGroup()
        self._running: list[asyncio.Task[None]] = []

    def _launch(self, work: Work, name: str) -> None:
        self._running.append(self._group.create_task(work(), name=name))

    async def __aenter__(self) -> Launch:
        await self._group.__aenter__()
        return self._launch

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._drained.release()
        for task in self._running:
            task.cancel()
        try:
            await self._group.__aexit__(exc_type, exc, tb)
        except BaseExceptionGroup as failures:
            root = root_error(failures)
            if root is None or isinstance(root, StreamAborted):  # caused by the cancellation above
                if exc_type is None:
                    return
                raise ReceiverClosed from failures
            raise_as_it_is(root)
