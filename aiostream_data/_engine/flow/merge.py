"""Take rows from several streams in the order that an :class:`InterleaveOrder` decides."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from aiostream_data._engine.failures.shard_losses import ShardLosses
from aiostream_data._engine.flow.channel import EndOfStream, InputFailed, Receiver
from aiostream_data._engine.flow.chunk_sizes import rows_of_a_chunk
from aiostream_data._engine.flow.loss_account import LossAccount
from aiostream_data._engine.flow.pending_rows import PickedRows, gathered, unbroken_run
from aiostream_data._engine.flow.sizes import chunk_nbytes
from aiostream_data._engine.flow.stage_io import Outlet
from aiostream_data._engine.resume.merge_log import MergeEntry, MergeLog, StreamPlace
from aiostream_data._engine.resume.position import POSITION, State
from aiostream_data._engine.resume.resuming import resuming
from aiostream_data.rows.records import Chunk
from aiostream_data.transforms.interleave import InterleaveOrder, MergeStep, Need

SHORT_RUN = 4
"""An unbroken run of less than this fraction (1/4) of a chunk is copied together with what follows it."""


class Stream(NamedTuple):
    """One of the streams.

    Attributes:
        receiver: Where its chunks come from. Those without rows only have losses in front of them.
        place: What knows its place.
        losses: What it has left out; None if it leaves nothing out.
    """

    receiver: Receiver[Chunk]
    place: StreamPlace
    losses: ShardLosses | None = None


class Streams(Protocol):
    """Gives one stream after another, opened ahead of their turn."""

    async def next(self) -> Stream | None:
        """Return the next stream, or None when there are no more."""

    async def again(self, state: State, given: int) -> Stream | None:
        """Return a stream that was open when a state was taken, behind its first ``given`` rows.

        None if the shard of the stream is no longer listed.
        """

    def ended(self) -> None:
        """Record that one of the opened streams has ended."""


@dataclass
class Merge:
    """Sends the rows of all streams to an outlet in the order that ``order`` decides.

    Attributes:
        log: Where it notes its place.
        account: Takes what was lost, in the order of the rows if that is deterministic.
    """

    streams: Streams
    order: InterleaveOrder
    log: MergeLog
    account: LossAccount | None = None
    _open: dict[int, Stream] = field(default_factory=dict)
    _places: dict[int, StreamPlace] = field(default_factory=dict)  # also of streams that have ended in their slot
    _current: dict[int, Chunk] = field(default_factory=dict)
    _loaded: dict[int, int] = field(default_factory=dict)
    _rest: dict[int, Chunk] = field(default_factory=dict)  # of a stream's last chunk, behind a loss
    _picked: PickedRows = field(default_factory=PickedRows)
    _rows_at_once: int = 1
    _chosen: int = 0
    _opened: int = 0

    @property
    def rows(self) -> int:
        """How many rows it has chosen."""
        return self._chosen

    async def resume(self, state: dict[str, Any]) -> None:
        """Go to the place of a state, before :meth:`run`."""
        with resuming(POSITION, "does not fit the order in which streams are merged"):
            self.order.restore(state["order"])
        slots = [slot for slot, given in enumerate(state["order"]["given"]) if given is not None]
        for slot, place in zip(slots, state["streams"], strict=True):
            stream = await self.streams.again(place, state["order"]["given"][slot])
            if stream is None:
                self.order.vacate(slot)
            else:
                self._sits_in(slot, stream)

    async def run(self, outlet: Outlet) -> None:
        """Send everything.

        Raises:
            InputFailed: A stream has failed, and all rows before were sent.
            StreamAborted: A stream was cut short.
        """
        order = self.order
        self.log.begin(order)
        while True:
            if not order.deterministic:
                await self._behind_rows_before(self._load_what_is_there(outlet), outlet)
            step = self._advance()
            if len(step):
                run = unbroken_run(step.which, step.rows, self._current)
                if run is not None and len(run) >= self._rows_at_once // SHORT_RUN:
                    await self._send_picked(outlet)
                    await outlet.send(run)
                    del run
                else:
                    self._picked.add(step, self._current)
                self._let_go_of_used()
            slot, need = step.waiting.slot, step.waiting.need
            if len(self._picked) >= self._rows_at_once or not self._goes_on_at_once(need, slot):
                await self._send_picked(outlet)
            if need is Need.FINISHED:
                if self.account is not None:
                    self.account.take(self._chosen, ())
                    await self.account.write()
                return
            await self._behind_rows_before(self._provide(need, slot), outlet)

    async def _behind_rows_before(self, work: Awaitable[None], outlet: Outlet) -> None:
        """Do something that may fail, and let rows and losses before the failure come first."""
        try:
            await work
        except Exception:
            await self._send_picked(outlet)
            raise

    async def _provide(self, need: Need, slot: int) -> None:
        """Get what the order cannot go on without."""
        if need is Need.STREAM:
            await self._open_next(slot)
        elif need is Need.ROWS and self.order.deterministic:
            receiver = self._open[slot].receiver
            if slot not in self._rest and not receiver.ready:
                await receiver.wait_ready()
            await self._load_next(slot)
        elif need is Need.ROWS and not self._rest:
            await _any_ready([stream.receiver for stream in self._open.values()])

    def _advance(self) -> MergeStep:
        mark = self.order.mark()
        step = self.order.advance(max(1, self._rows_at_once - len(self._picked)))
        if len(step):
            self.log.add(self._chosen, MergeEntry(mark, dict(self._places), self._opened))
            self._chosen += len(step)
        return step

    def _let_go_of_used(self) -> None:
        """Drop chunks all of whose rows were chosen: a stream may have no more rows for long."""
        for slot in [slot for slot in self._current if self.order.rows_left(slot) == 0]:
            del self._current[slot]

    async def _open_next(self, slot: int) -> None:
        stream = await self.streams.next()
        if stream is None:
            self.order.no_more_streams()
            return
        self._opened += 1
        self._sits_in(slot, stream)
        self.order.opened(slot)

    def _sits_in(self, slot: int, stream: Stream) -> None:
        self._open[slot] = stream
        self._places[slot] = stream.place

    def _load(self, slot: int, chunk: Chunk | None) -> None:
        if chunk is None:
            self.order.ended(slot)
            receiver = self._open.pop(slot).receiver
            receiver.check(self._loaded.pop(slot, 0))
            receiver.close()
            self.streams.ended()
        elif len(chunk):
            self._rows_at_once = rows_of_a_chunk(len(chunk), chunk_nbytes(chunk))
            self._current[slot] = chunk
            self._loaded[slot] = self._loaded.get(slot, 0) + len(chunk)
            self.order.load(slot, len(chunk))

    async def _load_next(self, slot: int) -> None:
        """Load what comes next of a stream, which is there, and account for what it has lost in front of that."""
        losses = self._open[slot].losses
        if losses is None or self.account is None:
            self._load(slot, _taken(self._open[slot].receiver))
            return
        received = self._loaded.get(slot, 0)
        if losses.waiting:
            self.account.take(self._chosen, losses.take(received))
        chunk = self._rest.pop(slot, None) or _taken(self._open[slot].receiver)
        rows = losses.rows_before_next(received)
        if chunk is not None and rows is not None and rows < len(chunk):
            if self.account.is_exact:
                self._rest[slot], chunk = chunk.slice(rows, len(chunk)), chunk.slice(0, rows)
            else:
                self.account.take(self._chosen, losses.take(received + len(chunk) - 1))
        if self.account.is_full:
            await self.account.write()
        self._load(slot, chunk)

    async def _send_picked(self, outlet: Outlet) -> None:
        if self.account is not None and self.account.is_behind:
            await self.account.write()
        if len(self._picked):
            await outlet.send_work(gathered, self._picked.taken())

    def _goes_on_at_once(self, need: Need, slot: int) -> bool:
        """Whether the next rows can be chosen without waiting, so that those already chosen may wait for them."""
        if need is Need.NOTHING:
            return True
        is_there = need is Need.ROWS and (slot in self._rest or self._open[slot].receiver.ready)
        return is_there and self.order.deterministic

    async def _load_what_is_there(self, outlet: Outlet) -> None:
        """Take a chunk of every stream that has one. A stream that failed waits until no other has rows."""
        failure: InputFailed | None = None
        for slot, stream in list(self._open.items()):
            if self.order.rows_left(slot) == 0 and (slot in self._rest or stream.receiver.ready):
                try:
                    await self._load_next(slot)
                except InputFailed as error:
                    failure = error
        if failure is not None and not any(self.order.rows_left(slot) for slot in self._open):
            await self._send_picked(outlet)
            raise failure


def _taken(receiver: Receiver[Chunk]) -> Chunk | None:
    try:
        return receiver.take()
    except EndOfStream:
        return None


async def _any_ready(receivers: Sequence[Receiver[Chunk]]) -> None:
    """Wait for any of them. Only the first is said to be needed, or all would pass over a full budget together."""
    waits = [
        asyncio.ensure_future(receiver.wait_ready(is_needed=number == 0)) for number, receiver in enumerate(receivers)
    ]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
