"""Decode the records of one shard on other worker threads, while the next records are being split off.

Only one thread at a time can split a shard into records, but several threads can decode records that were split.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, cast

from aiostream_data._engine.flow.channel import ReceiverClosed
from aiostream_data._engine.flow.context import settle
from aiostream_data._engine.flow.first_failing_row import leading
from aiostream_data._engine.flow.sizes import chunk_nbytes
from aiostream_data._engine.flow.stage_io import Outlet
from aiostream_data._engine.memory.budget import DECODED, Budget
from aiostream_data._engine.sources.shard_chunks import decode, own_nbytes, refers_to
from aiostream_data._engine.sources.shard_cutter import RecordsLease
from aiostream_data.executors.base import Outcome
from aiostream_data.metrics.counters import StageCounters
from aiostream_data.plan.base import Decoder
from aiostream_data.rows.columns import VarColumn
from aiostream_data.rows.records import Chunk, Columns

LEAST_AHEAD: Final = 2
MOST_AHEAD: Final = 8
"""Minimum and maximum number of chunks of a shard that are being decoded or wait for their turn."""


class _Rows(NamedTuple):
    """Decoded rows, and the error of the row after them."""

    chunks: list[Chunk]
    error: Exception | None


@dataclass
class DecodesAhead:
    """Sink for chunks of records of one shard. It decodes them concurrently, and sends the rows in order.

    Use it as an asynchronous context manager, whose end waits until all rows were sent.

    Attributes:
        url: URL of the shard, for error messages.
        outlet: Outlet for the rows.
        submit: Function that runs another function on a worker thread, and returns a future of its outcome.
        counters: Counters of the source.
        most: Maximum number of chunks that are being decoded or wait for their turn.
    """

    url: str
    decoders: Sequence[Decoder]
    outlet: Outlet
    submit: Callable[..., asyncio.Future[Outcome]]
    budget: Budget
    counters: StageCounters
    most: int = LEAST_AHEAD
    _sending: deque[asyncio.Task[None]] = field(default_factory=deque)

    async def send(self, chunk: Chunk) -> None:
        """Begin to decode a chunk of records. Wait while too many chunks are being decoded.

        Raises:
            DataError: A record of this chunk or of an earlier one cannot be decoded. All rows before it were sent.
            ReceiverClosed: The receiver was closed.
        """
        decoded = self.submit(self._decoded, chunk)
        before = self._sending[-1] if self._sending else None
        self._sending.append(asyncio.create_task(self._send(decoded, before), name="send decoded rows"))
        del chunk
        while len(self._sending) > self.most:
            await self._sending.popleft()

    async def send_mark(self, chunk: Chunk) -> None:
        """Send a chunk without rows after all rows before it."""
        await self._finish()
        await self.outlet.send_mark(chunk)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is None or (isinstance(error, Exception) and not isinstance(error, ReceiverClosed)):
                await self._finish()
        finally:
            for task in self._sending:
                task.cancel()
            await asyncio.gather(*self._sending, return_exceptions=True)

    async def _finish(self) -> None:
        """Wait until the rows of all chunks were sent. An error of these rows precedes any later error of the shard."""
        try:
            while self._sending:
                await self._sending.popleft()
        except Exception as earlier:
            raise earlier from earlier.__cause__  # without the later error as its context

    async def _send(self, decoded: asyncio.Future[Outcome], before: asyncio.Task[None] | None) -> None:
        rows: _Rows = settle(self.counters, await decoded)
        if before is not None:
            await before
        for chunk in rows.chunks:
            await self.outlet.send(chunk)
        if rows.error is not None:
            raise rows.error

    def _decoded(self, chunk: Columns) -> _Rows:
        """Decode a chunk of records up to the first one that cannot be decoded. Runs on a worker thread."""
        ordinals = chunk.ids.ordinals

        def part(start: int, stop: int) -> Chunk:
            return decode(chunk.slice(start, stop), self.decoders, lambda row: (self.url, int(ordinals[start + row])))

        found = leading(len(chunk), part)
        return _Rows([self._leased(rows, chunk) for rows in found.done], found.error)

    def _leased(self, rows: Chunk, records: Columns) -> Chunk:
        """Return decoded rows with a lease on their arrays, and on the bytes of the records if they refer to these."""
        (column,) = records.leaves
        own = own_nbytes(rows, partial(refers_to, cast(VarColumn, column).values))
        if own is None:
            return rows.with_lease(self.budget.charge(chunk_nbytes(rows), DECODED))
        lease: Any = records.lease
        assert isinstance(lease, RecordsLease), "the splitter adds the lease"
        return rows.with_lease((lease.buffer, self.budget.charge(own, DECODED)))


def most_ahead(cpus: int, open_at_once: int) -> int:
    """Return the maximum number of chunks of each shard that are being decoded or wait for their turn."""
    return max(LEAST_AHEAD, min(MOST_AHEAD, cpus // open_at_once))
