"""Engine of a worker process: runs the part of a plan before ``in_subprocess()`` and sends the resulting chunks.

How this works. The parent process opens the loader and sends an :class:`.Errand`, which describes the work of the
worker process. Each ``begin`` message from the parent then starts a run of one epoch, from the given state. A run is a
task on the worker process's event loop. The run sends chunks while the unacknowledged bytes stay within a limit (the
window). The parent acknowledges chunks with ``taken`` messages. The main thread of the worker answers queries about
positions, split names and counters, even while user functions run. The worker process ends when the connection closes.

Messages from the parent process:

- ``begin``, run, epoch, state: start a run of one epoch from a saved state.
- ``taken``, run, nbytes, chunks: acknowledge received chunks of a run.
- ``stop``, run: cancel a run.
- ``forget``, run, rows: discard the history of a run before row ``rows``.
- ``drop``, run: delete a run and its complete history.
- ``ask``, number, question and arguments: send a query with a number.

Messages to the parent process:

- ``chunk``, run, :class:`.Handed`, namespaces: one chunk, and the namespaces opened since the previous chunk.
- ``drained``, run: the sources of the run have read their last row.
- ``end``, run, rows: the run is complete; ``rows`` is the number of rows sent.
- ``failed``, run, failure: an error ended the run.
- ``answer``, number, value or failure: the answer to the query with this number.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from time import perf_counter, process_time, thread_time
from typing import Any

from aiostream_data._engine.engine_options import EngineOptions
from aiostream_data._engine.engine_state import EngineState
from aiostream_data._engine.event_loop import CLOSE_S, close_loop, loop_maker
from aiostream_data._engine.failures.carried_error import CarriedError
from aiostream_data._engine.failures.tracebacks import present
from aiostream_data._engine.flow.context import RunContext, value_of
from aiostream_data._engine.flow.drained import Drained
from aiostream_data._engine.flow.sizes import chunk_nbytes
from aiostream_data._engine.processes.chunk_transfer import handed
from aiostream_data._engine.processes.job import Errand, caches_of, file_sources
from aiostream_data._engine.processes.namespace_map import spaces_since
from aiostream_data._engine.resources import Resources
from aiostream_data._engine.resume.lineage_writer import BookWriter, Spaces
from aiostream_data._engine.resume.position import Position, State
from aiostream_data._engine.running import position_of
from aiostream_data._engine.sources.listed_shards import ListedShards
from aiostream_data._engine.stages.caching.shared_caches import SharedCaches
from aiostream_data._native import Charge
from aiostream_data.executors.child_main import also_told
from aiostream_data.executors.exchange import Exchange
from aiostream_data.executors.failure import Failure
from aiostream_data.executors.thread import ThreadExecutor
from aiostream_data.plan.base import keys_again, walk
from aiostream_data.plan.mixing import Mix
from aiostream_data.rows.records import Chunk, Items
from aiostream_data.weights import Vector

MAX_CHUNKS = 16
"""Maximum number of chunks of one run that the parent has not acknowledged, for chunks of any size."""


def serve(exchange: Exchange) -> None:
    """Serve the requests of the parent process until the connection closes.

    This function runs in the worker process.
    """
    engine: HostedEngine | None = None
    try:
        engine = HostedEngine(exchange.receive().message, exchange)
        while True:
            engine.hear(*exchange.receive().message)
    except EOFError:
        return
    except BaseException as error:  # noqa: BLE001 - raised to the waiter
        with suppress(EOFError):
            exchange.send(("refused", Failure(error)))
    finally:
        if engine is not None:
            engine.stop()


class Run:
    """One run of the plan in a worker process, shared by the run's task and the main thread.

    Attributes:
        position: Current position of the run; None until the run has started.
    """

    def __init__(self, window_nbytes: int) -> None:
        self.position: Position | None = None
        self.task: asyncio.Task[None] | None = None
        self._window_nbytes = window_nbytes
        self._nbytes = 0
        self._chunks = 0
        self._waiter: asyncio.Future[None] | None = None

    async def room_for(self, nbytes: int) -> None:
        """Wait until the window (limit of unacknowledged bytes) has room for a chunk, then count the chunk as sent.

        A chunk larger than the window is sent when no other chunk is unacknowledged.
        """
        while self._chunks and (self._nbytes + nbytes > self._window_nbytes or self._chunks >= MAX_CHUNKS):
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        self._nbytes += nbytes
        self._chunks += 1

    def taken(self, nbytes: int, chunks: int) -> None:
        """Record that the parent process has received ``chunks`` chunks of ``nbytes`` bytes. Call on the loop."""
        self._nbytes -= nbytes
        self._chunks -= chunks
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def stop(self) -> None:
        """Cancel the run. Call on the loop."""
        if self.task is not None:
            self.task.cancel()


_CLOCKS = ("seconds", "cpu_s", "loop_cpu_s")
"""Names of the clocks in statistics: wall time, CPU time of this process, and CPU time of its event loop."""

_NOT_BEGUN = (0.0, 0.0, 0.0)


def _clocks() -> tuple[float, float, float]:
    """Read all clocks.

    Call this function on the event loop, because it measures the CPU time of the event loop's thread.
    """
    return perf_counter(), process_time(), thread_time()


class HostedEngine:
    """Engine that runs the plan of an errand once per ``begin`` message, on its own thread and event loop."""

    def __init__(self, errand: Errand, exchange: Exchange) -> None:
        options = EngineOptions(
            run=errand.run,
            root_seed=errand.root_seed,
            book=errand.book,
            weights=errand.weights,
            caches=errand.caches,
            written=errand.plan,
        )
        self._errand = errand
        self._exchange = exchange
        self._keys = keys_again(errand.plan, errand.keys)
        self._state = EngineState(errand.plan, options)
        self._resources = Resources(options)
        self._spaces = Spaces(self._state.origins, errand.first_code)
        self._told = 1  # number of the first namespace not yet sent to the parent process
        self._runs: dict[int, Run] = {}
        self._began = self._last_sent = _NOT_BEGUN
        self._loop = loop_maker()()
        self._stopped = asyncio.Event()
        self._context = self._whole_context()
        self._sender = ThreadExecutor(1, "asd-hand-over")  # one thread, so that chunks keep their order
        self._thread = threading.Thread(target=self._run, name="aiostream-engine", daemon=True)
        self._thread.start()
        also_told.append(self._told_of_stages)

    def _told_of_stages(self) -> str:
        from aiostream_data._engine.diagnosis.dump import stages_text  # seldom needed

        return stages_text(self._resources)

    # -- on the main thread

    def hear(self, kind: str, *args: Any) -> None:
        """Handle one message from the parent process."""
        if kind == "begin":
            number, epoch, state = args
            self._runs[number] = Run(self._errand.window_nbytes)
            self._on_loop(self._begin, number, epoch, state)
        elif kind == "taken":
            self._on_loop(self._runs[args[0]].taken, *args[1:])
        elif kind == "stop":
            self._on_loop(self._runs[args[0]].stop)
        elif kind == "forget":
            position = self._runs[args[0]].position
            if position is not None:
                position.forget(args[1])
        elif kind == "drop":
            del self._runs[args[0]]
        else:
            assert kind == "ask", kind
            self._answer(*args)

    def _on_loop(self, function: Any, *args: Any) -> None:
        self._loop.call_soon_threadsafe(function, *args)

    def _answer(self, number: int, question: str, *args: Any) -> None:
        try:
            answer: Any = getattr(self, f"_say_{question}")(*args)
        except BaseException as error:  # noqa: BLE001 - sent to the caller
            answer = Failure(error)
        self._exchange.send(("answer", number, answer))

    def _say_place(self, run: int, rows: int) -> dict[str, Any]:
        """Return the parts of a saved state that describe the position after the first ``rows`` rows of a run."""
        position = self._runs[run].position
        assert position is not None, "nobody asks for rows that were not given"
        book = BookWriter(self._spaces)
        state = position.at(rows, book)
        caches = [(key, epoch) for (path, key), epoch in self._state.cached_epochs.copy().items() if path == 0]
        return {
            "position": state,
            "rows": book.contents(),
            "row_checks": book.checks,
            "caches": caches,
            "weights": self._state.weights.state(),
        }

    def _say_weights(self) -> dict[str, Any] | None:
        return self._state.weights.state(from_the_beginning=True)

    def _say_set_weights(self, mixture: int, weights: Vector, from_row: int | None) -> int:
        """Change the weights of the mixture with this key; see :meth:`.WeightChanges.set`."""
        meant = next(node for node in walk(self._errand.plan) if isinstance(node, Mix) and self._keys[node] == mixture)
        return self._state.weights.set(mixture, meant.schedule, weights, from_row)

    def _say_url(self, place: int, split: int) -> str:
        return self._state.origins.namespace(place).url_of(split)

    def _say_locate(self, place: int, splits: Any, ordinals: Any) -> list[Any]:
        locate = self._state.origins.namespace(place).locate
        return [] if locate is None else list(locate(splits, ordinals))

    def _say_stats(self) -> dict[str, Any]:
        budget = self._resources.budget
        return {
            "stages": self._resources.board.items(),
            "storage": self._resources.storage_counters(),
            "memory": (budget.used, budget.peak, budget.wait_s),
            "holders": self._resources.holders(),
            **{name: last - first for name, first, last in zip(_CLOCKS, self._began, self._last_sent, strict=True)},
        }

    def stop(self) -> None:
        """Cancel all runs and wait a limited time for the end of the engine's thread."""
        with suppress(RuntimeError):  # the loop is closed
            self._on_loop(self._stopped.set)
        self._thread.join(2 * CLOSE_S)

    # -- on the engine's thread

    def _run(self) -> None:
        loop = self._loop
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(self._work())
        finally:
            self._resources.close_executors(CLOSE_S)
            self._sender.close(0.0)
            close_loop(loop)
            self._resources.drop_blocks()

    async def _work(self) -> None:
        try:
            await self._stopped.wait()
        finally:
            running = [run.task for run in self._runs.values() if run.task is not None]
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            await self._resources.aclose()

    def _whole_context(self) -> RunContext:
        errand = self._errand
        context = replace(self._resources.context(errand.plan, self._state), keys=self._keys)
        features = context.services.features
        listed = features.of(ListedShards)
        listed.resolved.update(
            (node, found)
            for node, found in zip(file_sources(errand.plan), errand.resolved, strict=True)
            if found is not None
        )
        listed.numbers.update(errand.shard_numbers)
        listed.gained.update(errand.gained)
        caches = zip(caches_of(errand.plan), errand.shared_caches, strict=True)
        features.put(SharedCaches(node.token for node, is_shared in caches if is_shared))
        return context

    def _begin(self, number: int, epoch: int, state: State) -> None:
        if self._began == _NOT_BEGUN:
            self._began = self._last_sent = _clocks()
        context = replace(self._context, epoch=epoch, drained=Drained())
        run = self._runs[number]
        run.task = self._loop.create_task(self._give(number, run, context, state))

    async def _give(self, number: int, run: Run, context: RunContext, state: State) -> None:
        try:
            rows = await self._give_all(number, run, context, state)
            await self._send("end", number, rows)
        except EOFError:
            return  # the parent process has ended
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - sent to the reader of the run
            root = error.error if isinstance(error, CarriedError) else error
            present(root, full=self._errand.run.failing.full_tracebacks)
            with suppress(EOFError):
                await self._send("failed", number, Failure(root))

    async def _give_all(self, number: int, run: Run, context: RunContext, state: State) -> int:
        rows = 0
        async with context.open(self._errand.plan, state) as receiver:
            run.position = position_of(receiver)
            telling = asyncio.ensure_future(self._tell_drained(number, context.drained))
            try:
                async for chunk in receiver:
                    rows += len(chunk)
                    self._last_sent = _clocks()
                    for part, nbytes in _parts_of(chunk, self._errand.window_nbytes):
                        await run.room_for(nbytes)
                        value_of(await self._sender.submit(self._send_chunk, number, part, nbytes))
                        del part
                    del chunk
                    self._resources.look_after_memory()
                receiver.check(rows)
            finally:
                telling.cancel()
        return rows

    async def _tell_drained(self, number: int, drained: Drained) -> None:
        await drained.wait()
        with suppress(EOFError):
            await self._send("drained", number)

    async def _send(self, *message: Any) -> None:
        value_of(await self._sender.submit(self._exchange.send, message))

    def _send_chunk(self, number: int, chunk: Chunk, nbytes: int) -> None:
        spaces = spaces_since(self._state.origins, self._told)
        if spaces:
            self._told = spaces[-1].place + 1
        rows, beside = handed(chunk, nbytes)
        self._exchange.send(("chunk", number, rows, spaces), beside)


def _parts_of(chunk: Chunk, max_nbytes: int) -> Iterator[tuple[Chunk, int]]:
    """Split a chunk into parts of at most ``max_nbytes`` bytes or one row; yield each part with its size."""
    nbytes = chunk.lease.nbytes if isinstance(chunk, Items) and isinstance(chunk.lease, Charge) else chunk_nbytes(chunk)
    if nbytes <= max_nbytes or len(chunk) == 1:
        yield chunk, nbytes
        return
    rows = max(1, len(chunk) * max_nbytes // nbytes)
    for start in range(0, len(chunk), rows):
        part = chunk.slice(start, min(start + rows, len(chunk)))
        yield part, chunk_nbytes(part)
