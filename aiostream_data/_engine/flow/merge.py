"""Merge the rows of several streams (such as shards) in the order of an :class:`InterleaveOrder`."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.failures.shard_losses import ShardLosses
from aiostream_data._engine.flow.channel import EndOfStream, InputFailed, Receiver
from aiostream_data._engine.flow.loss_account import LossAccount
from aiostream_data._engine.flow.merge_loop import MergeLoop
from aiostream_data._engine.flow.stage_io import Outlet
from aiostream_data._engine.resume.damaged_state import resuming
from aiostream_data._engine.resume.merge_log import MergeEntry, MergeLog, ReadyPlaces, StreamPlace
from aiostream_data._engine.resume.position import POSITION, State
from aiostream_data.rows.records import Chunk
from aiostream_data.transforms.interleave import InterleaveOrder, MergeStep, Need, WaitingStream


class Stream(NamedTuple):
    """One stream of a merge.

    Attributes:
        receiver: Receiver of the stream's chunks. A chunk without rows signals lost records.
        place: Position of the stream, used to compute the stream's saved state.
        losses: Lost records of the stream; None if the stream cannot lose records.
    """

    receiver: Receiver[Chunk]
    place: StreamPlace
    losses: ShardLosses | None = None


class ReadyStreams(NamedTuple):
    """Consecutive complete streams, without losses.

    Attributes:
        chunk: Rows of all streams, one stream after another; None if there are no rows.
        rows: Number of rows of each stream, int64.
        places: Position of each stream.
    """

    chunk: Chunk | None
    rows: NDArray[np.int64]
    places: Sequence[StreamPlace]


class Streams(Protocol):
    """Opens streams ahead of their turn and returns them in order."""

    @property
    def is_ready(self) -> bool:
        """True if :meth:`next` would not wait."""

    async def next(self) -> Stream | ReadyStreams | None:
        """Return the next stream or streams, or None after the last."""

    async def again(self, state: State, given: int) -> Stream | None:
        """Reopen a stream from a saved state, and continue after the stream's first ``given`` rows.

        Return None if the shard list no longer contains the stream's shard.
        """

    def ended(self) -> None:
        """Record the end of one opened stream, except of ready streams."""


@dataclass
class Merge(MergeLoop):
    """Send the rows of all streams to an outlet, in the order that ``order`` determines.

    Attributes:
        log: Log of the merge's steps, used to compute saved states.
        account: Counter of losses. With a deterministic order, losses are counted in the order of the rows.
    """

    streams: Streams
    order: InterleaveOrder
    log: MergeLog
    account: LossAccount | None = None
    _open: dict[int, Stream] = field(default_factory=dict)
    _places: dict[int, StreamPlace] = field(default_factory=dict)  # by slot, including streams that have ended
    _loaded: dict[int, int] = field(default_factory=dict)
    _rest: dict[int, Chunk] = field(default_factory=dict)  # rest of a stream's current chunk, after a loss
    _ready: deque[ReadyPlaces] = field(default_factory=deque)
    _ready_chunks: deque[_ReadyChunk] = field(default_factory=deque)  # in the order of the streams
    _ready_added: int = 0
    _chosen: int = 0
    _opened: int = 0  # except ready streams
    _outlet: Outlet | None = None  # while the merge runs

    @property
    def rows(self) -> int:
        """Number of rows that the merge has chosen so far."""
        return self._chosen

    async def resume(self, state: dict[str, Any]) -> None:
        """Restore a saved state. Call before :meth:`run`."""
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
        """Send the rows of all streams.

        Raises:
            InputFailed: A stream failed; all rows before the failure have been sent.
            StreamAborted: The sender of a stream aborted the stream.
        """
        self.log.begin(self.order)
        self._outlet = outlet
        try:
            await self.send_all(outlet)
        finally:
            self._outlet = None
        if self.account is not None:
            self.account.take(self._chosen, ())
            await self.account.write()

    @property
    def polls(self) -> bool:
        return not self.order.deterministic

    def advance(self, max_rows: int) -> MergeStep:
        mark = self.order.mark()
        step = self.order.advance(max_rows)
        if len(step):
            entry = MergeEntry(mark, dict(self._places), self._opened, tuple(self._ready))
            self.log.add(self._chosen, entry)
            self._chosen += len(step)
        return step

    async def provide(self, waiting: WaitingStream) -> None:
        slot = waiting.slot
        if waiting.need is Need.STREAM:
            await self._open_next(slot)
        elif self.order.deterministic:
            receiver = self._open[slot].receiver
            if slot not in self._rest and not receiver.ready:
                await receiver.wait_ready()
            await self._load_next(slot)
        elif not self._rest:
            await _any_ready([stream.receiver for stream in self._open.values()])

    def release_used(self) -> None:
        # The next chunk of a stream may arrive much later.
        for slot in [slot for slot in self.current if slot < self.order.cycle_length and self._is_used_up(slot)]:
            del self.current[slot]
        while self._ready_chunks and self._ready_chunks[0].stop <= self.order.ready_in_use:
            del self.current[self._ready_chunks.popleft().key]

    def _is_used_up(self, slot: int) -> bool:
        return self.order.rows_left(slot) == 0 or self.order.ready_stream(slot) is not None

    async def _open_next(self, slot: int) -> None:
        if self._outlet is not None and not self.streams.is_ready:
            await self._outlet.until_wanted()
        stream = await self.streams.next()
        if stream is None:
            self.order.no_more_streams()
            return
        if isinstance(stream, ReadyStreams):
            self._add_ready(stream)
            return
        self._opened += 1
        self._sits_in(slot, stream)
        self.order.opened(slot)

    def _add_ready(self, streams: ReadyStreams) -> None:
        key = next(key for key in count(self.order.cycle_length) if key not in self.current)
        self.order.add_ready(key, streams.rows)
        self._ready.append(ReadyPlaces(self._ready_added, streams.places))
        self._ready_added += len(streams.rows)
        if streams.chunk is not None and len(streams.chunk):
            self.load(key, streams.chunk)
            self._ready_chunks.append(_ReadyChunk(key, self._ready_added))
        while self._ready[0].stop <= self.order.ready_dropped:
            self._ready.popleft()

    def _sits_in(self, slot: int, stream: Stream) -> None:
        self._open[slot] = stream
        self._places[slot] = stream.place

    def _load(self, slot: int, chunk: Chunk | None) -> None:
        if chunk is not None and len(chunk):
            self.load(slot, chunk)
            self._loaded[slot] = self._loaded.get(slot, 0) + len(chunk)
            self.order.load(slot, len(chunk))
        stream = self._open[slot]
        # If the end is known already, a state after the last row need not reopen the stream.
        if chunk is None or (stream.losses is None and stream.receiver.has_ended):
            self._end(slot)

    def _end(self, slot: int) -> None:
        self.order.ended(slot)
        receiver = self._open.pop(slot).receiver
        receiver.check(self._loaded.pop(slot, 0))
        receiver.close()
        self.streams.ended()

    async def _load_next(self, slot: int) -> None:
        """Receive the next rows of a stream that is ready. Count the losses before these rows first."""
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

    async def flush(self, outlet: Outlet) -> None:
        if self.account is not None and self.account.is_behind:
            await self.account.write()
        await super().flush(outlet)

    def can_continue(self, waiting: WaitingStream) -> bool:
        if waiting.need is Need.STREAM:
            return self.streams.is_ready
        if waiting.need is not Need.ROWS or not self.order.deterministic:
            return waiting.need is Need.NOTHING
        return waiting.slot in self._rest or self._open[waiting.slot].receiver.ready

    async def poll(self) -> None:
        """Receive a chunk from every stream that is ready.

        Raise the error of a failed stream only if no other stream has rows.
        """
        failure: InputFailed | None = None
        for slot, stream in list(self._open.items()):
            if self.order.rows_left(slot) == 0 and (slot in self._rest or stream.receiver.ready):
                try:
                    await self._load_next(slot)
                except InputFailed as error:
                    failure = error
        if failure is not None and not self._has_rows:
            raise failure

    @property
    def _has_rows(self) -> bool:
        """True if rows are loaded that were not chosen yet."""
        in_slots = any(self.order.rows_left(slot) for slot in self._open)
        return in_slots or self.order.ready_in_use < self._ready_added


class _ReadyChunk(NamedTuple):
    """Chunk of ready streams.

    Attributes:
        key: Key of the chunk.
        stop: Number of ready streams added up to the last stream of the chunk.
    """

    key: int
    stop: int


def _taken(receiver: Receiver[Chunk]) -> Chunk | None:
    try:
        return receiver.take()
    except EndOfStream:
        return None


async def _any_ready(receivers: Sequence[Receiver[Chunk]]) -> None:
    """Wait until one of the receivers has an item or has ended.

    Mark only the first receiver as needed, because each needed receiver may use memory beyond a full memory budget.
    """
    waits = [
        asyncio.ensure_future(receiver.wait_ready(is_needed=number == 0)) for number, receiver in enumerate(receivers)
    ]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
