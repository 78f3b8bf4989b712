"""Hand elements from the engine's loop to the consumer, on any thread or loop.

How this works. The loop puts *parcels* (lists of elements that are ready) into a queue; the consumer
takes a parcel and then serves itself from it, so that the cost of crossing threads is paid once per
parcel and not per element. The queue is bounded: the loop waits while the consumer has not taken the
parcels before. An ending (finished, or an error) is a parcel of its own, and stays: asked again, the
bridge answers the same again.
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
    """Elements ready for the consumer.

    Attributes:
        elements: In order; never empty.
        own_ids: RowIds of the elements, a row each.
        ids: The same, or what each element was made of where that is several rows.
        runs: RowIds of the rows of all elements, in order and in as few arrays as there are; or None.
        nbytes: What the elements hold.
        lease: Ends the budget's charge when the parcel is dropped.
    """

    elements: list[Any]
    own_ids: RowIds
    ids: RowIds | list[MadeOf | None]
    nbytes: int
    lease: object
    runs: Sequence[RowIds] | None = None


@dataclass(frozen=True, slots=True)
class Ending:
    """How the stream ended: ``error`` is None when it finished."""

    error: BaseException | None


class Waiting(NamedTuple):
    """A consumer that waits.

    Attributes:
        since: ``perf_counter()`` when it began; earlier, where it has waited for the same element before, by as much.
        thread: Identifier of its thread.
        number: Of the wait: how many it had ended with something.
    """

    since: float
    thread: int
    number: int = 0


class Bridge:
    """One producer (the engine's loop), one consumer at a time.

    Args:
        max_elements: Elements that may wait for the consumer; a parcel may go over it alone.

    Attributes:
        consumer: Says since when the consumer waits for a parcel; None while it does not.
        on_wait: Called when the consumer begins to wait, on its thread.
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
        self._waited_s = 0.0  # in vain, since something was received
        self._received_count = 0

    @property
    def waiting(self) -> int:
        """Elements that wait for the consumer."""
        return self._waiting

    def consumer_has_nothing(self) -> bool:
        """Return whether the consumer waits, and no parcel is on its way to it. From any thread."""
        return self.consumer is not None and self._queue.empty()

    # -- the engine's side

    async def put(self, parcel: Parcel) -> None:
        """Wait for room and hand the parcel over. Loop thread only."""
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
        """Hand over the ending, behind all that still waits; with ``discard`` nothing of that is delivered.

        Of several errors the first one counts. From any thread.
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
            with suppress(RuntimeError):  # the consumer's loop was closed; its loader will be collected
                loop.call_soon_threadsafe(resolve, future)

    def _taken(self, count: int) -> None:
        self._waiting -= count
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    # -- the consumer's side

    @contextmanager
    def consumer_waits(self) -> Iterator[None]:
        """Note that the consumer waits for as long as the block takes."""
        began = perf_counter()
        self.consumer = Waiting(began - self._waited_s, threading.get_ident(), self._received_count)
        try:
            self.on_wait()
            yield
        finally:
            self.consumer = None
            self._waited_s += perf_counter() - began

    def get(self) -> Parcel | Ending:
        """Block until there is a parcel or an ending. Interruptible by signals in the main thread."""
        if self._ending is not None:
            return self._ending
        with self.consumer_waits():
            item = self._queue.get()
        return self._received(item)

    def get_within(self, timeout_s: float) -> Parcel | Ending | None:
        """Like :meth:`get`, but return None when there is nothing after ``timeout_s`` seconds."""
        if self._ending is not None:
            return self._ending
        try:
            with self.consumer_waits():
                item = self._queue.get(timeout=timeout_s)
        except Empty:
            return None
        return self._received(item)

    async def get_async(self) -> Parcel | Ending:
        """Await a parcel or an ending on the caller's own loop. Cancelling it loses nothing."""
        while self._ending is None:
            try:
                item = self._queue.get_nowait()
            except Empty:
                item = None  # awaited below, so that a cancellation there has no Empty for its context
            if item is not None:
                return self._received(item)
            await self._wait_for_more()
        return self._ending

    async def _wait_for_more(self) -> None:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        with self._lock:
            self._async_waiter = (loop, future)
        if not self._queue.empty():  # put between the look and the registration
            return
        with self.consumer_waits():
            await future

    def _received(self, item: Parcel | Ending) -> Parcel | Ending:
        self._received_count += 1
        self._waited_s = 0.0
        if isinstance(item, Ending):
            self._ending = item
            self._queue.put(item)  # for another thread that waits as well, and must not for ever
        return item

    def took(self, parcel: Parcel) -> None:
        """Mark the parcel as delivered, which makes room for the next."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the engine has ended; what it left in the queue is still good
                self._loop.call_soon_threadsafe(self._taken, len(parcel.elements))


def resolve(future: asyncio.Future[None]) -> None:
    """Wake the waiter of ``future``, unless it was cancelled or woken before. Call on its loop."""
    if not future.done():
        future.set_result(None)
