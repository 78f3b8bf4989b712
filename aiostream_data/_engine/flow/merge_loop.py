"""Loop shared by all operators that take rows from several inputs in a computed order."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass, field

from aiostream_data._engine.flow.chunk_sizes import (
    HOP_ROWS,
    LOW_MEMORY_CHUNK_NBYTES,
    most_chunk_nbytes,
    rows_of_a_chunk,
)
from aiostream_data._engine.flow.pending_rows import PickedRows, gathered, run_of
from aiostream_data._engine.flow.sizes import chunk_nbytes
from aiostream_data._engine.flow.stage_io import Outlet
from aiostream_data.rows.lent_memory import LendsMemory
from aiostream_data.rows.records import Chunk
from aiostream_data.transforms.interleave import MergeStep, Need, WaitingStream

SHORT_RUN = 4
"""Minimum number of consecutive rows of one input that are sent without a copy, as a fraction (1/4) of a chunk."""

QUICK_SHARE = 32
"""Rows are copied on the event loop if they are at most this fraction (1/32) of the rows that are copied together.

Copying 64 KiB takes about ten microseconds, and a call on a worker thread takes ten times as long.
"""

HOLD_S = 0.01
"""Maximum time in seconds for which chosen rows wait for more rows, so that the first rows arrive early."""


@dataclass
class MergeLoop:
    """Base class that sends rows of several inputs to an outlet; a subclass decides the order and receives the inputs.

    Attributes:
        current: For each input slot, the chunk from which the next rows are taken.
        pool: Pool of memory for large ``bytes`` rows; None copies these rows into one block.
        works_ahead: True if the next rows are chosen and copied while the rows before them are sent.
    """

    current: dict[int, Chunk] = field(init=False, default_factory=dict)
    pool: LendsMemory | None = field(init=False, default=None)
    works_ahead: bool = field(init=False, default=False)
    _picked: PickedRows = field(init=False, default_factory=PickedRows)
    _most_nbytes: int = field(init=False, default=LOW_MEMORY_CHUNK_NBYTES)
    """Maximum size in bytes of a chunk of copied rows."""

    _rows_at_once: int = field(init=False, default=1)
    """Maximum number of rows that are copied together."""

    _rows_of_a_step: int = field(init=False, default=1)
    """Maximum number of rows of a step. A chunk whose rows stay together is sent whole, without a copy."""

    @property
    def polls(self) -> bool:
        """True if the loop calls :meth:`poll` before every step."""
        return False

    def advance(self, max_rows: int) -> MergeStep:
        """Choose the next rows, at most ``max_rows`` rows, and log the choice for saved states."""
        raise NotImplementedError

    def can_continue(self, waiting: WaitingStream) -> bool:
        """Return True if the next step can choose rows without waiting, so that chosen rows can be copied together."""
        raise NotImplementedError

    async def provide(self, waiting: WaitingStream) -> None:
        """Receive a chunk from the input that the order needs next."""
        raise NotImplementedError

    async def poll(self) -> None:
        """Receive chunks from all inputs that are ready."""

    def chosen(self, step: MergeStep) -> None:
        """Record a step of the order (a choice of rows) before the rows of this step are sent."""

    def release_used(self) -> None:
        """After a step, release the chunks that have no unused rows left."""

    async def sent(self, sending: Awaitable[None]) -> None:
        """Await ``sending``, an awaitable that sends all rows recorded since the last call."""
        await sending

    def load(self, slot: int, chunk: Chunk) -> None:
        """Use ``chunk`` as the current chunk of an input slot."""
        self._rows_at_once = rows_of_a_chunk(len(chunk), chunk_nbytes(chunk), self._most_nbytes)
        self._rows_of_a_step = max(self._rows_at_once, min(len(chunk), HOP_ROWS))
        self.current[slot] = chunk

    async def send_all(self, outlet: Outlet) -> None:
        """Send rows until all inputs are finished. If an input fails, first send the rows chosen before the failure."""
        self._most_nbytes = most_chunk_nbytes(outlet.budget.limit)
        try:
            await self._send_steps(outlet)
            await outlet.settled()
        except Exception:
            await outlet.settled()  # an error of earlier rows comes first
            raise
        finally:
            await outlet.discard_ahead()

    async def _send_steps(self, outlet: Outlet) -> None:
        while True:
            if self.polls:
                await self._or_flush(self.poll(), outlet)
            step = self.advance(max(1, self._rows_of_a_step - len(self._picked)))
            if len(step):
                await self._send(step, outlet)
                self.release_used()
            is_full = len(self._picked) >= self._rows_at_once
            is_ready = self.can_continue(step.waiting)
            if is_full or not is_ready or self._picked.held_s() > HOLD_S:
                await self.flush(outlet)
            if not is_ready:  # the wait may be long: raise errors of the steps now
                await outlet.settled()
            if step.waiting.need is Need.FINISHED:
                return
            if step.waiting.need is not Need.NOTHING:
                await self._or_flush(self.provide(step.waiting), outlet)

    async def flush(self, outlet: Outlet) -> None:
        """Copy all chosen rows that were not sent into one chunk, and send the chunk."""
        if len(self._picked):
            is_quick = len(self._picked) * QUICK_SHARE <= self._rows_at_once
            if self.works_ahead and not is_quick:
                await outlet.send_ahead(gathered, self._picked.taken(), self.pool)
                return
            await outlet.settled()
            await self.sent(outlet.send_work(gathered, self._picked.taken(), self.pool, is_quick=is_quick))

    def release(self) -> None:
        """Release all chunks."""
        self.current.clear()
        self._picked.taken()

    async def _send(self, step: MergeStep, outlet: Outlet) -> None:
        run = run_of(step, self.current)
        if run is None or len(run) < self._rows_at_once // SHORT_RUN:
            await self._pick(step, outlet)
            return
        await self.flush(outlet)
        await outlet.settled()
        self.chosen(step)
        await self.sent(outlet.send(run))

    async def _pick(self, step: MergeStep, outlet: Outlet) -> None:
        """Record rows to be copied. Copy and send them as soon as there are enough for a chunk."""
        start = 0
        while start < len(step):
            if len(self._picked) >= self._rows_at_once:
                await self.flush(outlet)
            part = step.part(start, start + self._rows_at_once - len(self._picked))
            self._picked.add(part, self.current)
            self.chosen(part)
            start += len(part)

    async def _or_flush(self, work: Awaitable[None], outlet: Outlet) -> None:
        try:
            await work
        except Exception:
            await self.flush(outlet)
            raise
