"""Loader: a running dataset. Users iterate the loader with ``for`` or ``async for``, monitor it, and close it."""

from __future__ import annotations

import asyncio
import sys
import threading
import weakref
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from time import perf_counter
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Generic, NoReturn, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.consumer.bridge import Ending, Parcel
from aiostream_data.arguments import integer, shown
from aiostream_data.errors import ArgumentTypeError, LoaderClosedError, NotPicklableError, PlanError
from aiostream_data.executors.forks import keep_from_forks
from aiostream_data.interrupts import interrupts_after
from aiostream_data.loading.exclusions import Exclusions
from aiostream_data.loading.observation import Observation
from aiostream_data.loading.opening import Opening
from aiostream_data.loading.received import LAST_ELEMENT, Received
from aiostream_data.metrics.counters import ConsumerCounters
from aiostream_data.metrics.html_table import html_table
from aiostream_data.metrics.report import LoaderStats, MemoryStats, Report, snapshot, with_holders_elsewhere
from aiostream_data.plan.base import at_least
from aiostream_data.rows.provenance import Origin
from aiostream_data.storage.counters import joined
from aiostream_data.storage.lanes import request_limits

if TYPE_CHECKING:
    from aiostream_data._engine.engine import Engine
    from aiostream_data.device.wait_limit import Patience
    from aiostream_data.weights import Weights

T = TypeVar("T")


class Loader(Generic[T]):
    """One pass over a dataset, created by :meth:`Dataset.open`.

    Use a loader in a ``with`` or ``async with`` block and iterate it with ``for`` or ``async for``. Any thread may
    iterate, inside or outside a running event loop. Several threads, or several tasks of one event loop, share the
    elements: each element goes to one of them. A dedicated thread with its own event loop runs the pipeline. The
    consumer owns the received elements, but must release leased batches (``to_device(handoff="lease")``). A child
    process forked while a loader is open can only close the loader. Any other use of the loader in a forked child
    raises :class:`~aiostream_data.errors.ForkedPipelineError`.

    All tasks, threads, processes and connections stop within two seconds after the block ends or an error occurs.
    Closing the loader, or dropping its last reference, also stops the loader within two seconds.
    """

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._received: Received
        self._consumer = ConsumerCounters()
        self._start(opening)
        self._consumer.started_at = perf_counter()
        self._asked_before: list[Mapping[str, Mapping[str, float]]] = []
        self._left: Iterator[Any] = iter(())
        self._put_back: list[Parcel] = []  # at most one parcel whose hand-over failed
        self._receiving: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None
        self._receiving_thread = threading.Lock()  # for threads that receive the next parcel
        self._ending: Ending | None = None
        self._closed = False
        self._in_forks = _InForks(self)
        keep_from_forks(self._in_forks)

    def _start(self, opening: Opening) -> None:
        """Start an engine at the position of the saved state, and reset the counters of received elements."""
        with interrupts_after():  # an interrupt here would leave the engine running without an owner
            self._engine = opening.engine()
            # Pass the engine by weak reference: the traceback of a stored error may refer to this loader, and a strong
            # reference would then keep the loader alive forever. The engine's thread keeps a running engine alive.
            finalizer = weakref.finalize(self, _stop_soon, weakref.ref(self._engine))
            finalizer.atexit = False  # the engine has its own ordered shutdown at exit
        self._received = Received(opening, self._engine)
        self._observation = Observation(self._engine, self._consumer)
        self._opening = opening

    def __reduce__(self) -> NoReturn:
        """Reject pickling and copying.

        Raises:
            NotPicklableError: Always, because the threads and connections of a loader cannot leave their process.
                Pickle the Dataset instead.
        """
        raise NotPicklableError(
            "a Loader cannot be pickled or copied. Pickle its Dataset and its state_dict(), and open the copy with "
            "that state."
        )

    # -- iteration

    def __iter__(self) -> Iterator[T]:
        """Return an iterator over the remaining elements. A second ``for`` loop continues where the first loop stopped.

        Raises:
            LoaderClosedError: The stream has ended or the loader was closed. To start a second epoch, use ``repeat()``
                or open the dataset again.
        """
        return chain.from_iterable(portions_of(self))

    def __next__(self) -> T:
        """Return the next element of the stream.

        A later ``for`` loop continues after this element. Raise StopIteration at the end of the stream.

        Raises:
            LoaderClosedError: The loader was closed or has failed.
        """
        self._check_process()
        while True:
            taken = self._left
            for element in taken:
                return cast(T, element)
            if not self._has_more(taken):
                raise StopIteration

    def _portions(self) -> Iterator[Iterator[T]]:
        """Yield an iterator over the elements of each parcel. The consumer takes all of them before the next."""
        has_more = True
        while has_more:
            taken = self._left
            yield taken
            has_more = self._has_more(taken)

    def _has_more(self, taken: Iterator[Any]) -> bool:
        """Receive the next parcel after ``taken``, unless another thread has. Return False at the end of the stream."""
        with self._receiving_thread:
            if self._left is not taken:
                return True
            if self._ending is not None and not self._closed:
                self._check_error()
                return False
            self._check_open()
            self._engine.wait_ready()
            return self._accept(self._next_parcel())

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
        while patience is not None and (look_s := patience.next_look_s()) is not None:
            item = bridge.get_within(look_s)
            if item is not None:
                return item
        return bridge.get()

    def _patience(self) -> Patience | None:
        """Return the limit of waiting for batches in device slots, or None without a device."""
        devices = list(self._engine.resources.devices.values())
        if not devices:
            return None
        from aiostream_data.device.wait_limit import Patience  # needed for devices only

        return Patience(devices)

    def __aiter__(self) -> AsyncIterator[T]:
        """Return an async iterator over the remaining elements."""
        self._check_open()
        return self

    async def __anext__(self) -> T:
        self._check_process()
        while True:
            for element in self._left:
                return cast(T, element)
            if self._ending is not None:
                self._check_error()
                raise StopAsyncIteration
            self._check_open()
            await self._engine.wait_ready_async()
            before = self._left
            async with self._turns():
                if self._left is before:  # no other task has received elements in the meantime
                    await self._receive_more()
            await asyncio.sleep(0)  # let other tasks of the caller run even if many elements are ready

    def _turns(self) -> asyncio.Lock:
        """Return the lock of the tasks of the running event loop that receive elements."""
        loop = asyncio.get_running_loop()
        if self._receiving is None or self._receiving[0] is not loop:
            self._receiving = loop, asyncio.Lock()
        return self._receiving[1]

    async def _receive_more(self) -> None:
        """Receive the next parcel (group of elements).

        Raises:
            StopAsyncIteration: The stream has ended.
        """
        if self._ending is not None:  # another task has received the end
            self._check_error()
            raise StopAsyncIteration
        self._let_go()
        if self._received.complete:
            self._accept(self._end_here())
            raise StopAsyncIteration
        item = await self._next_parcel_async()
        # Accept the item before the next await, so that a cancellation cannot lose it.
        if not self._accept(item):
            raise StopAsyncIteration

    async def _next_parcel_async(self) -> Parcel | Ending:
        if self._put_back:
            return self._put_back.pop()
        started = perf_counter()
        item = await self._get_async()
        self._consumer.waited(perf_counter() - started)
        return item

    async def _get_async(self) -> Parcel | Ending:
        bridge, patience = self._engine.bridge, self._patience()
        while patience is not None and (look_s := patience.next_look_s()) is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(look_s):
                    return await bridge.get_async()
        return await bridge.get_async()

    def _accept(self, item: Parcel | Ending) -> bool:
        """Accept a parcel (a group of elements) from the engine.

        Return False at the end of the stream. If the stream failed, raise its error.
        """
        if isinstance(item, Ending):
            if self._closed:  # closed by another thread or task: a truncated stream must not look complete
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
            return True  # the run failed and closed the device: the ending that follows has the error
        except BaseException:  # for example, the device is out of memory
            self._put_back.append(item)
            raise
        self._left = self._received.take(item, numbers, elements)
        self._engine.bridge.took(item)
        return True

    def _end_here(self) -> Ending:
        """Stop the engine because the consumer needs no further elements, and return an end marker."""
        self._engine.stop_soon()
        return Ending(None)

    def _let_go(self) -> None:
        """Count a parcel (group of elements) as consumed, and return its bytes to the memory budget."""
        self._check_open()
        elements, nbytes = self._received.let_go()
        self._consumer.elements += elements
        self._consumer.nbytes += nbytes

    def _check_open(self) -> None:
        self._check_process()
        if self._closed:
            raise LoaderClosedError("the loader is closed. Open the dataset again.")
        if self._ending is not None:
            self._check_error()
            raise LoaderClosedError(
                "the loader has no more elements. Open the dataset again, or add .repeat(n) to the pipeline."
            )

    def _check_error(self) -> None:
        if self._ending is not None and self._ending.error is not None:
            error = self._ending.error
            raise LoaderClosedError(f"the loader has failed with {type(error).__name__}: {error}") from error

    def _check_process(self) -> None:
        self._engine.check_process()

    # -- introspection

    @property
    def last_ids(self) -> NDArray[np.int64] | None:
        """Row ids (split, ordinal) of the last element, as int64 of shape (rows, 2 or more).

        The row ids are None before the first element, and between two groups of delivered elements.
        """
        self._check_process()
        ids = self._received.last_ids(self._left)
        return None if ids is None else ids.padded()

    def state_dict(self) -> dict[str, Any]:
        """Return the consumer's position in the stream as small, JSON-compatible data.

        ``dataset.open(state=...)`` resumes after the last received element. The resumed loader emits exactly the
        remaining elements, in the same order. Elements that the loader has read ahead do not count as received. Saving
        a state does not stop the loader. A state holds positions, seeds and the ids of buffered rows. It holds no data,
        except the state of a :meth:`~Dataset.scan` and the first keys of a :meth:`~Dataset.unique`.
        """
        self._check_process()
        return self._received.saved(self._left).as_dict()

    def origins(self, element: Any = LAST_ELEMENT) -> list[Origin]:
        """Return the origins of the rows of an element (usually a batch), in the order of the rows.

        Args:
            element: The last received element (the default). The loader compares objects by identity, so pass the
                received object itself.

        Raises:
            UnknownElementError: No element was received yet, or ``element`` is not the last received element. Older
                elements cannot be identified, because one object, such as a small integer, can occur in many rows.
        """
        self._check_process()
        return self._received.origins(self._left, element)

    @property
    def stream_hash(self) -> str:
        """128-bit hash of the received rows and their positions in the stream, as 32 hexadecimal digits.

        Two runs that received the same rows in the same order have the same hash, for any number of workers and any
        buffer sizes. The function :func:`combine_hashes` merges the hashes of all ranks into the hash of a single
        process that reads all rows. After resuming from a saved state, the hash continues from its saved value.
        """
        self._check_process()
        return self._received.hash(self._left).hex

    # -- steering

    def skip(self, count: int) -> None:
        """Skip the next ``count`` elements: the loader reads and discards them.

        States saved later include the skipped range.
        """
        first = self._received.number(self._left)
        self._steer(Exclusions.of([(first, first + at_least("count", count, 1))]))

    def block(self, entries: Iterable[Any]) -> None:
        """Exclude the given rows and objects from the rest of the stream. States saved later include the exclusion.

        The exclusion of rows takes effect at the next element. The loader discards data that was read ahead and reads
        the data again.

        Args:
            entries: Origins, (URL, record index) pairs, or URLs of objects to exclude completely.
        """
        self._steer(Exclusions.of(block=entries))

    def replay(self, first: int, stop: int) -> Loader[T]:
        """Return a new loader that emits the elements from ``first`` to ``stop`` (exclusive) again, unchanged.

        Elements are numbered from the start of the stream. The new loader starts from the position at which this loader
        was opened. The position of this loader does not change.

        Raises:
            PlanError: The requested elements precede the position at which this loader was opened.
        """
        self._check_process()
        begun = 0 if self._opening.saved is None else self._opening.saved.elements
        for name, value in (("first", first), ("stop", stop)):
            integer(name, value)
        if not begun <= first < stop:
            raise PlanError(
                f"replay({first}, {stop}) is out of range: this loader was opened at element {begun}. "
                f"Use {begun} <= first < stop."
            )
        steering = Exclusions(blocked=self._opening.steering.blocked)
        weights = self._engine.state.weights_so_far()
        return Loader(replace(self._opening, steering=steering, only=(first, stop), weights=weights))

    def _steer(self, more: Exclusions) -> None:
        """Restart the engine at the consumer's position with additional skipped ranges or blocked rows."""
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
        """Change the weights of a mixture from one row onward. Return the number of the first row with the new weights.
        Thread-safe.

        The new weights remain in effect in all later epochs. The saved state from :meth:`state_dict` includes the
        change of weights.

        Args:
            weights: One weight per dataset of the mixture. If the plan has several mixtures, pass a dict by dataset
                name.
            from_row: First row of the mixture (not of a batch) with the new weights. The loader must not have chosen a
                dataset for ``from_row`` yet. The default is the first row without a chosen dataset, or 0 if the loader
                has not started.

        Raises:
            PlanError: The weights match no mixture of the plan, or the dataset of ``from_row`` is already chosen.
        """
        self._check_open()
        return self._engine.state.set_weights(weights, from_row)

    def __repr__(self) -> str:
        from aiostream_data.plan.shown import on_one_line

        given = self._consumer.elements + self._received.given(self._left)
        elements = "1 element" if given == 1 else f"{given:,} elements"
        return f"<Loader of {on_one_line(self._opening.plan)}: {elements} received, {self._standing()}>"

    def _repr_html_(self) -> str:
        """Return the chain of operators and a table of their stages as HTML for notebooks."""
        if not self._engine.is_here:  # a forked process has no counters
            return html_table([repr(self)], [])
        return html_table([repr(self)], []) + self.stats()._repr_html_()

    def _standing(self) -> str:
        if self._closed:
            return "closed"
        if self._ending is None:
            return "open"
        return "ended" if self._ending.error is None else f"failed with {type(self._ending.error).__name__}"

    def stats(self) -> LoaderStats:
        """Return the current counters of every stage, of the consumer and of memory use."""
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
        stats = snapshot(board, consumer, stores, memory, waiting, found.hex, found.rows, cost, devices, until)
        return replace(stats, request_limits=request_limits(stores))

    def report(self) -> Report:
        """Return a report: a table of the stages, and a sentence that names the bottleneck.

        The bottleneck is measured from the first element on, and needs at least one second. Earlier reports state that
        the measurement is incomplete.
        """
        from aiostream_data.loading.diagnosis import diagnosed  # imported lazily: many programs never need it
        from aiostream_data.loading.start import told_of_start

        stats = self.stats()
        window = self._observation.window(is_busy=self._received.is_in_parcel(self._left))
        plan = self._engine.plan
        start = told_of_start(self._consumer, stats.wall_s, self._observation.start, plan)
        return Report(stats, diagnosed(self._opening, plan, window), start)

    def debug(self) -> Iterator[T]:
        """Return an iterator that computes the remaining elements one at a time on the caller's thread.

        User functions run inside ``next()``, so that ``breakpoint()``, ``print`` and profilers work inside these
        functions. ``next()`` may be called on any thread, and inside a running event loop. The iterator starts no
        processes and computes nothing ahead. The iterator returns the same elements, order and ``rng`` values as a
        normal run. The position of this loader does not change.

        Raises:
            StageBuildError: Raised during iteration if the source can be read only once and this loader reads it.
        """
        self._check_open()
        saved = self._received.saved(self._left)
        weights = self._engine.state.weights_so_far()
        run = replace(self._opening.run, debug=True)
        return iter(Loader(replace(self._opening, run=run, saved=saved, seed=None, weights=weights)))

    def dump(self, file: IO[str] | None = None) -> str:
        """Return a text that describes all current activity in the loader.

        If ``file`` is given, also write the description to this file.

        The text names the stage that the consumer waits for. For every stage, the text lists pending waits, waits for
        memory, and running functions with their records and durations. The text also contains the stacks of all tasks,
        threads and worker processes. ``dump`` works on any thread and in signal handlers, even while another thread
        waits for an element.

        Raises:
            ArgumentTypeError: ``file`` is not an open text file.
        """
        if file is not None and not callable(getattr(file, "write", None)):
            raise ArgumentTypeError(f"file must be an open text file or None, got {shown(file)}")
        self._check_process()
        text = self._engine.dump()
        if file is not None:
            file.write(text + "\n")
        return text

    # -- closing

    def close(self) -> None:
        """Stop the loader and wait until it has stopped. Idempotent. Do nothing in a forked child process."""
        if self._leave():
            self._engine.stop()
            self._engine.bridge.end(None, discard=True)

    async def aclose(self) -> None:
        """Stop the loader as :meth:`close` does, but without blocking the event loop."""
        if self._leave():
            await self._engine.stop_async()
            self._engine.bridge.end(None, discard=True)

    def _leave(self) -> bool:
        """Stop emitting elements.

        Return True if the loader has an engine to stop; always False in a forked child process.
        """
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
        """Empty the iterator of a running ``for`` loop, so that the loop receives no further elements."""
        left = [*self._left, *(element for parcel in self._put_back for element in parcel.elements)]
        self._left, self._put_back = iter(()), []
        for element in left:
            if _is_device_batch(element):
                element.discard()

    def wait_ready(self) -> None:
        """Block until the loader has listed its files and started all stages.

        Raises:
            NoMatchError, StorageError, DeviceUnavailableError, MissingExtraError: The loader cannot start.
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
    """Fork hook that discards buffered elements in a child process.

    Only the parent process may emit the buffered elements.
    """

    def __init__(self, loader: Loader[Any]) -> None:
        self._loader = weakref.ref(loader)

    def let_go(self) -> None:
        loader = self._loader()
        if loader is not None:
            loader._give_up_left()


def portions_of(loader: Loader[T]) -> Iterator[Iterator[T]]:
    """Return an iterator over the remaining elements of a loader, as one iterator for each parcel.

    ``chain.from_iterable`` of them costs less per element than a generator of elements.

    Raises:
        LoaderClosedError: As ``iter(loader)``.
    """
    loader._check_open()
    loader.wait_ready()
    return loader._portions()


def _stop_soon(engine: weakref.ref[Engine]) -> None:
    running = engine()
    if running is not None:
        running.stop_soon()


def _is_device_batch(element: Any) -> bool:
    """Return True for a batch in a device slot. Without a device, the modules of the device stage are not imported."""
    module = sys.modules.get("aiostream_data.device.device_batch")
    return module is not None and isinstance(element, module.DeviceBatch)


def _handed_out(parcel: Parcel, numbers: Sequence[int]) -> list[Any]:
    """Return the selected elements of a parcel (a group of elements) in the form that the consumer receives."""
    elements = parcel.elements
    if not _is_device_batch(elements[0]):
        return elements if len(numbers) == len(elements) else [elements[number] for number in numbers]
    (batch,) = elements  # one device batch per parcel: a failed hand-over affects no other batch
    if not numbers:
        batch.discard()
        return []
    return [batch.hand_over()]  # on the consumer's thread, ordered after its current stream
