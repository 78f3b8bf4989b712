"""Pass elements from the engine's event loop to the consumer, which can use any thread or event loop.

How this works. The engine's event loop puts *parcels* (lists of finished elements) into a queue. The consumer takes one
parcel at a time, so the cost of passing data between threads arises only once per parcel. The queue is bounded: while
the queue is full, the engine's event loop waits for the consumer. The stream ends with an :class:`Ending`, which means
success or an error. Every call after the end returns the same ending.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import Any, NamedTuple

from aiostream_data.rows.lineage import MadeOf
from aiostream_data.rows.row_ids import RowIds


@dataclass(frozen=True, slots=True)
class Parcel:
    """Parcel: finished elements that the consumer can receive.

    Attributes:
        elements: The elements in order; the list is never empty.
        own_ids: Row ids of the elements, one row each.
        ids: Equal to ``own_ids``, or a list with one ``made_of`` entry per element if elements were made of several
            rows.
        runs: Row ids of all rows in the elements, in order and stored in few arrays; or None.
        nbytes: Size of the elements in bytes.
        lease: Object that releases the parcel's share of the memory budget when the parcel is deleted.
    """

    elements: list[Any]
    own_ids: RowIds
    ids: RowIds | list[MadeOf | None]
    nbytes: int
    lease: object
    runs: Sequence[RowIds] | None = None


@dataclass(frozen=True, slots=True)
class Ending:
    """End of the stream; ``error`` is None if the stream is complete."""

    error: BaseException | None


class Waiting(NamedTuple):
    """State of a consumer that is waiting for the next element.

    Attributes:
        since: Start of the wait in ``perf_counter()`` seconds, minus the time spent in earlier waits for the same
            element.
        thread: Identifier of the consumer's thread.
        number: Number of parcels (lists of elements) received before this wait.
    """

    since: float
    thread: int
    number: int = 0


class Bridge:
    """Bounded queue that passes parcels (lists of elements) from the engine's event loop to one consumer at a time.

    Args:
        max_elements: Maximum number of queued elements. A parcel with more elements is accepted if the queue is empty.

    Attributes:
        consumer: Current wait of the consumer; None while the consumer does not wait.
        on_wait: Function that is called on the consumer's thread when the consumer starts to wait.
    """

    def __init__(self, max_elements: int) -> None:
        self._max_elements = max_elements
        self._queue: SimpleQueue[Parcel | Ending] = SimpleQueue()
        self._waiting = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._room: asyncio.Future[None] | None = None
        self._lock = threading.Lock()
        self._async_waiter: tuple[asyncio.AbstractEventLoop, asyncio.Future[None]] | None = None
        self._ending: Ending | None = None
        self._failure: BaseException | None = None
        self.consumer: Waiting | None = None
        self.on_wait: Callable[[], None] = lambda: None
        self._waited_s = 0.0  # seconds of unsuccessful waits since the last parcel
        self._received_count = 0

    @property
    def waiting(self) -> int:
        """Number of queued elements."""
        return self._waiting

    def consumer_has_nothing(self) -> bool:
        """Return True if the consumer waits and the queue is empty. Safe from any thread."""
        return self.consumer is not None and self._queue.empty()

    # -- the engine's side

    async def put(self, parcel: Parcel) -> None:
        """Wait for room in the queue, then queue the parcel. Loop thread only."""
        self._loop = asyncio.get_running_loop()
        count = len(parcel.elements)
        while self._waiting and self._waiting + count > self._max_elements:
            await self._until_one_is_taken()
        self._waiting += count
        self._queue.put(parcel)
        self._wake_consumer()

    async def until_all_taken(self) -> None:
        """Wait until the consumer has taken every parcel. Loop thread only."""
        while self._waiting:
            await self._until_one_is_taken()

    async def _until_one_is_taken(self) -> None:
        self._room = asyncio.get_running_loop().create_future()
        await self._room

    def end(self, error: BaseException | None, discard: bool = False) -> None:
        """Queue the ending. With ``discard``, first remove all queued parcels.

        If this method is called with several errors, the consumer receives the first error. Safe from any thread.
        """
        if discard:
            self._drain()
        self._failure = self._failure or error
        self._queue.put(Ending(self._failure))
        self._wake_consumer()

    def _drain(self) -> None:
        while True:
            try:
                self._queue.get_nowait()
            except Empty:
                return

    def _wake_consumer(self) -> None:
        with self._lock:
            waiter, self._async_waiter = self._async_waiter, None
        if waiter is not None:
            loop, future = waiter
            with suppress(RuntimeError):  # the consumer's loop is closed
                loop.call_soon_threadsafe(resolve, future)

    def _taken(self, count: int) -> None:
        self._waiting -= count
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    # -- the consumer's side

    @contextmanager
    def consumer_waits(self) -> Iterator[None]:
        """Context manager that marks the consumer as waiting for the next element."""
        began = perf_counter()
        self.consumer = Waiting(began - self._waited_s, threading.get_ident(), self._received_count)
        try:
            self.on_wait()
            yield
        finally:
            self.consumer = None
            self._waited_s += perf_counter() - began

    def get(self) -> Parcel | Ending:
        """Block until a parcel or the ending arrives, and return the parcel or ending.

        Signals can interrupt this call in the main thread.
        """
        if self._ending is not None:
            return self._ending
        with self.consumer_waits():
            item = self._queue.get()
        return self._received(item)

    def get_within(self, timeout_s: float) -> Parcel | Ending | None:
        """Block like :meth:`get`, but return None after ``timeout_s`` seconds."""
        if self._ending is not None:
            return self._ending
        try:
            with self.consumer_waits():
                item = self._queue.get(timeout=timeout_s)
        except Empty:
            return None
        return self._received(item)

    async def get_async(self) -> Parcel | Ending:
        """Await a parcel or the ending on the caller's event loop. Cancellation loses no parcel."""
        while self._ending is None:
            try:
                item = self._queue.get_nowait()
            except Empty:
                item = None  # the await is outside the except block, so a cancellation does not get Empty as context
            if item is not None:
                return self._received(item)
            await self._wait_for_more()
        return self._ending

    async def _wait_for_more(self) -> None:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        with self._lock:
            self._async_waiter = (loop, future)
        if not self._queue.empty():  # an item arrived between the check and the registration
            return
        with self.consumer_waits():
            await future

    def _received(self, item: Parcel | Ending) -> Parcel | Ending:
        self._received_count += 1
        self._waited_s = 0.0
        if isinstance(item, Ending):
            self._ending = item
            self._queue.put(item)  # wake other waiting threads, which would block forever otherwise
        return item

    def took(self, parcel: Parcel) -> None:
        """Mark the parcel as delivered, which frees room in the queue."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the engine has ended; queued parcels stay valid
                self._loop.call_soon_threadsafe(self._taken, len(parcel.elements))


def resolve(future: asyncio.Future[None]) -> None:
    """Set the result of ``future`` unless the future is done. Call this function on the event loop of ``future``."""
    if not future.done():
        future.set_result(None)
