"""The loop of every operator that takes rows from several inputs in a decided order."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass, field

from aiostream_data._engine.flow.chunk_sizes import rows_of_a_chunk
from aiostream_data._engine.flow.pending_rows import PickedRows, gathered, unbroken_run
from aiostream_data._engine.flow.sizes import chunk_nbytes
from aiostream_data._engine.flow.stage_io import Outlet
from aiostream_data.rows.records import Chunk
from aiostream_data.transforms.interleave import MergeStep, Need, WaitingStream

SHORT_RUN = 4
"""Consecutive rows of one input are sent without a copy if they fill at least this fraction (1/4) of a chunk."""


@dataclass
class MergeLoop:
    """Sends rows of several inputs to an outlet; a subclass decides their order and receives the inputs.

    Attributes:
        current: Chunk of each slot from which the next rows come.
    """

    current: dict[int, Chunk] = field(init=False, default_factory=dict)
    _picked: PickedRows = field(init=False, default_factory=PickedRows)
    _rows_at_once: int = field(init=False, default=1)

    @property
    def polls(self) -> bool:
        """True to call :meth:`poll` before every step."""
        return False

    def advance(self, max_rows: int) -> MergeStep:
        """Decide the next rows, at most ``max_rows``, and log the decision for saved states."""
        raise NotImplementedError

    def can_continue(self, waiting: WaitingStream) -> bool:
        """Return True if the next step needs no waiting, so that rows already chosen can be copied with its rows."""
        raise NotImplementedError

    async def provide(self, waiting: WaitingStream) -> None:
        """Receive the input that the order is waiting for."""
        raise NotImplementedError

    async def poll(self) -> None:
        """Receive inputs that are ready."""

    def chosen(self, step: MergeStep) -> None:
        """Record a step before its rows are sent."""

    def release_used(self) -> None:
        """Release chunks without rows left, after a step."""

    async def sent(self, sending: Awaitable[None]) -> None:
        """Await the sending of all rows recorded since the last call."""
        await sending

    def load(self, slot: int, chunk: Chunk) -> None:
        """Make ``chunk`` the current chunk of a slot."""
        self._rows_at_once = rows_of_a_chunk(len(chunk), chunk_nbytes(chunk))
        self.current[slot] = chunk

    async def send_all(self, outlet: Outlet) -> None:
        """Send rows until the order has finished. If an input fails, send the rows before the failure first."""
        while True:
            if self.polls:
                await self._or_flush(self.poll(), outlet)
            step = self.advance(max(1, self._rows_at_once - len(self._picked)))
            if len(step):
                await self._send(step, outlet)
                self.release_used()
            if len(self._picked) >= self._rows_at_once or not self.can_continue(step.waiting):
                await self.flush(outlet)
            if step.waiting.need is Need.FINISHED:
                return
            if step.waiting.need is not Need.NOTHING:
                await self._or_flush(self.provide(step.waiting), outlet)

    async def flush(self, outlet: Outlet) -> None:
        """Send all rows that were chosen but not sent, copied into one chunk."""
        if len(self._picked):
            await self.sent(outlet.send_work(gathered, self._picked.taken()))

    def release(self) -> None:
        """Release all chunks."""
        self.current.clear()
        self._picked.taken()

    async def _send(self, step: MergeStep, outlet: Outlet) -> None:
        run = unbroken_run(step.which, step.rows, self.current)
        if run is None or len(run) < self._rows_at_once // SHORT_RUN:
            self._picked.add(step, self.current)
            self.chosen(step)
            return
        await self.flush(outlet)
        self.chosen(step)
        await self.sent(outlet.send(run))

    async def _or_flush(self, work: Awaitable[None], outlet: Outlet) -> None:
        try:
            await work
        except Exception:
            await self.flush(outlet)
            raise
