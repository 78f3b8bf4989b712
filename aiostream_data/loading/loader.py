"""A running data set: iterate it from a plain loop or an async one, look at it, close it."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from time import perf_counter
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Generic, NoReturn, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.consumer.bridge import Ending, Parcel
from aiostream_data.arguments import integer, shown
from aiostream_data.device.device_batch import DeviceBatch
from aiostream_data.device.patience import Patience
from aiostream_data.errors import ArgumentTypeError, LoaderClosedError, NotPicklableError, PlanError
from aiostream_data.executors.forks import keep_from_forks
from aiostream_data.interrupts import interrupts_after
from aiostream_data.loading.observation import Observation
from aiostream_data.loading.opening import Opening
from aiostream_data.loading.received import LAST_ELEMENT, Received
from aiostream_data.loading.steering import Steering
from aiostream_data.metrics.counters import ConsumerCounters
from aiostream_data.metrics.html_table import html_table
from aiostream_data.metrics.report import LoaderStats, MemoryStats, Report, snapshot, with_holders_elsewhere
from aiostream_data.plan.base import at_least
from aiostream_data.rows.provenance import Origin
from aiostream_data.storage.counters import joined

if TYPE_CHECKING:
    from aiostream_data._engine.engine import Engine
    from aiostream_data.weights import Weights

T = TypeVar("T")


class Loader(Generic[T]):
    """One pass over a data set, made by :meth:`Dataset.open`.

    Use it in a ``with`` or ``async with`` block, and iterate it with ``for`` or ``async for``: from any
    thread, inside or outside a running event loop, one consumer at a time. The work is done by an
    event loop of its own on a thread of its own. Elements belong to the consumer; batches on loan
    (``to_device(handoff="lease")``) do until they are given back. In a process that was forked while it was
    open, everything but closing it raises :class:`~aiostream_data.errors.ForkedPipelineError`.

    Leaving the block, closing, failing, or dropping the last reference stops every task, thread,
    process and connection within two seconds.
    """

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._received: Received
        self._consumer = ConsumerCounters()
        self._start(opening)
        self._consumer.started_at = perf_counter()
        self._asked_before: list[Mapping[str, Mapping[str, float]]] = []
        self._left: Iterator[Any] = iter(())
        self._put_back: list[Parcel] = []  # at most one, which could not be handed over
        self._ending: Ending | None = None
        self._closed = False
        self._in_forks = _InForks(self)
        keep_from_forks(self._in_forks)

    def _start(self, opening: Opening) -> None:
        """Open an engine, and count from the place of its state on."""
        with interrupts_after():  # or nobody might have the engine to stop it
            self._engine = opening.engine()
            # By a weak reference: an error that the engine keeps refers to this loader by its traceback, and for
            # what a finalizer refers to, nothing is ever collected. A running engine is kept alive by its thread.
            finalizer = weakref.finalize(self, _stop_soon, weakref.ref(self._engine))
            finalizer.atexit = False  # the engine stops itself at exit, in order
        self._received = Received(opening, self._engine)
        self._observation = Observation(self._engine, self._consumer)
        self._opening = opening

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied.

        Raises:
            NotPicklableError: Always: threads and connections stay in their process, and a data set travels.
        """
        raise NotPicklableError(
            "a Loader cannot be pickled or copied: pickle its Dataset, and open that there, with the state"
        )

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

    def __next__(self) -> T:
        """Return the next element; StopIteration behind the last one. The same place in the stream as that of ``for``.

        Raises:
            LoaderClosedError: The loader was closed, or has failed.
        """
        self._check_process()
        while True:
            for element in self._left:
                return cast(T, element)
            if self._ending is not None and not self._closed:
                self._check_error()
                raise StopIteration
            self._check_open()
            self._engine.wait_ready()
            if not self._accept(self._next_parcel()):
                raise StopIteration

    def _elements(self) -> Generator[T, None, None]:
        while True:
            yield from self._left
            if not self._accept(self._next_parcel()):
                return

    def _next_parcel(self) -> Parcel | Ending:
        self._let_go()
        if self._received.complete:
            return self._end_here()
        if self._put_back:
            return self._put_back.pop()
        started = perf_counter()
        item = self._get()
        self._consumer.waited(perf_counter() - started)
        return item

    def _get(self) -> Parcel | Ending:
        bridge, patience = self._engine.bridge, self._patience()
        while (look_s := patience.next_look_s()) is not None:
            item = bridge.get_within(look_s)
            if item is not None:
                return item
        return bridge.get()

    def _patience(self) -> Patience:
        return Patience(list(self._engine.resources.devices.values()))

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
            if self._received.complete:
                self._accept(self._end_here())
                raise StopAsyncIteration
            item = await self._next_parcel_async()
            # Accepted before anything else is awaited, so that a cancellation cannot lose it.
            if not self._accept(item):
                raise StopAsyncIteration
            await asyncio.sleep(0)  # elements that are ready must not starve the caller's other tasks

    async def _next_parcel_async(self) -> Parcel | Ending:
        if self._put_back:
            return self._put_back.pop()
        started = perf_counter()
        item = await self._get_async()
        self._consumer.waited(perf_counter() - started)
        return item

    async def _get_async(self) -> Parcel | Ending:
        bridge, patience = self._engine.bridge, self._patience()
        while (look_s := patience.next_look_s()) is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(look_s):
                    return await bridge.get_async()
        return await bridge.get_async()

    def _accept(self, item: Parcel | Ending) -> bool:
        """Take a parcel in; False at the end of the stream; raise what the stream failed with."""
        if isinstance(item, Ending):
            if self._closed:  # by another thread or task: a stream cut short must not look finished
                self._check_open()
            first_time = self._ending is None
            self._ending = item
            self._received.settle(self._left)
            self._observation.end(is_busy=True)
            if item.error is not None and first_time:
                raise item.error
            self._check_error()
            return False
        self._check_process()
        self._consumer.received(perf_counter())
        if not self._observation.has_begun:
            self._observation.begin()
        numbers = self._received.wanted(item)
        try:
            elements = _handed_out(item, numbers)
        except LoaderClosedError:
            self._check_open()
            return True  # the run has failed and closed the device meanwhile: the ending, which comes next, says why
        except BaseException:  # the device has no room for it now, say
            self._put_back.append(item)
            raise
        self._left = self._received.take(item, numbers, elements)
        self._engine.bridge.took(item)
        return True

    def _end_here(self) -> Ending:
        """Return the ending of a stream of which no more is wanted."""
        self._engine.stop_soon()
        return Ending(None)

    def _let_go(self) -> None:
        """Count the parcel that was used up, and give its bytes back to the budget."""
        self._check_open()
        elements, nbytes = self._received.let_go()
        self._consumer.elements += elements
        self._consumer.nbytes += nbytes

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
    def last_ids(self) -> NDArray[np.int64] | None:
        """Ids (split, ordinal) of the rows of the element given last: int64 (rows, 2 or more).

        None before the first element, and between two hand-overs.
        """
        self._check_process()
        ids = self._received.last_ids(self._left)
        return None if ids is None else ids.padded()

    def state_dict(self) -> dict[str, Any]:
        """Return where the consumer stands, as small plain data that goes through JSON unchanged.

        ``dataset.open(state=...)`` goes on behind the element that was received last: with exactly the
        elements that were left, in the same order. It refers to what was received, whatever was read ahead,
        and stops nothing. It holds positions, seeds, and the ids of rows that were held back, never data.
        """
        self._check_process()
        return self._received.saved(self._left).as_dict()

    def origins(self, element: Any = LAST_ELEMENT) -> list[Origin]:
        """Return where the rows of an element (a batch, as a rule) came from, in their order.

        Args:
            element: The last element received, which is also the default. It is compared as an object, not by its
                value, so pass it as it was received.

        Raises:
            UnknownElementError: No element was received yet, or another one was received since. The same object may
                stand for many rows, as small integers do, so only its last hand-over can be named.
        """
        self._check_process()
        return self._received.origins(self._left, element)

    @property
    def stream_hash(self) -> str:
        """128 bits, as 32 hexadecimal digits, over which rows were received and at which place of the stream.

        Two runs that received the same rows in the same order have the same hash, whatever they were read with;
        those of all ranks give, by :func:`combine_hashes`, that of one process that received everything. It stays
        right over ``state_dict()`` and ``open(state=...)``.
        """
        self._check_process()
        return self._received.hash(self._left).hex

    # -- steering

    def skip(self, count: int) -> None:
        """Pass over the next ``count`` elements: they are read, and not given. Part of the state."""
        first = self._received.number(self._left)
        self._steer(Steering.of([(first, first + at_least("count", count, 1))]))

    def block(self, entries: Iterable[Any]) -> None:
        """Give none of these rows from here on. Part of the state.

        Takes effect with the next element: what was read ahead is given up and read again without them.

        Args:
            entries: Origins, (URL, record index) pairs, and URLs of whole objects.
        """
        self._steer(Steering.of(block=entries))

    def replay(self, first: int, stop: int) -> Loader[T]:
        """Return a loader that gives elements ``first`` to ``stop`` (excluded) once more, as they were given.

        They are counted from the stream's very beginning. It runs from the place at which this loader was opened,
        beside this loader, which stays where it is.

        Raises:
            PlanError: They came before the place at which this loader was opened.
        """
        self._check_process()
        begun = 0 if self._opening.saved is None else self._opening.saved.elements
        for name, value in (("first", first), ("stop", stop)):
            integer(name, value)
        if not begun <= first < stop:
            raise PlanError(f"elements {first} to {stop} cannot be given again from a loader opened at {begun}")
        steering = Steering(blocked=self._opening.steering.blocked)
        weights = self._engine.state.weights_so_far()
        return Loader(replace(self._opening, steering=steering, only=(first, stop), weights=weights))

    def _steer(self, more: Steering) -> None:
        """Go on from where the consumer stands with something left out."""
        self._check_open()
        saved = self._received.saved(self._left)
        steering = self._opening.steering | more
        old = self._engine
        self._consumer.elements += self._received.given(self._left)
        self._asked_before += [process["storage"] for process in old.stats_elsewhere()]
        self._start(self._opening.again(replace(saved, steering=steering.as_dict()), steering=steering))
        old.stop_soon()
        self._asked_before.append(old.resources.storage_counters())
        self._give_up_left()

    def set_weights(self, weights: Weights, *, from_row: int | None = None) -> int:
        """Change the weights of a mixture from a row on, and return the row.

        What the schedule says no longer counts from there on, in later epochs neither. The change is part
        of :meth:`state_dict`. Call it from any thread.

        Args:
            weights: One per data set of the mixture; by name where the plan has several mixtures.
            from_row: A row of the mixture (not of a batch) that is not decided yet. By default the next
                one, which is some way ahead of the consumer; 0 before anything is decided.

        Raises:
            PlanError: They are no weights of a mixture of the plan, or ``from_row`` is decided already.
        """
        self._check_open()
        return self._engine.state.set_weights(weights, from_row)

    def __repr__(self) -> str:
        from aiostream_data.plan.shown import on_one_line

        given = self._consumer.elements + self._received.given(self._left)
        elements = "1 element" if given == 1 else f"{given:,} elements"
        return f"<Loader of {on_one_line(self._opening.plan)}: {elements} received, {self._standing()}>"

    def _repr_html_(self) -> str:
        """Return the chain, and the stages as a table, for notebooks."""
        if not self._engine.is_here:  # a fork has no counters
            return html_table([repr(self)], [])
        return html_table([repr(self)], []) + self.stats()._repr_html_()

    def _standing(self) -> str:
        if self._closed:
            return "closed"
        if self._ending is None:
            return "open"
        return "ended" if self._ending.error is None else f"failed with {type(self._ending.error).__name__}"

    def stats(self) -> LoaderStats:
        """Return counters of every stage, of the consumer and of memory, as of now."""
        self._check_process()
        resources = self._engine.resources
        budget = resources.budget
        elsewhere = self._engine.stats_elsewhere()
        counted = [(budget.used, budget.peak, budget.wait_s), *(process["memory"] for process in elsewhere)]
        used, peak, wait_s = map(sum, zip(*counted, strict=True))
        holders = with_holders_elsewhere(resources.holders(), [process["holders"] for process in elsewhere])
        memory = MemoryStats(self._opening.run.memory_limit, used, peak, wait_s, holders)
        asked = [resources.storage_counters(), *(process["storage"] for process in elsewhere)]
        stores = joined([*self._asked_before, *asked])
        prices = self._opening.prices
        cost = 0.0 if prices is None else prices.cost(stores)
        given = self._received.given(self._left)
        consumer = self._consumer.copy(self._consumer.elements + given)
        found = self._received.hash(self._left)
        waiting = self._engine.bridge.waiting
        devices = [device.copies() for device in resources.devices.values()]
        until = self._observation.until(is_busy=self._received.is_in_parcel(self._left))
        board = resources.board
        return snapshot(board, consumer, stores, memory, waiting, found.hex, found.rows, cost, devices, until)

    def report(self) -> Report:
        """Return a table of the stages and one sentence naming the one that limits; print it with ``str``.

        What limits is measured from the first element on, for a second at least: before that the report says so.
        """
        from aiostream_data.loading.diagnosis import diagnosed  # which many programs never need
        from aiostream_data.loading.start import told_of_start

        stats = self.stats()
        window = self._observation.window(is_busy=self._received.is_in_parcel(self._left))
        plan = self._engine.plan
        start = told_of_start(self._consumer, stats.wall_s, self._observation.start, plan)
        return Report(stats, diagnosed(self._opening, plan, window), start)

    def debug(self) -> Iterator[T]:
        """Return an iterator over the elements that are left, which makes them one at a time, in the caller's thread.

        Functions are called right inside its ``next()``, in any thread, also inside a running event loop, so that
        ``breakpoint()``, ``print`` and profilers work in them. No process is started and nothing runs ahead. Elements,
        their order and what ``rng`` draws are the same. This loader stays where it is.

        Raises:
            StageBuildError (when iterated): A source can be read only once, and this loader reads it.
        """
        self._check_open()
        saved = self._received.saved(self._left)
        weights = self._engine.state.weights_so_far()
        run = replace(self._opening.run, debug=True)
        return iter(Loader(replace(self._opening, run=run, saved=saved, seed=None, weights=weights)))

    def dump(self, file: IO[str] | None = None) -> str:
        """Return what everything in the loader does at this moment, as text, and write it to ``file`` if given.

        It names the stage that keeps the consumer waiting, and tells of every stage what it waits for, which functions
        run on which record and for how long, who waits for memory, and the stacks of all tasks, threads and worker
        processes. Call it from any thread, also while another one waits for an element, or in a signal handler.
        """
        if file is not None and not callable(getattr(file, "write", None)):
            raise ArgumentTypeError(f"file must be an open text file or None, got {shown(file)}")
        self._check_process()
        text = self._engine.dump()
        if file is not None:
            file.write(text + "\n")
        return text

    # -- ending

    def close(self) -> None:
        """Stop everything and wait until it has stopped. Idempotent. Stops nothing in a forked child."""
        if self._leave():
            self._engine.stop()
            self._engine.bridge.end(None, discard=True)

    async def aclose(self) -> None:
        """Like :meth:`close`, awaited."""
        if self._leave():
            await self._engine.stop_async()
            self._engine.bridge.end(None, discard=True)

    def _leave(self) -> bool:
        """Give nothing any more, and return whether there is anything to stop: not in a fork, where nothing runs."""
        self._closed = True
        if not self._engine.is_here:
            self._give_up_left()
            return False
        is_busy = self._received.is_in_parcel(self._left)
        self._consumer.elements += self._received.freeze(self._left)
        self._give_up_left()
        self._received.settle(self._left)
        self._observation.end(is_busy=is_busy)
        return True

    def _give_up_left(self) -> None:
        """Use up the iterator that a running ``for`` takes elements from, so that it gives none of them any more."""
        left = [*self._left, *(element for parcel in self._put_back for element in parcel.elements)]
        self._left, self._put_back = iter(()), []
        for element in left:
            if isinstance(element, DeviceBatch):
                element.discard()

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


class _InForks:
    """Lets the copy of a loader in a forked child give none of the elements that it has left: the parent gives them."""

    def __init__(self, loader: Loader[Any]) -> None:
        self._loader = weakref.ref(loader)

    def let_go(self) -> None:
        loader = self._loader()
        if loader is not None:
            loader._give_up_left()


def _stop_soon(engine: weakref.ref[Engine]) -> None:
    running = engine()
    if running is not None:
        running.stop_soon()


def _handed_out(parcel: Parcel, numbers: Sequence[int]) -> list[Any]:
    """Return the elements of these numbers as the consumer gets them."""
    elements = parcel.elements
    if not isinstance(elements[0], DeviceBatch):
        return elements if len(numbers) == len(elements) else [elements[number] for number in numbers]
    (batch,) = elements  # each is a parcel of its own, so that nothing is handed over when another one cannot be
    if not numbers:
        batch.discard()
        return []
    return [batch.hand_over()]  # on the consumer's own thread, behind its current stream
