"""Inlets and outlets: receiving and sending ends of channels that count rows and bytes for the memory budget."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter, thread_time
from types import TracebackType
from typing import Any, Self

from aiostream_data._engine.failures.carried_error import PartlyDone, as_raisable
from aiostream_data._engine.flow.channel import ChannelSnapshot, ChannelWaits, EndOfStream, Receiver, Sender
from aiostream_data._engine.flow.context import settle, value_of
from aiostream_data._engine.flow.fused_steps import Joined, Step, Tail
from aiostream_data._engine.flow.sizes import chunk_nbytes
from aiostream_data._engine.memory.budget import Budget
from aiostream_data._engine.resume.damaged_state import resuming
from aiostream_data._engine.resume.lineage_reader import TABLE
from aiostream_data._native import Charge
from aiostream_data.executors.base import Executor, Outcome
from aiostream_data.metrics.counters import StageCounters
from aiostream_data.rows.records import Chunk


class Inlet:
    """Receiving end of a stage's channel; iterate over it to get chunks.

    Args:
        gate: Coroutine function that is awaited before each chunk and waits while the memory budget is full.

    Attributes:
        rows: Number of rows received.
        held: Number of rows that the stage recomputed from a saved state; ``rows`` does not include these rows.
    """

    def __init__(
        self,
        receiver: Receiver[Chunk],
        counters: StageCounters,
        gate: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._receiver = receiver
        self._counters = counters
        self._gate = gate
        self.rows = 0
        self.held = 0
        receiver.counters = counters

    @property
    def ready(self) -> bool:
        """True if :meth:`receive` would return without waiting."""
        return self._receiver.ready

    def ask(self) -> None:
        """Ask for the next chunk without waiting for it. Start the run that sends to this inlet, if it has not started.

        A run of a small mixture starts at once, and works ahead without being asked.
        """
        begin, self._receiver.begin = self._receiver.begin, None
        if begin is not None:
            begin()
        self._receiver.ask()

    @property
    def chunk_nbytes(self) -> int:
        """Size in bytes of the last received chunk, as counted by its sender."""
        return self._receiver.nbytes

    @property
    def waits(self) -> ChannelWaits:
        """Start times of the current waits of the channel's sender and receiver."""
        return self._receiver.waits

    async def receive(self) -> Chunk | None:
        """Return the next chunk, or None at the end of the stream.

        Raises:
            InputFailed: The sender failed; the stage has received all rows sent before the failure.
            StreamAborted: The sender aborted the stream.
        """
        if self._gate is not None:
            await self._gate()
        try:
            chunk = await self._receiver.receive()
        except EndOfStream:
            self._receiver.check(self.rows)
            return None
        self.rows += len(chunk)
        self._counters.rows_in += len(chunk)
        return chunk

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Chunk:
        chunk = await self.receive()
        if chunk is None:
            raise StopAsyncIteration
        return chunk

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._receiver.close()


class Outlet:
    """Sending end of a stage's channel, with the steps (operators without a task) that follow the stage.

    The outlet counts the bytes of a chunk without a lease against the memory budget.

    Attributes:
        budget: Memory budget for the chunks sent.
        rows, dropped: Number of rows that the stage itself emitted and dropped, not counting the steps of the tail.
        tail: Steps (operators without a task) that process every chunk before the outlet sends the chunk, or None.
    """

    def __init__(
        self,
        sender: Sender[Chunk],
        counters: StageCounters,
        budget: Budget,
        pool: Executor | None = None,
        tail: Tail | None = None,
    ) -> None:
        self._sender = sender
        self.budget = budget
        self._pool = pool
        self.counters = counters
        self.tail = tail
        self.rows = 0
        self.dropped = 0
        self._sent = 0
        self._sending: asyncio.Task[None] | None = None
        sender.counters = counters

    @property
    def waits(self) -> ChannelWaits:
        """Start times of the current waits of the channel's sender and receiver."""
        return self._sender.waits

    @property
    def steps(self) -> Sequence[Step]:
        """Steps of the tail."""
        return () if self.tail is None else self.tail.steps

    @property
    def queued(self) -> ChannelSnapshot:
        """Number and size in bytes of the chunks that the channel buffers."""
        return self._sender.snapshot()

    def is_awaited(self) -> bool:
        """Return True if all stages after this outlet, and the consumer, wait for a chunk."""
        return self._sender.is_awaited

    async def within_budget(self) -> None:
        """Wait while the memory budget is full, unless the consumer waits for this outlet."""
        if self.budget.is_full:
            await self.budget.until_within(self.is_awaited)

    async def admit(self, nbytes: int) -> Charge:
        """Wait for room in the memory budget for sources, unless the consumer waits for this outlet."""
        return await self.budget.admit(nbytes, self.is_awaited)

    async def until_wanted(self) -> None:
        """Wait until the stage may produce rows; see :meth:`.channel.Sender.until_wanted`."""
        await self._sender.until_wanted()

    async def until_it_may_receive(self) -> None:
        """Wait until the stage may receive another chunk: its rows are wanted, and fit into the memory budget."""
        await self._sender.until_wanted()
        await self.within_budget()

    async def refill(self) -> None:
        """Recompute the rows that the tail (the steps after the stage) buffered when the state was saved."""
        if self.tail is not None:
            with resuming(TABLE.path, "lists rows that cannot be restored to the operators that held them"):
                await self.tail.refill()

    async def send(self, chunk: Chunk, nbytes: int | None = None) -> None:
        """Send a chunk through the tail (the steps after the stage) to the receiver. Ignore empty chunks.

        Args:
            nbytes: Size of the chunk in bytes, if known. Measuring many Python objects takes long.

        Raises:
            ReceiverClosed: The receiver was closed.
        """
        if not len(chunk):
            return
        nbytes = chunk_nbytes(chunk) if nbytes is None else nbytes
        self._count(len(chunk), nbytes)
        if self.tail is None:
            await self._pass(chunk, nbytes)
            return
        pushed = self._off_loop(self.tail.pushed, chunk)
        del chunk
        await self._pass(*value_of(await pushed))

    async def send_mark(self, chunk: Chunk) -> None:
        """Send a chunk without rows, which signals lost records."""
        await self._sender.send(chunk, 0)

    async def send_work(self, work: Callable[..., Chunk], *args: Any, is_quick: bool = False) -> None:
        """Run ``work(*args)`` and the tail's steps in one call on a worker thread, and send the resulting chunk.

        Args:
            is_quick: True if the work takes less time than passing it to a thread. Without a tail, it runs at once.
        """
        if self.tail is None and is_quick:
            began, cpu = perf_counter(), thread_time()
            chunk = work(*args)
            self.counters.busy_s += perf_counter() - began
            self.counters.cpu_s += thread_time() - cpu
            del args
            await self.send(chunk)
            return
        if self.tail is None:
            done = self._off_loop(work, *args)
            del args
            await self.send_settled(await done)
            return
        joined = self._off_loop(self.tail.join, work, *args)
        del args
        await self.accept(value_of(await joined))

    async def send_ahead(self, work: Callable[..., Chunk], *args: Any) -> None:
        """Send the result of ``work(*args)`` in a task. Return when ``work`` has begun and earlier chunks were sent.

        So the stage can prepare the next chunk while the tail processes this one. Call :meth:`settled` before any other
        method that sends.
        """
        done = self._off_loop(work, *args)
        del args
        await self.settled()
        self._sending = asyncio.create_task(self._send_later(done), name="send ahead")

    async def settled(self) -> None:
        """Wait until the chunk of :meth:`send_ahead` was sent.

        Raises:
            BaseException: The error of the work or of a step.
        """
        sending, self._sending = self._sending, None
        if sending is not None:
            await sending

    async def discard_ahead(self) -> None:
        """Cancel the sending of a chunk of :meth:`send_ahead`, if it was not sent yet."""
        sending, self._sending = self._sending, None
        if sending is not None:
            sending.cancel()
            await asyncio.wait([sending])

    async def _send_later(self, done: asyncio.Future[Outcome]) -> None:
        await self.send_settled(await done)

    async def send_settled(self, outcome: Outcome) -> None:
        """Send the chunk of a finished hop (call on a worker), or the rows before its failure.

        Raises:
            BaseException: The error of the hop, raised after the rows are sent.
        """
        try:
            chunk = settle(self.counters, outcome)
        except PartlyDone as partly:
            await self.send(partly.done)
            raise as_raisable(partly.error) from None
        await self.send(chunk)

    async def accept(self, joined: Joined) -> None:
        """Count and send the result of one hop (call on a worker) that ran the stage and its tail."""
        self.counters.busy_s += joined.busy_s
        self.counters.cpu_s += joined.cpu_s
        if joined.rows:
            self._count(joined.rows, joined.nbytes)
        await self._pass(joined.chunk, joined.chunk_nbytes, joined.failure)

    async def finish(self) -> None:
        """At the end of the stage, send the rows that the tail (the steps after the stage) still buffers."""
        if self.tail is None:
            return
        while True:
            chunk, nbytes, failure = value_of(await self._off_loop(self.tail.rest))
            await self._pass(chunk, nbytes, failure)
            if chunk is None:
                self.tail.check_account()
                return

    def _off_loop(self, function: Callable[..., Any], *args: Any) -> asyncio.Future[Outcome]:
        assert self._pool is not None, "an outlet with work to do needs a pool"
        # Stages before this one may have passed much work for later rows to the pool.
        return self._pool.submit_first(function, *args)

    def _count(self, rows: int, nbytes: int) -> None:
        self.rows += rows
        self.counters.rows += rows
        self.counters.chunks += 1
        self.counters.nbytes += nbytes

    async def _pass(self, chunk: Chunk | None, nbytes: int, failure: BaseException | None = None) -> None:
        """Send the output of the tail (the steps after the stage), then raise the error of a step, if any."""
        if chunk is not None:
            self._sent += len(chunk)
            if chunk.lease is None:
                chunk = chunk.with_lease(self.budget.charge(nbytes))
            await self._sender.send(chunk, nbytes)
        if failure is not None:
            raise as_raisable(failure)

    def drop(self, rows: int) -> None:
        """Count rows that the stage dropped intentionally."""
        self.dropped += rows
        self.counters.dropped += rows

    def fail(self, error: BaseException) -> None:
        """Make the receiver raise ``error`` after it has received all chunks sent earlier."""
        self._sender.fail(error)

    def abort(self) -> None:
        """Mark the stream as incomplete."""
        self._sender.abort()

    def __enter__(self) -> Self:
        self._sender.__enter__()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self.tail is not None:
            self.tail.close()
        if exc_type is None:
            self._sender.declare(self._sent)
        self._sender.__exit__(exc_type, exc, tb)
