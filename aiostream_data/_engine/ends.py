"""The two ends that a stage sees: channels that count rows, bytes and charges as chunks pass."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from aiostream_data._engine.budget import Budget
from aiostream_data._engine.channel import EndOfStream, Receiver, Sender
from aiostream_data.metrics.counters import StageCounters
from aiostream_data.records import Chunk, Items

_SAMPLE = 8
_BOXED_NUMBER_NBYTES = 32


def chunk_nbytes(chunk: Chunk) -> int:
    """Return what a chunk holds; lists of plain numbers are estimated, as looking at each would cost more."""
    if isinstance(chunk, Items) and all(isinstance(value, (int, float)) for value in chunk.values[:_SAMPLE]):
        return len(chunk) * _BOXED_NUMBER_NBYTES
    return chunk.nbytes


class Inlet:
    """Receiving end of a stage; iterate it."""

    def __init__(self, receiver: Receiver[Chunk], counters: StageCounters) -> None:
        self._receiver = receiver
        self._counters = counters
        self.rows = 0
        receiver.counters = counters

    async def receive(self) -> Chunk | None:
        """Return the next chunk, or None at the end of the stream.

        Raises:
            StreamAborted: The stream was cut short.
        """
        try:
            chunk = await self._receiver.receive()
        except EndOfStream:
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
    """Sending end of a stage. Rows it is given without a lease are charged to the budget."""

    def __init__(self, sender: Sender[Chunk], counters: StageCounters, budget: Budget) -> None:
        self._sender = sender
        self._budget = budget
        self.counters = counters
        self.rows = 0
        self.dropped = 0
        sender.counters = counters

    async def send(self, chunk: Chunk, nbytes: int | None = None) -> None:
        """Hand on a chunk; empty ones are not worth a hand-over.

        Args:
            nbytes: What it holds, where the stage knows that better or sooner than counting it.

        Raises:
            ReceiverClosed: Nobody wants more.
        """
        if not len(chunk):
            return
        if nbytes is None:
            nbytes = chunk_nbytes(chunk)
        if chunk.lease is None:
            chunk = chunk.with_lease(self._budget.charge(nbytes))
        self.rows += len(chunk)
        self.counters.rows += len(chunk)
        self.counters.chunks += 1
        self.counters.nbytes += nbytes
        await self._sender.send(chunk, nbytes)

    def drop(self, rows: int) -> None:
        """Account for rows left out on purpose."""
        self.dropped += rows
        self.counters.dropped += rows

    def __enter__(self) -> Self:
        self._sender.__enter__()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._sender.__exit__(exc_type, exc, tb)
