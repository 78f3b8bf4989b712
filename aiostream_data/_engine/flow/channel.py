"""Hand chunks from one stage to the next, holding back the sender when the buffer is full.

A channel has two ends. Closing the sending end says "no more chunks"; failing it says "no more chunks,
because of this error", which the receiver gets behind all chunks sent before. Aborting it says "nobody
wants the rest": what is still buffered is not delivered either. A receiver can always tell the three
apart, so a truncated stream is never mistaken for a complete one. Only the event-loop thread touches a
channel.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from time import perf_counter
from types import TracebackType
from typing import Any, Generic, NamedTuple, Self, TypeVar

from aiostream_data._engine.resume.position import Position
from aiostream_data.errors import CardinalityError
from aiostream_data.metrics.counters import StageCounters

T = TypeVar("T")


class EndOfStream(Exception):
    """The sending end was closed and every item has been received."""


class StreamAborted(Exception):
    """The sending end stopped early; the items received so far are not the whole stream."""


class InputFailed(Exception):
    """The sending end failed, and all items sent before have been received.

    Attributes:
        error: What it failed with.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(repr(error))
        self.error = error


class ReceiverClosed(Exception):
    """The receiving end is gone, so nobody wants the item."""


class ChannelSnapshot(NamedTuple):
    """What a channel holds at one instant."""

    items: int
    nbytes: int
    peak_nbytes: int


class ChannelWaits(NamedTuple):
    """Since when (``perf_counter()``) the receiver waits for an item, and the sender for room; None: it does not."""

    for_input: float | None
    for_room: float | None


class _SenderState(Enum):
    OPEN = auto()
    CLOSED = auto()
    FAILED = auto()
    ABORTED = auto()


class _Shared(Generic[T]):
    """State seen by both ends."""

    def __init__(self, max_items: int, max_nbytes: int) -> None:
        self.max_items = max_items
        self.max_nbytes = max_nbytes
        self.buffer: deque[tuple[T, int]] = deque()
        self.nbytes = 0
        self.peak_nbytes = 0
        self.sender = _SenderState.OPEN
        self.failure: BaseException | None = None
        self.receiver_open = True
        self.rows: int | None = None
        self.awaiting = 0
        self.one_by_one = False  # the sender waits for the receiver to wait
        self.input_wait_since: float | None = None  # perf_counter() when the receiver began to wait
        self.room_wait_since: float | None = None
        self.on_behalf_of: Callable[[], bool] | None = None
        self._waiters: list[asyncio.Future[None]] = []

    def has_room_for(self, nbytes: int) -> bool:
        # An item larger than the whole limit is admitted alone, or it could never pass.
        if not self.buffer:
            return True
        return len(self.buffer) < self.max_items and self.nbytes + nbytes <= self.max_nbytes

    async def changed(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    def snapshot(self) -> ChannelSnapshot:
        return ChannelSnapshot(len(self.buffer), self.nbytes, self.peak_nbytes)

    def notify(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


class Sender(Generic[T]):
    """Sending end. Leaving its ``with`` block cleanly closes it; leaving by exception aborts it.

    :func:`.carrying.carrying` hands the exception to the receiver instead.
    """

    def __init__(self, shared: _Shared[T]) -> None:
        self._shared = shared
        self.counters: StageCounters | None = None

    async def send(self, item: T, nbytes: int = 0) -> None:
        """Wait for room, then append ``item``, counted as ``nbytes`` bytes.

        Raises:
            ReceiverClosed: The receiver closed, before or during the wait.
        """
        shared = self._shared
        if shared.receiver_open and not shared.has_room_for(nbytes):
            started = shared.room_wait_since = perf_counter()
            try:
                while shared.receiver_open and not shared.has_room_for(nbytes):
                    await shared.changed()
            finally:
                shared.room_wait_since = None
                if self.counters is not None:
                    self.counters.output_wait_s += perf_counter() - started
        self.put(item, nbytes)

    def put(self, item: T, nbytes: int = 0) -> None:
        """Append ``item`` whether there is room or not, for what is in memory already.

        Raises:
            ReceiverClosed: The receiver closed.
        """
        shared = self._shared
        if not shared.receiver_open:
            raise ReceiverClosed
        shared.buffer.append((item, nbytes))
        shared.nbytes += nbytes
        shared.peak_nbytes = max(shared.peak_nbytes, shared.nbytes)
        shared.notify()

    @property
    def is_awaited(self) -> bool:
        """True if the receiver waits for an item, and so do all stages up to the consumer."""
        shared = self._shared
        if not shared.awaiting or shared.buffer:
            return False
        return shared.on_behalf_of is None or shared.on_behalf_of()

    @property
    def waits(self) -> ChannelWaits:
        """What either end waits for."""
        return ChannelWaits(self._shared.input_wait_since, self._shared.room_wait_since)

    def snapshot(self) -> ChannelSnapshot:
        """Return how much is buffered now."""
        return self._shared.snapshot()

    async def until_wanted(self) -> None:
        """Wait until the sender may begin: at once, except where nothing runs ahead.

        Raises:
            ReceiverClosed: The receiver closed during the wait.
        """

    def declare(self, rows: int) -> None:
        """Declare the total number of rows, before the stream ends."""
        self._shared.rows = rows

    def close(self) -> None:
        """Declare the stream complete. Does nothing when already closed or aborted."""
        self._finish(_SenderState.CLOSED)

    def fail(self, error: BaseException) -> None:
        """Have the receiver raise ``error`` behind what was sent. Does nothing when already closed or aborted."""
        if self._shared.sender is _SenderState.OPEN:
            self._shared.failure = error
        self._finish(_SenderState.FAILED)

    def abort(self) -> None:
        """Declare the stream cut short. Does nothing when already closed or aborted."""
        self._finish(_SenderState.ABORTED)

    def _finish(self, state: _SenderState) -> None:
        if self._shared.sender is _SenderState.OPEN:
            self._shared.sender = state
            self._shared.notify()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        if exc_type is None:
            self.close()
        else:
            self.abort()


class OneByOne(Sender[Any]):
    """A sender of chunks that hands over one row at a time, and only to a receiver that waits for it.

    It returns when the receiver waits for more: so nobody who sends through it ever runs ahead.
    """

    def __init__(self, shared: _Shared[Any]) -> None:
        super().__init__(shared)
        shared.one_by_one = True

    async def send(self, item: Any, nbytes: int = 0) -> None:
        rows = len(item)
        for row in range(rows):
            await self.until_wanted()
            self.put(item if rows == 1 else item.slice(row, row + 1), nbytes // rows)
        await self.until_wanted()

    async def until_wanted(self) -> None:
        shared = self._shared
        while shared.receiver_open and (shared.buffer or not shared.awaiting):
            await shared.changed()
        if not shared.receiver_open:
            raise ReceiverClosed


class Receiver(Generic[T]):
    """Receiving end. Iterate it, or call :meth:`receive`."""

    def __init__(self, shared: _Shared[T]) -> None:
        self._shared = shared
        self.counters: StageCounters | None = None
        self.on_wait: Callable[[bool], None] | None = None
        self.position: Position | None = None  # of the run that sends, where it is one

    async def receive(self) -> T:
        """Return the oldest item.

        Raises:
            EndOfStream: The sender closed and the buffer is empty.
            InputFailed: The sender failed and the buffer is empty.
            StreamAborted: The sender aborted. Items still buffered are not delivered.
        """
        if not self.ready:
            await self.wait_ready()
        return self.take()

    def wanted_for(self, is_awaited: Callable[[], bool]) -> None:
        """Set a callback that returns True if the receiver's own consumer waits for items."""
        self._shared.on_behalf_of = is_awaited

    @property
    def ready(self) -> bool:
        """Whether :meth:`receive` would return or raise at once."""
        return bool(self._shared.buffer) or self._shared.sender is not _SenderState.OPEN

    def take(self) -> T:
        """Do what :meth:`receive` does, without waiting; call only when :attr:`ready`."""
        shared = self._shared
        if shared.sender is _SenderState.ABORTED:
            raise StreamAborted
        if not shared.buffer:
            if shared.failure is not None:
                raise InputFailed(shared.failure)
            raise EndOfStream
        item, nbytes = shared.buffer.popleft()
        shared.nbytes -= nbytes
        shared.notify()
        return item

    async def wait_ready(self, *, is_needed: bool = True) -> None:
        """Wait until :attr:`ready`.

        Args:
            is_needed: Whether this very item is needed. False where the item of another channel would do.
        """
        shared = self._shared
        started = shared.input_wait_since = perf_counter()
        shared.awaiting += is_needed
        if shared.one_by_one:
            shared.notify()
        try:
            if self.on_wait is not None:
                self.on_wait(True)
            while not self.ready:
                await shared.changed()
        finally:
            shared.awaiting -= is_needed
            if not shared.awaiting:
                shared.input_wait_since = None
            if self.on_wait is not None:
                self.on_wait(False)
            if self.counters is not None:
                self.counters.input_wait_s += perf_counter() - started

    def check(self, rows: int) -> None:
        """Raise CardinalityError unless so many rows, all that were sent, arrived; call at the end of the stream."""
        sent = self._shared.rows
        if self._shared.sender is not _SenderState.CLOSED or (sent is not None and sent != rows):
            raise CardinalityError(
                f"{'more' if sent is None else sent} rows were sent and {rows} arrived; this is a bug in "
                "aiostream_data, and the epoch cannot be trusted"
            )

    @property
    def waits(self) -> ChannelWaits:
        """What either end waits for."""
        return ChannelWaits(self._shared.input_wait_since, self._shared.room_wait_since)

    def snapshot(self) -> ChannelSnapshot:
        """Return how much is buffered now."""
        return self._shared.snapshot()

    def close(self) -> None:
        """Drop what is buffered and refuse further items."""
        shared = self._shared
        shared.receiver_open = False
        shared.failure = None  # an error may keep rows alive
        shared.buffer.clear()
        shared.nbytes = 0
        shared.notify()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        try:
            return await self.receive()
        except EndOfStream:
            raise StopAsyncIteration from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def open_channel(max_items: int, max_nbytes: int) -> tuple[Sender[Any], Receiver[Any]]:
    """Return the two ends of a new channel.

    Args:
        max_items: Most items buffered at once; at least 1.
        max_nbytes: Most bytes buffered at once, as declared by the sender; at least 1.

    Raises:
        ValueError: Either limit is below 1.
    """
    for name, value in (("max_items", max_items), ("max_nbytes", max_nbytes)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    shared: _Shared[Any] = _Shared(max_items, max_nbytes)
    return Sender(shared), Receiver(shared)


def open_stepped_channel() -> tuple[OneByOne, Receiver[Any]]:
    """Return the two ends of a channel through which rows go one at a time, each when the receiver waits for it."""
    shared: _Shared[Any] = _Shared(1, 1)
    return OneByOne(shared), Receiver(shared)
