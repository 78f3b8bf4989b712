"""Decode the records of one shard on other worker threads, while the next records are being split off.

Only one thread at a time can split a shard into records, but several threads can decode records that were split.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple, cast

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

DECODED_SHARE: Final = 16
"""Fraction (1/16) of the memory limit for the rows of all open shards that are decoded at once, or 16 rows of each."""

LEAST_ROWS: Final = 16
"""Minimum number of rows that are decoded at once."""

GUESSED_NBYTES: Final = 256
"""Assumed size in bytes of a decoded row before the first one."""


class _Rows(NamedTuple):
    """Decoded rows, and the error of the row after them."""

    chunks: list[Chunk]
    error: Exception | None


@dataclass
class DecodesAhead:
    """Sink for chunks of records of one shard. It decodes them concurrently, and sends the rows in order.

    Attributes:
        url: URL of the shard, for error messages.
        outlet: Outlet for the rows.
        submit: Function that runs another function on a worker thread, and returns a future of its outcome.
        counters: Counters of the source.
        open_at_once: Number of shards that share the memory limit.
        most: Maximum number of chunks that are being decoded or wait for their turn while memory is free.
    """

    url: str
    decoders: Sequence[Decoder]
    outlet: Outlet
    submit: Callable[..., asyncio.Future[Outcome]]
    budget: Budget
    counters: StageCounters
    open_at_once: int = 1
    most: int = LEAST_AHEAD
    _row_nbytes: int = GUESSED_NBYTES  # of a decoded row, in the chunk with the largest ones
    _has_seen_one: bool = False
    _sending: deque[asyncio.Task[None]] = field(default_factory=deque)
    _failure: asyncio.Future[Exception] | None = None

    async def run(self, read: Callable[[DecodesAhead], Coroutine[Any, Any, None]]) -> None:
        """Run ``read(self)``, which sends chunks of records to this sink, until all rows were sent.

        If a record cannot be decoded, or the receiver was closed, ``read`` is cancelled at once.

        Raises:
            DataError: A record cannot be decoded. All rows before it were sent.
            ReceiverClosed: The receiver was closed.
            Exception: The error of ``read``. All rows before it were sent.
        """
        self._failure = asyncio.get_running_loop().create_future()
        reading = asyncio.create_task(read(self), name="split records")
        try:
            first: list[asyncio.Future[Any]] = [reading, self._failure]
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            if not self._failure.done() and not isinstance(reading.exception(), ReceiverClosed):
                await self._until_sent(0)
            if self._failure.done():
                raise self._failure.result()
            await reading
        finally:
            tasks = [reading, *self._sending]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def send(self, chunk: Chunk) -> None:
        """Begin to decode a chunk of records. Wait while too many chunks are being decoded."""
        while len(chunk):
            stop = min(self._rows_at_once, len(chunk))
            decoded = self.submit(self._decoded, chunk.slice(0, stop))
            before = self._sending[-1] if self._sending else None
            self._sending.append(asyncio.create_task(self._send(decoded, before), name="send decoded rows"))
            needs_size = stop < len(chunk) and not self._has_seen_one
            chunk = chunk.slice(stop, len(chunk))  # free the rows before during the wait
            await self._until_sent(0 if self.budget.is_full or needs_size else self.most)

    @property
    def _rows_at_once(self) -> int:
        """Number of rows whose decoded size is within the shard's share of the memory limit."""
        return max(LEAST_ROWS, self.budget.limit // (DECODED_SHARE * self.open_at_once * self._row_nbytes))

    async def send_decoded(self, chunk: Chunk) -> None:
        """Send rows that need no decoder. Earlier rows are sent first."""
        await self._until_sent(0)
        await self.outlet.send(chunk)

    async def send_mark(self, chunk: Chunk) -> None:
        """Send a chunk without rows after all rows before it."""
        await self._until_sent(0)
        await self.outlet.send_mark(chunk)

    async def _until_sent(self, most: int) -> None:
        """Wait until at most ``most`` chunks are being decoded or wait for their turn."""
        while len(self._sending) > most:
            await asyncio.wait([self._sending[0]])
            self._sending.popleft()

    async def _send(self, decoded: asyncio.Future[Outcome], before: asyncio.Task[None] | None) -> None:
        """Send the rows of a chunk after the chunk before it. Send nothing after an error."""
        assert self._failure is not None, "run() was called"
        try:
            outcome = await decoded
            if before is not None:
                await asyncio.wait([before])
            if self._failure.done():
                return
            rows: _Rows = settle(self.counters, outcome)
            for chunk in rows.chunks:
                self._learn(chunk)
                await self.outlet.send(chunk)
            if rows.error is not None:
                raise rows.error
        except Exception as error:  # noqa: BLE001 - raised by run()
            if not self._failure.done():
                self._failure.set_result(error)

    def _learn(self, chunk: Chunk) -> None:
        nbytes = max(1, chunk_nbytes(chunk) // max(1, len(chunk)))
        self._row_nbytes = max(nbytes, self._row_nbytes) if self._has_seen_one else nbytes
        self._has_seen_one = True

    def _decoded(self, chunk: Columns) -> _Rows:
        """Decode a chunk of records up to the first one that cannot be decoded. Runs on a worker thread."""

        def part(start: int, stop: int) -> Chunk:
            def describe(row: int) -> tuple[str, int]:
                return self.url, chunk.ids.pairs_of(start + row)[0][1]

            return decode(chunk.slice(start, stop), self.decoders, describe)

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
