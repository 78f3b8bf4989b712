"""Engine of one loader: runs a private event loop on its own thread until the loader is closed."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from time import thread_time
from typing import Any, ClassVar

from aiostream_data._engine.at_exit import has_stopped, stop_at_exit
from aiostream_data._engine.compile import load_kinds
from aiostream_data._engine.consumer.bridge import Bridge
from aiostream_data._engine.diagnosis.watchdog import LOGGER, Alarm, Watchdog
from aiostream_data._engine.engine_options import EngineOptions
from aiostream_data._engine.engine_state import EngineState
from aiostream_data._engine.event_loop import CLOSE_S, close_loop, loop_maker
from aiostream_data._engine.failures.tracebacks import present
from aiostream_data._engine.flow.channel import InputFailed
from aiostream_data._engine.flow.context import RunContext, value_of
from aiostream_data._engine.flow.one_time_event import Announced
from aiostream_data._engine.flow.recall import in_epochs
from aiostream_data._engine.flow.root_cause import for_consumer, raise_as_it_is, root_error
from aiostream_data._engine.parcels import parcel_of
from aiostream_data._engine.prepare import prepare
from aiostream_data._engine.processes.process_manager import Hosting
from aiostream_data._engine.resources import Resources
from aiostream_data._engine.resume.epochs import first_epochs
from aiostream_data._engine.resume.lineage_reader import read_book
from aiostream_data._engine.resume.lineage_writer import ROWS
from aiostream_data._engine.resume.origins import Origins
from aiostream_data._engine.running import open_plan
from aiostream_data._engine.sources.listed_shards import ListedShards
from aiostream_data._engine.stages.prefetch import waiting_elements
from aiostream_data.errors import ForkedPipelineError, LoaderClosedError, StageTimeoutError
from aiostream_data.plan.base import Node, walk
from aiostream_data.plan.rewrite import rewrite
from aiostream_data.plan.subprocess import own_nbytes, places_of
from aiostream_data.plan.unshare import unshared
from aiostream_data.state_fields import naming


class Engine:
    """Engine that runs one plan from open to close, independent of the loader that reads the elements.

    Attributes:
        plan: Plan that the engine runs, after all rewrites.
        bridge: Queue through which the consumer receives elements.
        state: Origins of rows, and the positions from which the plan can be resumed.
        resources: Executors, stores, devices, memory budget, and stage counters.
        hosting: Worker processes that run parts of the plan; None without ``in_subprocess()``.
        thread, loop: Thread and event loop of the engine; ``loop`` is None until the thread has started.
        pid: ID of the process that created the engine.
        loop_cpu_s: CPU seconds that the event loop had used when it last passed elements to the consumer.
        has_thread: True if the engine runs on its own thread, False if the engine runs on the caller's thread.
    """

    has_thread: ClassVar[bool] = True

    def __init__(self, plan: Node, options: EngineOptions) -> None:
        self.plan = rewrite(unshared(plan))
        self.options = replace(options, written=options.written or plan)
        self.state = EngineState(self.plan, self.options)
        load_kinds(self.plan)
        self._check_schema()
        self.state.read_caches_first(first_epochs(self.plan, self.state.keys, self.options.epoch))
        run = replace(self.options.run, memory_limit=own_nbytes(self.plan, self.options.run.memory_limit))
        own = replace(self.options, run=run)
        self.resources = Resources(own)
        self.hosting = self.state.hosting = self._hosting()
        self.bridge = Bridge(waiting_elements(self.plan))
        self.bridge.on_wait = self.resources.budget.look_again
        self.resources.budget.consumer_waits = _weakly(self.bridge.consumer_has_nothing)
        self.pid = os.getpid()
        self._ready = Announced()
        self._done = Announced()
        self._open_error: BaseException | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self._main: asyncio.Task[None] | None = None
        self._stopping = False
        self._abandoning: asyncio.TimerHandle | None = None
        self._stuck = False
        self._closing = False
        self._watchdog: Watchdog | None = None
        self._failure: BaseException | None = None
        self.loop_cpu_s = 0.0
        self._start()

    def _check_schema(self) -> None:
        """Raise an error if the saved state is damaged, before any stage runs.

        A state that another pipeline saved is rejected later, with a list of the differences between the pipelines.
        """
        options, resuming = self.options, self.options.run.resuming
        if options.held_against is None:
            return
        from aiostream_data._engine.state_against_plan import check_state  # needed for resuming only

        for name, each in options.states():
            assert each.held_against is not None, "it is part of every state"
            exact = self.state.identity.agrees(each.held_against, resuming.force, resuming.allow)
            if exact is not None:
                with naming(name):
                    book = self.state.book if each is options else read_book(each.book, Origins())
                    self.state.keep_keys(each.held_against)
                    check_state(self.plan, each, book, exact, self.state.keys)

    def _start(self) -> None:
        """Start the engine's thread."""
        self._new_loop = loop_maker()
        self.thread = threading.Thread(target=self._run, name="aiostream-engine", daemon=True)
        self._watchdog = self._watchdog_if_wanted()
        try:
            self.thread.start()
        except BaseException:  # e.g. Ctrl-C: the thread may run already, and no caller holds this engine to stop it
            self.stop_soon()
            raise

    def _watchdog_if_wanted(self) -> Watchdog | None:
        wanted = self.options.run.diagnosing
        limits = (wanted.stall_after_s, self._tell_stall), (wanted.stage_timeout_s, self._give_up)
        alarms = [Alarm(after_s, go_off) for after_s, go_off in limits if after_s is not None]
        return Watchdog(alarms, lambda: self.bridge.consumer) if alarms else None

    def _tell_stall(self, waited_s: float) -> None:
        limit_s = self.options.run.diagnosing.stall_after_s
        logging.getLogger(LOGGER).warning(
            "no element for %.4g s (stall_after=%.4g)\n%s", waited_s, limit_s, self.dump()
        )

    def _give_up(self, waited_s: float) -> None:
        """End the run with a StageTimeoutError that names the blocking stage.

        The watchdog's thread calls this method when the consumer has waited too long.
        """
        limit_s = self.options.run.diagnosing.stage_timeout_s
        assert limit_s is not None
        stage, sentence = self._what_is_stuck()
        self._failure = StageTimeoutError(stage, waited_s, limit_s, sentence)
        logging.getLogger(LOGGER).warning(
            "no element for %.4g s (stage_timeout=%.4g)\n%s", waited_s, limit_s, self.dump()
        )
        self.bridge.end(self._failure, discard=True)  # directly from this thread: the loop may be blocked forever
        self.stop_soon()

    def _what_is_stuck(self) -> tuple[str, str]:
        from aiostream_data._engine.diagnosis.dump import stuck_of  # seldom needed

        return stuck_of(self)

    def _stop_watching(self) -> None:
        if self._watchdog is not None:
            self._watchdog.stop(CLOSE_S)
            self._watchdog = None

    def _hosting(self) -> Hosting | None:
        if not places_of(self.plan):
            return None
        # The weak reference avoids a cycle that would keep an unused engine alive.
        has_closed = partial(_has_stopped, weakref.ref(self))
        return Hosting(self.plan, self.options, self.state.origins, self.resources.budget, has_closed)

    # -- called by the consumer

    @property
    def is_here(self) -> bool:
        """True if the engine runs in this process.

        A forked child process has neither the threads nor the connections of the engine.
        """
        return os.getpid() == self.pid

    def check_process(self) -> None:
        """Raise ForkedPipelineError in a forked child, where the engine's threads do not exist."""
        if not self.is_here:
            raise ForkedPipelineError(
                "cannot use this loader: it was opened before os.fork(), and its threads do not exist in the child. "
                "Open the dataset in the child instead."
            )

    def wait_ready(self) -> None:
        """Block until all files are listed and all devices are open.

        Raise the error if listing files or opening a device failed.
        """
        self.check_process()
        if not self._ready.happened:
            with self.bridge.consumer_waits():
                self._ready.wait()
        if self._open_error is not None:
            raise self._open_error

    async def wait_ready_async(self) -> None:
        """Perform :meth:`wait_ready` without blocking the caller's event loop."""
        self.check_process()
        if not self._ready.happened:
            with self.bridge.consumer_waits():
                await self._ready.wait_async()
        self.wait_ready()

    def settle(self, elements: int) -> None:
        """Save the position after ``elements`` elements and the worker processes' statistics.

        Then release the worker processes.
        """
        if self.hosting is not None:
            self.hosting.hurry()
            self.state.keep_place(elements)
            self.stats_elsewhere()
            self.hosting.let_go()

    def stats_elsewhere(self) -> list[Mapping[str, Any]]:
        """Copy the stage counters of worker processes to the engine's counters.

        Return the statistics that the worker processes last reported.
        """
        if self.hosting is None:
            return []
        self.hosting.show(self.resources.board, {node: number for number, node in enumerate(walk(self.plan))})
        return self.hosting.last_stats

    def dump(self) -> str:
        """Describe the current activity of stages, functions, tasks, threads and processes. Safe from any thread."""
        from aiostream_data._engine.diagnosis.dump import dump_of  # seldom needed

        return dump_of(self)

    def stop_soon(self) -> None:
        """Request that all stages are cancelled; do not wait.

        The method is idempotent and can be called from any thread and from finalizers.
        """
        if not self.is_here or self._stopping:
            return
        self._stopping = True
        if self.hosting is not None:
            self.hosting.let_go()
        loop = self.loop
        if loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._cancel_main)

    def stop(self) -> None:
        """Stop the engine. Wait at most ``2 * CLOSE_S`` seconds for its thread, then for its worker processes.

        If a user function of this engine calls this method, return without waiting, because waiting would deadlock.
        """
        self.stop_soon()
        if self.is_here and threading.current_thread() not in (self.thread, *self.resources.workers.threads()):
            self.thread.join(2 * CLOSE_S)
            if self.hosting is not None:
                self.hosting.wait_closed(CLOSE_S)

    async def stop_async(self) -> None:
        """Perform :meth:`stop` without blocking the caller's event loop."""
        self.stop_soon()
        if self.is_here:
            await self._done.wait_async()
            self.stop()

    # -- on the engine's thread

    def _cancel_main(self) -> None:
        if self._main is not None and self.loop is not None:
            if not self._closing:  # do not interrupt the closing of stores
                self._main.cancel()
            self._abandoning = self.loop.call_later(CLOSE_S, self._abandon)

    def _abandon(self) -> None:
        """Stop the event loop without waiting for a cancelled user coroutine that is still running."""
        if self.loop is not None:
            self._stuck = True
            self.loop.stop()

    def _run(self) -> None:
        failure: BaseException | None = None
        loop: asyncio.AbstractEventLoop | None = None
        stop_at_exit(self)
        try:
            if self._watchdog is not None:
                self._watchdog.start()
            loop = self._new_loop()
            asyncio.set_event_loop(loop)
            self._begin_on(loop)
            assert self._main is not None
            loop.run_until_complete(self._main)
        except BaseException as error:  # noqa: BLE001 - handed to the consumer
            failure = error
        finally:
            self._end(loop, failure)
            failure = None  # its traceback refers to this frame
        if self._stuck:
            _warn_stuck()

    def _begin_on(self, loop: asyncio.AbstractEventLoop) -> None:
        self._main = loop.create_task(self._work())
        self.loop = loop
        if self._stopping:
            self._main.cancel()

    def _end(self, loop: asyncio.AbstractEventLoop | None, failure: BaseException | None) -> None:
        """Release all resources and send the ending (success or an error) to the consumer.

        The event loop has already stopped when this method is called.
        """
        error = self._error_of(failure)
        if self._abandoning is not None:  # otherwise this timer stops the loop during close_loop()
            self._abandoning.cancel()
        if not self._ready.happened:
            self._open_error = error
        try:
            # Executors first: their threads report to this loop.
            self._stuck = not self.resources.close_executors(CLOSE_S) or self._stuck
            if loop is not None:
                close_loop(loop, of_thread=self.has_thread)
        finally:
            self.resources.drop_blocks()
            self._stop_watching()
            self.bridge.end(error, discard=isinstance(failure, asyncio.CancelledError))
            self._ready.announce()
            if self.hosting is None:
                has_stopped(self)
            else:
                self.hosting.engine_ended()
            self._done.announce()

    def _error_of(self, failure: BaseException | None) -> BaseException | None:
        """Return the error that the consumer receives when the run has failed."""
        if failure is None:
            return None
        if isinstance(failure, asyncio.CancelledError):
            if self._failure is not None:
                return self._failure
            return LoaderClosedError("the loader was stopped before it returned all elements. Open the dataset again.")
        error = for_consumer(failure)
        with suppress(Exception):  # if present() fails, deliver the error unchanged
            present(error, full=self.options.run.failing.full_tracebacks)
        return error

    async def _until_asked(self) -> None:
        """Wait until the consumer requests an element.

        The default engine reads ahead, so this method returns immediately.
        """

    async def _work(self) -> None:
        resources = self.resources
        context = resources.context(self.plan, self.state)
        try:
            await prepare(self.plan, context)
            await self._check_state(context)
            self._ready.announce()
            await self._until_asked()
            if self.options.fetch:
                await self._give_fetched(context)
            else:
                await self._give_all(context)
        finally:
            self._closing = True
            await resources.aclose()

    async def _give_fetched(self, context: RunContext) -> None:
        from aiostream_data._engine.sources.fetched_shards import find_fetched_shard  # seldom needed

        rows = self.state.book.rows({ROWS: 0})
        find_fetched_shard(self.plan, context, rows, self.options.fetched_from)
        try:
            fetched = await in_epochs(rows, self.plan, context)
        except BaseExceptionGroup as failures:  # stages recall the parts of a row concurrently
            raise_as_it_is(root_error(failures) or failures)
        await self.bridge.put(await parcel_of(fetched, self.resources.pool, self.resources.blocks))

    async def _give_all(self, context: RunContext) -> None:
        pool = self.resources.pool
        known = pool.submit(self.state.identity.stored)  # computed early for the first state_dict()
        async with open_plan(context, self.plan, self.options.state) as receiver:
            self.state.position = receiver.position
            rows = 0
            try:
                async for chunk in receiver:
                    rows += len(chunk)
                    self.loop_cpu_s = thread_time()
                    await self.bridge.put(await parcel_of(chunk, pool, self.resources.blocks))
                    del chunk
                    self.resources.look_after_memory()
            except InputFailed:
                await self._until_slots_are_free()
                raise
            receiver.check(rows)
            await known
            await self._until_slots_are_free()

    async def _until_slots_are_free(self) -> None:
        """With devices, wait until the consumer has taken every batch: closing a device frees the memory of batches."""
        if self.resources.devices:
            await self.bridge.until_all_taken()

    async def _check_state(self, context: RunContext) -> None:
        identity, options = self.state.identity, self.options
        identity.found_shards(context.services.features.of(ListedShards).resolved, context.keys)
        for name, each in options.states() if options.held_against is not None else ():
            check = (each.held_against, options.given_seed, options.run.resuming.force, options.run.resuming.allow)
            with naming(name):
                value_of(await self.resources.pool.submit(identity.check, *check))
        if options.held_against is not None:
            await self._take_over_shards(context)

    async def _take_over_shards(self, context: RunContext) -> None:
        """Resume with the current list of shards, which can differ from the list in the saved state."""
        from aiostream_data._engine.changed_shards import ChangedShards  # needed for resuming only

        shards = value_of(await self.resources.pool.submit(ChangedShards, self.plan, context, self.options, self.state))
        listed = context.services.features.of(ListedShards)
        listed.numbers.update(shards.numbers)
        listed.gained.update(shards.gained)
        self.state.identity.numbered_shards(shards.numbers)


def _has_stopped(engine: weakref.ref[Engine]) -> None:
    stopped = engine()
    if stopped is not None:
        has_stopped(stopped)


def _weakly(question: Callable[[], bool]) -> Callable[[], bool]:
    """Wrap a bound method without keeping the method's object alive.

    After the object has been deleted, the wrapper returns True.
    """
    method = weakref.WeakMethod(question)

    def asked() -> bool:
        ask = method()
        return ask is None or ask()

    return asked


def _warn_stuck() -> None:
    warnings.warn(
        f"cannot end a thread: a function of the pipeline is still running {CLOSE_S:g} s after the loader was closed. "
        "The thread runs until the function returns. Set a timeout inside the function.",
        ResourceWarning,
        stacklevel=2,
    )
