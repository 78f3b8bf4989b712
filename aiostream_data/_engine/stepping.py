"""Run a plan one element at a time on the caller's thread, so that debuggers, prints and breakpoints work.

How this works. :class:`SteppingEngine` uses the normal engine and stages, with three changes. The event loop has no
thread of its own. Each ``next()`` call runs this event loop until the next element arrives, even if another event loop
is already running in that thread. Executors call user functions on the consumer's thread. Channels pass one row at a
time and only on request. Therefore no stage reads ahead. Elements, their order and the random numbers of ``rng`` are
the same as in a normal run.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import ClassVar

from aiostream_data._engine.at_exit import stop_at_exit
from aiostream_data._engine.consumer.bridge import Bridge, Ending, Parcel
from aiostream_data._engine.engine import Engine
from aiostream_data._engine.engine_options import EngineOptions
from aiostream_data.executors.inline import InlineExecutor, outside_of_loops
from aiostream_data.interrupts import interrupts_after
from aiostream_data.plan.base import Node
from aiostream_data.plan.rewrite import with_inputs
from aiostream_data.plan.subprocess import InSubprocess


class SteppingEngine(Engine):
    """Engine that computes an element only when the consumer requests the element; see :class:`.engine.Engine`."""

    has_thread: ClassVar[bool] = False

    def __init__(self, plan: Node, options: EngineOptions) -> None:
        # Alarms are off: the consumer's own thread does the work and could not act on them.
        diagnosing = replace(options.run.diagnosing, stall_after_s=None, stage_timeout_s=None)
        run = replace(options.run, debug=True, diagnosing=diagnosing)
        super().__init__(_in_this_process(plan), replace(options, run=run, written=options.written or plan))

    def _start(self) -> None:
        self.thread = threading.current_thread()
        self.bridge: SteppedBridge = SteppedBridge(self.step)
        self._stepping = False
        try:
            with interrupts_after():
                stop_at_exit(self)
                self._begin_on(asyncio.new_event_loop())
                _running.add(self)
        except BaseException:  # Ctrl-C: no caller holds this engine to stop it
            self.stop_soon()
            raise

    def step(self) -> None:
        """Run the event loop until the next element or the end of the stream."""
        loop, main = self.loop, self._main
        if loop is None or main is None or loop.is_closed():
            return
        with interrupts_after():
            self.bridge.ask()
        self._run_some(loop, main)

    def _run_some(self, loop: asyncio.AbstractEventLoop, main: asyncio.Task[None]) -> None:
        try:
            self._run_until_stopped(loop, main)
        except BaseException as error:  # an interrupt: the run cannot continue
            self._wind_up(loop, main, error)
            raise
        if main.done():
            self._finish(loop, main, None)

    def _run_until_stopped(self, loop: asyncio.AbstractEventLoop, main: asyncio.Task[None]) -> None:
        self.thread = threading.current_thread()
        main.add_done_callback(_stop_loop)
        self._stepping = True
        try:
            with outside_of_loops(), interrupts_after(partial(_stop_soon, loop), self._is_in_function):
                loop.run_forever()
        finally:
            self._stepping = False
            main.remove_done_callback(_stop_loop)

    def _wind_up(self, loop: asyncio.AbstractEventLoop, main: asyncio.Task[None], error: BaseException) -> None:
        """End a run that ``error`` interrupted, within a bounded time.

        First run cleanup code on the event loop and executors.
        """
        self._stopping = True
        with outside_of_loops():
            self._cancel_main()
        while not (main.done() or self._stuck):
            with suppress(BaseException):  # every interrupted task stops the loop again with its error
                self._run_until_stopped(loop, main)
        self._finish(loop, main, error)

    def _finish(self, loop: asyncio.AbstractEventLoop, main: asyncio.Task[None], failure: BaseException | None) -> None:
        if main.done():
            ended_with = asyncio.CancelledError() if main.cancelled() else main.exception()
            failure = failure or ended_with
        _running.discard(self)
        with outside_of_loops(), interrupts_after():
            _let_stops_pass(loop)
            self._end(loop, failure)

    def _is_in_function(self) -> bool:
        return isinstance(self.resources.pool, InlineExecutor) and self.resources.pool.calling

    async def _until_asked(self) -> None:
        assert self.loop is not None
        await self.bridge.until_asked(self.loop)

    # -- called by the consumer

    def wait_ready(self) -> None:
        self.check_process()
        if not self._ready.happened and self.loop is not None and self._main is not None:
            self._run_some(self.loop, self._main)
        super().wait_ready()

    async def wait_ready_async(self) -> None:
        self.wait_ready()

    def stop_soon(self) -> None:
        """Stop the run before returning. If called during a step, only request the stop; the step then ends the run."""
        loop, main = self.loop, self._main
        if not self.is_here or self._stopping or loop is None or main is None or loop.is_closed():
            return
        self._stopping = True
        if self._stepping:
            loop.call_soon_threadsafe(self._cancel_main)
            return
        with outside_of_loops():
            self._cancel_main()
        self._run_some(loop, main)
        if not main.done():  # a coroutine ignores its cancellation
            self._finish(loop, main, asyncio.CancelledError())

    def stop(self) -> None:
        self.stop_soon()

    async def stop_async(self) -> None:
        self.stop_soon()


class SteppedBridge(Bridge):
    """Bridge between engine and consumer that delivers one element per request.

    Args:
        step: Function that runs the event loop until the next element or the end of the stream.
    """

    def __init__(self, step: Callable[[], None]) -> None:
        super().__init__(1)
        self._step = step
        self._asked: asyncio.Future[None] | None = None

    async def put(self, parcel: Parcel) -> None:
        self._waiting += len(parcel.elements)
        self._queue.put(parcel)
        await self.until_asked(asyncio.get_running_loop())

    async def until_asked(self, loop: asyncio.AbstractEventLoop) -> None:
        """Stop the event loop and wait for the next :meth:`ask`.

        Stopping the event loop returns control to the caller of the step.
        """
        self._asked = loop.create_future()
        loop.stop()
        await self._asked

    def ask(self) -> None:
        """Request the next element. Call between two steps."""
        asked, self._asked = self._asked, None
        if asked is not None and not asked.done():
            asked.set_result(None)

    def get(self) -> Parcel | Ending:
        if self._ending is None and self._queue.empty():
            self._step()
        return super().get()

    def get_within(self, timeout_s: float) -> Parcel | Ending:
        return self.get()

    async def get_async(self) -> Parcel | Ending:
        return self.get()

    def took(self, parcel: Parcel) -> None:
        self._waiting -= len(parcel.elements)

    async def until_all_taken(self) -> None:
        """Return immediately: the consumer receives each element before requesting the next one."""


def _stop_soon(loop: asyncio.AbstractEventLoop) -> None:
    loop.call_soon_threadsafe(loop.stop)  # the thread-safe call also wakes the loop


def _let_stops_pass(loop: asyncio.AbstractEventLoop) -> None:
    """Run the event loop's pending stop callbacks now. Otherwise a callback could stop a later run of the loop."""
    loop.call_soon(loop.stop)
    loop.run_forever()


def _stop_loop(main: asyncio.Task[None]) -> None:
    main.get_loop().stop()


def _in_this_process(node: Node) -> Node:
    """Remove ``in_subprocess()`` from the plan, so that all operators run in this process."""
    node = with_inputs(node, _in_this_process)
    return node.input if isinstance(node, InSubprocess) else node


_running: set[SteppingEngine] = set()
"""Stepping engines that are running.

This set keeps the engines alive, because a stepping engine has no thread that refers to it.
"""


def _keep_for_good() -> None:
    """In a forked child, leak the parent's engines, so that the child does not close their event loops.

    A normal engine leaks without this function, because its thread does not run in the child and the thread's stack
    keeps the engine alive.
    """
    if _running and sys.implementation.name == "cpython":
        import ctypes

        for engine in _running:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(engine))


if hasattr(os, "register_at_fork"):  # not on every platform
    os.register_at_fork(after_in_child=_keep_for_good)
