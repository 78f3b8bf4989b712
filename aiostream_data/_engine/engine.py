"""The engine of one loader: a private event loop on its own thread, and everything that lives on it."""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import secrets
import threading
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from aiostream_data._engine.bridge import Bridge, Parcel, resolve
from aiostream_data._engine.budget import Budget, Charge
from aiostream_data._engine.buffers import BlockPool
from aiostream_data._engine.context import Board, Drained, RunContext, Services, value_of
from aiostream_data._engine.failures import for_consumer
from aiostream_data._engine.identity import Identity
from aiostream_data._engine.origin_of import origins_of
from aiostream_data._engine.origins import Origins
from aiostream_data._engine.pacing import cpu_count
from aiostream_data._engine.position import Position, State
from aiostream_data._engine.prepare import prepare
from aiostream_data._engine.running import open_plan, recall
from aiostream_data._engine.sizes import chunk_nbytes
from aiostream_data._engine.state_book import read_book
from aiostream_data._engine.state_writer import ROWS, BookWriter, Spaces
from aiostream_data._engine.weight_changes import WeightChanges
from aiostream_data._engine.workers import Workers
from aiostream_data.device.stage import DeviceStage
from aiostream_data.errors import ForkedPipelineError, LoaderClosedError, StateMismatchError
from aiostream_data.executors.thread import ThreadExecutor
from aiostream_data.lineage import Ids, MadeOf
from aiostream_data.plan.base import Node, keys_of, walk
from aiostream_data.plan.mixing import mixture_meant
from aiostream_data.plan.operators import Cache, CacheToken, Prefetch, ToDevice
from aiostream_data.plan.rewrite import rewrite
from aiostream_data.plan.unshare import unshared
from aiostream_data.provenance import Origin
from aiostream_data.records import Chunk, Items
from aiostream_data.storage.stores import StoreSet
from aiostream_data.weights import Weights, vector_of

CLOSE_S = 2.0
"""Seconds within which a closed loader has stopped everything it can stop."""

LEFTOVERS_S = 0.5
"""Seconds for tasks that nobody awaits, such as those of a client library, to end after their cancellation."""

READER_THREADS = 4
"""Threads for blocking reads of local files and of stores without an asynchronous client."""

IDLE_NBYTES = 32 << 20
"""Most bytes of blocks that were read into and wait to be read into again; at most 1/32 of the limit."""

PARCEL_ELEMENTS = 2
"""Elements that wait for the consumer where the plan does not end in prefetch()."""


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """How a plan is run.

    Attributes:
        memory_limit: Bytes of the budget.
        epoch: Number of the first epoch, for seeds.
        root_seed: Seed of everything that was given none; drawn at random when None.
        state: Where the plan goes on; None at the beginning.
        book: Rows that the state mentions.
        weights: Weights of mixtures that were changed before the state was taken.
        caches: In which repetition the rows of caches were read first.
        written: The plan as the user wrote it, if it is not the one to be run.
        world_size: Number of ranks that share the rows.
        held_against: What a state says of the plan that it was taken of.
        given_seed: The seed asked for besides that of a state.
        force, allow: Which differences between the two do not matter.
        fetch: Only the rows of ``book`` are made, as rows of the plan, in the order of its first entry.
    """

    memory_limit: int
    epoch: int = 0
    root_seed: int | None = None
    state: State = None
    book: Any = None
    weights: Any = None
    caches: Any = None
    written: Node | None = None
    world_size: int = 1
    held_against: Mapping[str, Any] | None = None
    given_seed: int | None = None
    force: bool = False
    allow: Collection[str] = ()
    fetch: bool = False


class Engine:
    """Runs one plan from open to close. Knows nothing of the loader that reads it.

    Attributes:
        bridge: Where the consumer gets parcels.
        budget, board: For statistics.
    """

    def __init__(self, plan: Node, options: EngineOptions) -> None:
        self.plan = rewrite(unshared(plan))
        self.options = options
        self.root_seed = options.root_seed if options.root_seed is not None else secrets.randbits(62)
        self.bridge = Bridge(_waiting_elements(self.plan))
        self.budget = Budget(options.memory_limit)
        self._blocks = BlockPool(min(IDLE_NBYTES, options.memory_limit // 32))
        self.board = Board()
        self.origins = Origins()
        self._first_state = options.state
        self._book = read_book(options.book, self.origins)
        self._weights = WeightChanges(options.weights)
        self._identity = Identity(options.written or plan, options.world_size)
        self._spaces = Spaces(self.origins)
        self._cached_epochs = _cached_epochs(options.caches)
        self._position: Position | None = None
        self.pid = os.getpid()
        self.stores: dict[str, StoreSet] = {}
        self.devices: dict[Node, DeviceStage] = {}
        self._pool = ThreadExecutor(cpu_count(), "asd-pool")
        self._workers = Workers(self._pool)
        # Apart from the pool: threads that wait for a slow disk must not keep decoding waiting.
        self._readers = self._workers.at("readers", lambda: ThreadExecutor(READER_THREADS, "asd-read"))
        self._ready = threading.Event()
        self._done = threading.Event()
        self._callbacks: list[Callable[[], None]] = []
        self._callback_lock = threading.Lock()
        self._open_error: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._main: asyncio.Task[None] | None = None
        self._stopping = False
        self._abandoning: asyncio.TimerHandle | None = None
        self._stuck = False
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="aiostream-engine", daemon=True)
        _live.add(self)
        self._thread.start()

    # -- called by the consumer

    def place(self, elements: int) -> dict[str, Any]:
        """Return where the plan goes on after this run's first ``elements`` elements: parts of what is saved."""
        if elements == 0 or self._position is None:
            return {"position": self._first_state, "rows": self.options.book, "row_checks": None, **self._besides()}
        book = BookWriter(self._spaces)
        position = self._position.at(elements, book)
        return {"position": position, "rows": book.contents(), "row_checks": book.checks, **self._besides()}

    def _besides(self) -> dict[str, Any]:
        caches = [[key, epoch] for (path, key), epoch in self._cached_epochs.copy().items() if path == 0]
        return {"weights": self._weights.state(), "caches": caches or None}

    def origins_of(self, own: Ids, made_of: MadeOf | None) -> list[Origin]:
        """Return where the rows of an element came from."""
        return origins_of(own, made_of, self.origins, self.root_seed)

    def identity(self) -> dict[str, Any]:
        """Return what a state keeps to tell whether it is opened with the same data set."""
        return self._identity.stored()

    def forget(self, elements: int) -> None:
        """Hear that nobody will ask for a place before ``elements`` elements any more."""
        if elements and self._position is not None:
            self._position.forget(elements)

    def set_weights(self, weights: Weights, from_row: int | None) -> int:
        """Change the weights of the mixture that is meant; see :meth:`aiostream_data.Loader.set_weights`."""
        mixture = mixture_meant(self.plan, weights)
        vector = vector_of(weights, mixture.schedule.names)
        return self._weights.set(keys_of(self.plan)[mixture], mixture.schedule, vector, from_row)

    def weights_so_far(self) -> Any:
        """Return every change of weights since the engine began, for whoever reads the same rows again."""
        return self._weights.state(from_the_beginning=True)

    def check_process(self) -> None:
        """Raise ForkedPipelineError in a forked child: none of the engine's threads came along."""
        if os.getpid() != self.pid:
            raise ForkedPipelineError(
                "this loader was opened before os.fork(), and its threads do not exist in the child; "
                "open the data set in the child instead"
            )

    def wait_ready(self) -> None:
        """Block until the sources were found and the stages started; raise what prevented it."""
        self._ready.wait()
        if self._open_error is not None:
            raise self._open_error

    async def wait_ready_async(self) -> None:
        """Like :meth:`wait_ready`, awaited on the caller's loop."""
        await self._on_caller_loop(self._ready)
        self.wait_ready()

    def stop_soon(self) -> None:
        """Ask everything to stop, without waiting. Idempotent; callable from any thread and finalizers."""
        if os.getpid() != self.pid or self._stopping:
            return
        self._stopping = True
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # already over
                loop.call_soon_threadsafe(self._cancel_main)

    def stop(self) -> None:
        """Stop, and wait until all is over, at most a little longer than ``CLOSE_S``."""
        self.stop_soon()
        if os.getpid() == self.pid and threading.current_thread() is not self._thread:
            self._thread.join(2 * CLOSE_S)

    async def stop_async(self) -> None:
        """Like :meth:`stop`, awaited on the caller's loop."""
        self.stop_soon()
        await self._on_caller_loop(self._done)
        self.stop()

    async def _on_caller_loop(self, event: threading.Event) -> None:
        while not event.is_set():  # callbacks are called for either event
            await self._until_next_event(event)

    async def _until_next_event(self, event: threading.Event) -> None:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            with suppress(RuntimeError):  # the caller's loop is closed
                loop.call_soon_threadsafe(resolve, future)

        with self._callback_lock:
            if event.is_set():
                return
            self._callbacks.append(wake)
        await future

    def _announce(self, event: threading.Event) -> None:
        with self._callback_lock:
            event.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    # -- on the engine's thread

    def _cancel_main(self) -> None:
        if self._main is not None and self._loop is not None:
            if not self._closing:  # what closes the stores must not be cut short
                self._main.cancel()
            self._abandoning = self._loop.call_later(CLOSE_S, self._abandon)

    def _abandon(self) -> None:
        """Leave behind a user's coroutine that does not end although it was cancelled."""
        if self._loop is not None:
            self._stuck = True
            self._loop.stop()

    def _run(self) -> None:
        error: BaseException | None = None
        loop = _new_loop()
        try:
            asyncio.set_event_loop(loop)
            self._main = loop.create_task(self._work())
            self._loop = loop
            if self._stopping:
                self._main.cancel()
            loop.run_until_complete(self._main)
        except asyncio.CancelledError:
            error = LoaderClosedError("the loader was stopped before it had given all its elements")
        except BaseException as failure:  # noqa: BLE001 - handed to the consumer
            error = for_consumer(failure)
        finally:
            if self._abandoning is not None:  # or it would stop the loop while that is being closed
                self._abandoning.cancel()
            if not self._ready.is_set():
                self._open_error = error
            try:
                # Executors first: their threads report to this loop.
                self._stuck = not self._workers.close(CLOSE_S) or self._stuck
                self._close_loop(loop)
            finally:
                self._blocks.close()
                self.bridge.end(error)
                self._announce(self._ready)
                self._announce(self._done)
                _live.discard(self)
            if self._stuck:
                _warn_stuck()

    async def _work(self) -> None:
        pool = self._pool
        context = self._context(pool)
        try:
            await prepare(self.plan, context)
            await self._check_state(context)
            self._announce(self._ready)
            if self.options.fetch:
                fetched = await recall(context, self.plan, self._book.rows({ROWS: 0}))
                await self.bridge.put(await _parcel(fetched, pool))
                return
            known = pool.submit(self._identity.stored)  # so that it is there when a state is first taken
            async with open_plan(context, self.plan, self._first_state) as receiver:
                self._position = receiver.position
                rows = 0
                async for chunk in receiver:
                    rows += len(chunk)
                    await self.bridge.put(await _parcel(chunk, pool))
                    del chunk
                receiver.check(rows)
                await known
                if self.devices:  # their slots must outlive the batches that the consumer has not taken out
                    await self.bridge.until_all_taken()
        finally:
            self._closing = True
            await self._close_services()

    async def _check_state(self, context: RunContext) -> None:
        self._identity.found_shards(context.services.resolved, context.keys)
        options = self.options
        if options.held_against is not None:
            check = (options.held_against, options.given_seed, options.force, options.allow)
            value_of(await self._pool.submit(self._identity.check, *check))

    def _context(self, pool: ThreadExecutor) -> RunContext:
        services = Services(
            pool=pool,
            budget=self.budget,
            blocks=self._blocks,
            origins=self.origins,
            board=self.board,
            root_seed=self.root_seed,
            cpus=cpu_count(),
            stores=self._stores,
            workers=self._workers,
            open_plan=open_plan,
            recall=recall,
            book=self._book,
            weights=self._weights,
            shared_caches=_shared_caches(self.plan),
            cached_epochs=self._cached_epochs,
            devices=self.devices,
        )
        return RunContext(
            services=services,
            epoch=self.options.epoch,
            path=0,
            numbers={node: number for number, node in enumerate(walk(self.plan))},
            keys=keys_of(self.plan),
            drained=Drained(),
        )

    def _stores(self, options: Mapping[str, Any]) -> StoreSet:
        key = json.dumps(options, sort_keys=True, default=id)
        if key not in self.stores:

            async def run_blocking(function: Callable[..., Any], *args: Any) -> Any:
                return value_of(await self._readers.submit(function, *args))

            self.stores[key] = StoreSet(options, run_blocking)
        return self.stores[key]

    async def _close_services(self) -> None:
        for device in self.devices.values():
            device.close()
        failures = [
            result
            for result in await asyncio.gather(
                *(stores.aclose() for stores in self.stores.values()), return_exceptions=True
            )
            if isinstance(result, Exception)
        ]
        if failures:
            raise ExceptionGroup("closing the stores failed", failures)

    def _close_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        leftovers = asyncio.all_tasks(loop)
        for task in leftovers:
            task.cancel()

        async def finish() -> None:
            if leftovers:
                await asyncio.wait(leftovers, timeout=LEFTOVERS_S)
            await loop.shutdown_asyncgens()
            await asyncio.wait_for(loop.shutdown_default_executor(), CLOSE_S)

        try:
            loop.run_until_complete(finish())
        except TimeoutError:
            pass  # a name look-up of a store that hangs; its thread ends with the look-up
        finally:
            asyncio.set_event_loop(None)
            loop.close()


def _shared_caches(plan: Node) -> frozenset[CacheToken]:
    places = {node for node in walk(plan) if isinstance(node, Cache)}
    counts = Counter(node.token for node in places)
    return frozenset(token for token, count in counts.items() if count > 1)


def _cached_epochs(saved: Any) -> dict[tuple[int, int], int]:
    try:
        return {(0, int(key)): int(epoch) for key, epoch in saved or ()}
    except (TypeError, ValueError) as error:
        raise StateMismatchError([f"what it says of caches is damaged: {error}"]) from None


def _waiting_elements(plan: Node) -> int:
    node = plan.input if isinstance(plan, ToDevice) else plan
    if isinstance(node, Prefetch) and isinstance(node.buffer_size, int):
        return max(1, node.buffer_size)
    return PARCEL_ELEMENTS


async def _parcel(chunk: Chunk, pool: ThreadExecutor) -> Parcel:
    if isinstance(chunk, Items):
        nbytes = chunk.lease.nbytes if isinstance(chunk.lease, Charge) else chunk_nbytes(chunk)
        return Parcel(chunk.values, chunk.ids, chunk.made_of or chunk.ids, nbytes, chunk.lease, chunk.runs)
    elements = value_of(await pool.submit(chunk.elements))
    return Parcel(elements, chunk.ids, chunk.made_of or chunk.ids, chunk.nbytes, chunk.lease)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def _warn_stuck() -> None:
    warnings.warn(
        f"a function of the pipeline is still running {CLOSE_S:g} s after the loader was closed; Python cannot "
        "stop it, so its thread is left behind until it returns",
        ResourceWarning,
        stacklevel=2,
    )


_live: weakref.WeakSet[Engine] = weakref.WeakSet()


def _stop_all() -> None:
    """Stop what is still open when the interpreter exits."""
    engines = [engine for engine in list(_live) if engine.pid == os.getpid()]
    for engine in engines:
        engine.stop_soon()
    for engine in engines:
        engine.stop()


atexit.register(_stop_all)
