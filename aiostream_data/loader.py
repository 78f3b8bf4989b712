"""A running data set: iterate it from a plain loop or an async one, look at it, close it."""

from __future__ import annotations

import asyncio
import operator
import weakref
from collections.abc import AsyncIterator, Generator, Iterator
from dataclasses import asdict, replace
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast

import numpy as np

from aiostream_data._engine.bridge import Ending, Parcel
from aiostream_data.device.device_slots import DeviceBatch
from aiostream_data.errors import LoaderClosedError
from aiostream_data.metrics.counters import ConsumerCounters
from aiostream_data.metrics.report import LoaderStats, MemoryStats, Report, snapshot
from aiostream_data.records import Ids, source_ids
from aiostream_data.saved import Saved

if TYPE_CHECKING:
    from aiostream_data._engine.engine import Engine

T = TypeVar("T")

PARCELS_REMEMBERED = 64
"""After so many parcels the engine hears which places nobody will ask for any more."""


class Loader(Generic[T]):
    """One pass over a data set, made by :meth:`Dataset.open`.

    Use it in a ``with`` or ``async with`` block, and iterate it with ``for`` or ``async for``: from any
    thread, inside or outside a running event loop, one consumer at a time. The work is done by an
    event loop of its own on a thread of its own. Elements belong to the consumer.

    Leaving the block, closing, failing, or dropping the last reference stops every task, thread,
    process and connection within two seconds.
    """

    def __init__(self, engine: Engine, saved: Saved | None = None) -> None:
        self._engine = engine
        self._before = 0 if saved is None else saved.elements
        self._forgotten = 0
        self._consumer = ConsumerCounters(started_at=perf_counter())
        self._parcel: Parcel | None = None
        self._left: Iterator[Any] = iter(())
        self._ending: Ending | None = None
        self._closed = False
        finalizer = weakref.finalize(self, engine.stop_soon)
        finalizer.atexit = False  # the engine stops itself at exit, in order

    # -- iteration

    def __iter__(self) -> Iterator[T]:
        """Return an iterator over the elements not yet given; a new ``for`` goes on where one left off.

        Raises:
            LoaderClosedError: The stream has ended or the loader was closed: a second epoch has to be
                asked for, with ``repeat()`` or by opening again, so that it never silently is empty.
        """
        self._check_open()
        self._engine.wait_ready()
        return self._elements()

    def _elements(self) -> Generator[T, None, None]:
        while True:
            yield from self._left
            if not self._accept(self._next_parcel()):
                return

    def _next_parcel(self) -> Parcel | Ending:
        self._let_go()
        started = perf_counter()
        item = self._engine.bridge.get()
        self._consumer.wait_s += perf_counter() - started
        return item

    def __aiter__(self) -> AsyncIterator[T]:
        """Return an async iterator over the elements not yet given; see :meth:`__iter__`."""
        self._check_open()
        return self

    async def __anext__(self) -> T:
        self._check_process()
        while True:
            for element in self._left:
                return cast(T, element)
            if self._ending is not None:
                raise StopAsyncIteration
            self._check_open()
            await self._engine.wait_ready_async()
            self._let_go()
            started = perf_counter()
            item = await self._engine.bridge.get_async()
            self._consumer.wait_s += perf_counter() - started
            # Accepted before anything else is awaited, so that a cancellation cannot lose it.
            if not self._accept(item):
                raise StopAsyncIteration
            await asyncio.sleep(0)  # elements that are ready must not starve the caller's other tasks

    def _accept(self, item: Parcel | Ending) -> bool:
        """Take a parcel in; False at the end of the stream; raise what the stream failed with."""
        if isinstance(item, Ending):
            if self._closed:  # by another thread or task: a stream cut short must not look finished
                self._check_open()
            first_time = self._ending is None
            self._ending = item
            if item.error is not None and first_time:
                raise item.error
            self._check_error()
            return False
        self._check_process()
        now = perf_counter()
        consumer = self._consumer
        consumer.first_at = consumer.first_at or now
        consumer.last_at = now
        try:
            self._left = _handed_out(item)
        except LoaderClosedError:
            self._check_open()
            return True  # the run has failed and closed the device meanwhile: the ending, which comes next, says why
        self._parcel = item
        self._engine.bridge.took(item)
        return True

    def _let_go(self) -> None:
        """Count the parcel that was used up, and give its bytes back to the budget."""
        self._check_open()
        if self._parcel is not None:
            self._consumer.elements += len(self._parcel.elements)
            self._consumer.nbytes += self._parcel.nbytes
            self._parcel = None
            self._forgotten += 1
            if self._forgotten % PARCELS_REMEMBERED == 0:
                self._engine.forget(self._consumer.elements)

    def _check_open(self) -> None:
        self._check_process()
        if self._closed:
            raise LoaderClosedError("the loader was closed; open the data set again")
        if self._ending is not None:
            self._check_error()
            raise LoaderClosedError(
                "the loader has given all its elements; open the data set again, or put .repeat(n) into the chain"
            )

    def _check_error(self) -> None:
        if self._ending is not None and self._ending.error is not None:
            error = self._ending.error
            raise LoaderClosedError(f"the loader has ended with {type(error).__name__}: {error}") from error

    def _check_process(self) -> None:
        self._engine.check_process()

    # -- what it says of itself

    @property
    def last_ids(self) -> Ids | None:
        """Ids (split, ordinal) of the rows of the element given last: int64 (rows, 2); None before the first."""
        given = self._given()
        if self._parcel is None or given == 0:
            return None
        ids = self._parcel.ids
        if isinstance(ids, list):
            return source_ids(self._parcel.own_ids[given - 1 : given], ids[given - 1])
        return np.asarray(ids[given - 1 : given])

    def state_dict(self) -> dict[str, Any]:
        """Return where the consumer stands, as small plain data that goes through JSON unchanged.

        ``dataset.open(state=...)`` goes on behind the element that was received last: with exactly the
        elements that were left, in the same order. It refers to what was received, whatever was read ahead,
        and stops nothing. It holds positions, seeds, and the ids of rows that were held back, never data.
        """
        engine = self._engine
        given = self._consumer.elements + self._given()
        saved = Saved(
            elements=self._before + given,
            epoch=engine.options.epoch,
            seed=engine.root_seed,
            **engine.place(given),
        )
        return saved.as_dict()

    def stats(self) -> LoaderStats:
        """Return counters of every stage, of the consumer and of memory, as of now."""
        engine = self._engine
        budget = MemoryStats(engine.budget.limit, engine.budget.used, engine.budget.peak, engine.budget.wait_s)
        storage = [asdict(stores.counters) for stores in engine.stores.values()]
        consumer = replace(self._consumer, elements=self._consumer.elements + self._given())
        return snapshot(engine.board, consumer, storage, budget, engine.bridge.waiting)

    def _given(self) -> int:
        """Return how many elements of the current parcel were given."""
        if self._parcel is None:
            return 0
        return len(self._parcel.elements) - operator.length_hint(self._left)

    def report(self) -> Report:
        """Return a table of the stages and one sentence naming the one that limits; print it with ``str``."""
        return Report(self.stats())

    # -- ending

    def close(self) -> None:
        """Stop everything and wait until it has stopped. Idempotent."""
        self._leave()
        self._engine.stop()
        self._engine.bridge.end(None, discard=True)

    async def aclose(self) -> None:
        """Like :meth:`close`, awaited."""
        self._leave()
        await self._engine.stop_async()
        self._engine.bridge.end(None, discard=True)

    def _leave(self) -> None:
        self._closed = True
        self._left = iter(())
        self._parcel = None

    def wait_ready(self) -> None:
        """Block until files were found and stages started.

        Raises:
            NoMatchError, StorageError, DeviceUnavailableError, MissingExtraError: What prevented it.
        """
        self._engine.wait_ready()

    def __enter__(self) -> Self:
        self._check_process()
        self._engine.wait_ready()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        self._check_process()
        await self._engine.wait_ready_async()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.aclose()


def _handed_out(parcel: Parcel) -> Iterator[Any]:
    if isinstance(parcel.elements[0], DeviceBatch):
        # Taken out on the consumer's own thread, ordered after its current stream.
        return iter([batch.materialise() for batch in parcel.elements])
    return iter(parcel.elements)
