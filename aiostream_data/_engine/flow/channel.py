"""Pass chunks from one stage to the next. The sender waits while the buffer is full.

A channel has a sender and a receiver. The sender's ``close()`` marks the stream as complete. The sender's ``fail()``
ends the stream with an error, which the receiver raises after all chunks sent earlier. The sender's ``abort()`` marks
the stream as incomplete and discards buffered chunks. The receiver can distinguish a complete, a failed and an aborted
stream, so a truncated stream never looks complete. Only the event-loop thread may use a channel.
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
    """Exception: the sender was closed and the receiver has taken every item."""


class StreamAborted(Exception):
    """Exception: the sender stopped early, so the items received so far are not the complete stream."""


class InputFailed(Exception):
    """Exception: the sender failed, and the receiver has taken all items sent earlier.

    Attributes:
        error: Error with which the sender failed.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(type(error).__name__)  # the error of a user may have no working repr()
        self.error = error


class ReceiverClosed(Exception):
    """Exception: the receiver was closed, so the item cannot be delivered."""


class ChannelSnapshot(NamedTuple):
    """Number and size in bytes of the items buffered in a channel, with the largest size so far."""

    items: int
    nbytes: int
    peak_nbytes: int


class ChannelWaits(NamedTuple):
    """Times from ``perf_counter()`` at which the receiver started to wait for an item, and the sender for room.

    None means that the sender or receiver is not waiting.
    """

    for_input: float | None
    for_room: float | None


class _SenderState(Enum):
    OPEN = auto()
    CLOSED = auto()
    FAILED = auto()
    ABORTED = auto()


class ChannelState(Generic[T]):
    """State shared by the sender and the receiver of a channel."""

    __slots__ = (
        "_waiters",
        "awaiting",
        "buffer",
        "failure",
        "input_wait_since",
        "is_asked",
        "max_items",
        "max_nbytes",
        "nbytes",
        "on_behalf_of",
        "peak_nbytes",
        "receiver_open",
        "room_wait_since",
        "rows",
        "sender",
    )

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
        self.is_asked = False  # True if the receiver has asked for another item; see demand_channel.py
        self.input_wait_since: float | None = None  # perf_counter() at the start of the receiver's wait
        self.room_wait_since: float | None = None
        self.on_behalf_of: Callable[[], bool] | None = None
        self._waiters: list[asyncio.Future[None]] = []

    def has_room_for(self, nbytes: int) -> bool:
        # An empty buffer accepts any item: otherwise an item above the limit could never pass.
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
    """Sending end. Leaving the sender's ``with`` block normally closes the channel; an exception aborts the stream.

    Use :func:`.task_errors.carrying` instead of ``with`` to send the exception to the receiver.
    """

    __slots__ = ("_shared", "counters")

    def __init__(self, shared: ChannelState[T]) -> None:
        self._shared = shared
        self.counters: StageCounters | None = None

    async def send(self, item: T, nbytes: int = 0) -> None:
        """Wait for room in the buffer, then append ``item`` and count it as ``nbytes`` bytes.

        Raises:
            ReceiverClosed: The receiver was closed before or during the wait.
        """
        await self.until(lambda: self._shared.has_room_for(nbytes))
        self.put(item, nbytes)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until ``holds()`` returns True or the receiver is closed."""
        shared = self._shared
        if not shared.receiver_open or holds():
            return
        started = shared.room_wait_since = perf_counter()
        try:
            while shared.receiver_open and not holds():
                await shared.changed()
        finally:
            shared.room_wait_since = None
            if self.counters is not None:
                self.counters.output_wait_s += perf_counter() - started

    def put(self, item: T, nbytes: int = 0) -> None:
        """Append ``item`` without waiting for room. Use this method for items that are already in memory.

        Raises:
            ReceiverClosed: The receiver was closed.
        """
        shared = self._shared
        if not shared.receiver_open:
            raise ReceiverClosed
        shared.buffer.append((item, nbytes))
        shared.is_asked = False
        shared.nbytes += nbytes
        shared.peak_nbytes = max(shared.peak_nbytes, shared.nbytes)
        shared.notify()

    @property
    def is_awaited(self) -> bool:
        """True if the receiver and all later stages, up to the consumer, are waiting for an item."""
        shared = self._shared
        if not shared.awaiting or shared.buffer:
            return False
        return shared.on_behalf_of is None or shared.on_behalf_of()

    @property
    def waits(self) -> ChannelWaits:
        """Start times of the waits of the sender and the receiver."""
        return ChannelWaits(self._shared.input_wait_since, self._shared.room_wait_since)

    def snapshot(self) -> ChannelSnapshot:
        """Return the number and the size of the buffered items."""
        return self._shared.snapshot()

    async def until_wanted(self) -> None:
        """Wait until the sender may produce an item. In a buffered channel, the method returns immediately.

        Raises:
            ReceiverClosed: The receiver was closed during the wait.
        """

    def declare(self, rows: int) -> None:
        """Declare how many rows the sender has sent in total, before the stream ends."""
        self._shared.rows = rows

    def close(self) -> None:
        """Mark the stream as complete. Do nothing if the stream has already ended."""
        self._finish(_SenderState.CLOSED)

    def fail(self, error: BaseException) -> None:
        """Make the receiver raise ``error`` after it has received all items sent earlier.

        Do nothing if the stream has already ended.
        """
        if self._shared.sender is _SenderState.OPEN:
            self._shared.failure = error
        self._finish(_SenderState.FAILED)

    def abort(self) -> None:
        """Mark the stream as incomplete. Do nothing if the stream has already ended."""
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


class Receiver(Generic[T]):
    """Receiving end. Iterate over the receiver, or call :meth:`receive`.

    Attributes:
        nbytes: Size in bytes of the last received item, as declared by the sender.
    """

    __slots__ = ("_shared", "begin", "counters", "nbytes", "on_wait", "position")

    def __init__(self, shared: ChannelState[T]) -> None:
        self._shared = shared
        self.nbytes = 0
        self.counters: StageCounters | None = None
        self.on_wait: Callable[[bool], None] | None = None
        self.position: Position | None = None  # position of the sending run, if a run sends
        self.begin: Callable[[], None] | None = None  # starts the sending run; None if the run has started

    async def receive(self) -> T:
        """Remove and return the oldest buffered item. If the buffer is empty, wait for an item.

        Raises:
            EndOfStream: The sender closed the channel and the buffer is empty.
            InputFailed: The sender failed and the buffer is empty.
            StreamAborted: The sender aborted. Buffered items are not delivered.
        """
        if not self.ready:
            await self.wait_ready()
        return self.take()

    def wanted_for(self, is_awaited: Callable[[], bool]) -> None:
        """Set a function that returns True if a later stage or the consumer waits for the receiving stage's output."""
        self._shared.on_behalf_of = is_awaited

    @property
    def ready(self) -> bool:
        """True if :meth:`receive` would return or raise without waiting."""
        return bool(self._shared.buffer) or self._shared.sender is not _SenderState.OPEN

    @property
    def has_ended(self) -> bool:
        """True if the sender closed the channel and the buffer is empty."""
        return not self._shared.buffer and self._shared.sender is _SenderState.CLOSED

    def take(self) -> T:
        """Perform :meth:`receive` without waiting. Call only if :attr:`ready`."""
        shared = self._shared
        if shared.sender is _SenderState.ABORTED:
            raise StreamAborted
        if not shared.buffer:
            if shared.failure is not None:
                raise InputFailed(shared.failure)
            raise EndOfStream
        item, self.nbytes = shared.buffer.popleft()
        shared.nbytes -= self.nbytes
        shared.notify()
        return item

    def ask(self) -> None:
        """Ask for an item without waiting for it, unless an item is buffered.

        Only a sender of :mod:`.demand_channel` waits until the receiver asks.
        """
        shared = self._shared
        if not shared.buffer and not shared.is_asked:
            shared.is_asked = True
            shared.notify()

    async def wait_ready(self, *, is_needed: bool = True) -> None:
        """Wait until :attr:`ready`.

        Args:
            is_needed: False if the receiver can continue with an item from another channel.
        """
        shared = self._shared
        started = shared.input_wait_since = perf_counter()
        shared.awaiting += is_needed
        shared.is_asked = True
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
        """Raise CardinalityError unless ``rows`` equals the number of rows that the sender declared.

        Call this method at the end of the stream.
        """
        sent = self._shared.rows
        if self._shared.sender is not _SenderState.CLOSED or (sent is not None and sent != rows):
            raise CardinalityError(
                f"rows were lost between two stages: {'more' if sent is None else sent} rows were sent and {rows} "
                "arrived. This is a bug in aiostream_data: report it, and discard this epoch."
            )

    @property
    def waits(self) -> ChannelWaits:
        """Start times of the waits of the sender and the receiver."""
        return ChannelWaits(self._shared.input_wait_since, self._shared.room_wait_since)

    def snapshot(self) -> ChannelSnapshot:
        """Return the number and the size of the buffered items."""
        return self._shared.snapshot()

    def close(self) -> None:
        """Close the receiver: discard buffered items and reject new items."""
        shared = self._shared
        shared.receiver_open = False
        shared.failure = None  # its traceback may keep rows in memory
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
    """Create a channel; return its sender and its receiver.

    Args:
        max_items: Maximum number of buffered items; at least 1.
        max_nbytes: Maximum total size of the buffered items in bytes, as declared by the sender; at least 1.

    Raises:
        ValueError: ``max_items`` or ``max_nbytes`` is below 1.
    """
    for name, value in (("max_items", max_items), ("max_nbytes", max_nbytes)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    shared: ChannelState[Any] = ChannelState(max_items, max_nbytes)
    return Sender(shared), Receiver(shared)
