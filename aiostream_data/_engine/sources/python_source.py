"""Read rows from Python generators, iterables and async iterables."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Awaitable, Collection, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.calls.loop_steps import LoopSteps
from aiostream_data._engine.failures.carried_error import as_raisable
from aiostream_data._engine.flow.chunk_sizes import CHUNK_NBYTES, CHUNK_ROWS
from aiostream_data._engine.flow.context import hop
from aiostream_data._engine.flow.sizes import chunk_nbytes
from aiostream_data._engine.flow.stage import NumberedRows
from aiostream_data._engine.flow.stage_io import Inlet, Outlet
from aiostream_data._engine.resume.lineage_reader import TABLE
from aiostream_data._engine.resume.origins import Namespace, always, local
from aiostream_data._engine.resume.places import SKIPPED_ROWS, Place
from aiostream_data._engine.sources.generator_signature import check_signature
from aiostream_data._engine.sources.one_shot_rows import OneShotRows
from aiostream_data._native import pull_elements
from aiostream_data.errors import AiostreamError, DamagedStateError, StageBuildError, StateMismatchError
from aiostream_data.executors.failure import workable
from aiostream_data.executors.thread import ThreadExecutor
from aiostream_data.plan.base import Node
from aiostream_data.plan.cardinality import cardinality
from aiostream_data.plan.sources import Generator, PythonIterable
from aiostream_data.rows.lineage import Lineage
from aiostream_data.rows.object_nbytes import object_nbytes
from aiostream_data.rows.records import Chunk
from aiostream_data.rows.row_ids import OTHER_PIPELINE, RowIds
from aiostream_data.state_fields import MAX_COUNT
from aiostream_data.transforms.collate import collate

PASSED_PER_HOP = 1024
"""Maximum number of elements that one call on a worker thread skips when resuming.

A run can be cancelled between two such calls.
"""

PULL_S = 0.005
"""Maximum time for collecting the elements of one chunk, in seconds."""

_begun: weakref.WeakSet[Node] = weakref.WeakSet()
"""One-shot iterables that a run has started to read."""


@dataclass
class PythonSource(NumberedRows):
    """Stage of a ``Generator`` or ``PythonIterable`` plan node: emits the items of an iterator.

    A dedicated thread runs and closes a sync iterator, so the iterator may block. The engine's event loop awaits an
    async iterator. On resume, the stage runs the iterator again from its beginning and skips the rows already
    delivered.
    """

    refills: ClassVar[bool] = True  # skipped rows of a one-shot iterable are kept for recalls

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        node = self.node
        self.counters.waits_for = "user"
        if isinstance(node, PythonIterable) and node.one_shot:
            _begin_once(node)
        namespace = self._namespace()
        with self.context.services.workers.thread(f"asd-{node.label}") as thread:
            source = await hop(self.counters, thread.submit(self._make(), *getattr(node, "args", ())))
            is_async = hasattr(source, "__aiter__")
            self.counters.runs_in = "loop" if is_async else "threads"
            if is_async:
                await self._run_async(aiter(source), namespace, outlet)
            else:
                await self._run_sync(thread, source, namespace, outlet)

    async def _run_sync(self, thread: ThreadExecutor, iterable: Any, namespace: Namespace, outlet: Outlet) -> None:
        iterator = await hop(self.counters, thread.submit(iter, iterable))
        # Send the first item before pulling the second, which may take long.
        count, ended, nbytes = 1, False, 0
        try:
            first = self._first
            self._keep(await self._pass_over(thread, iterator, first, self._wanted()))
            await outlet.refill()
            while not ended:
                room = await outlet.admit(nbytes)
                pull = thread.submit(_pull, iterator, count, namespace.base, first, self._signature(), self._name())
                chunk, ended, failure = await hop(self.counters, pull)
                first += len(chunk)
                count = self._following(4 * len(chunk))
                nbytes = chunk_nbytes(chunk)
                room.resize(nbytes)
                await outlet.send(chunk.with_lease(room))
                del chunk, room
                if failure is not None:
                    raise as_raisable(failure)
        finally:
            close = getattr(iterator, "close", None)
            if close is not None:
                thread.submit(close)  # runs after the pull in progress, which may block forever

    async def _run_async(self, iterator: AsyncIterator[Any], namespace: Namespace, outlet: Outlet) -> None:
        count, ended, nbytes = 1, False, 0
        steps = LoopSteps(self.counters.extra)
        try:
            first = self._first
            self._keep(await _pass_over_async(iterator, first, self._wanted()))
            await outlet.refill()
            while not ended:
                room = await outlet.admit(nbytes)
                started = perf_counter()
                elements, ended, failure = await _pull_async(iterator, steps, count, first, self._name())
                count = self._following(4 * count)
                self.counters.busy_s += perf_counter() - started
                chunk, wrong = await self.hop(_chunk, elements, namespace.base, first, self._signature())
                failure = wrong or failure
                first += len(chunk)
                nbytes = chunk_nbytes(chunk)
                room.resize(nbytes)
                await outlet.send(chunk.with_lease(room))
                del elements, chunk, room
                if failure is not None:
                    raise as_raisable(failure)
        finally:
            close = getattr(iterator, "aclose", None)
            if close is not None:
                await _to_its_end(close())

    @classmethod
    def schema(cls, place: Place) -> Iterator[Place]:
        yield from super().schema(place)
        if place.node is None or place.rows.most >= MAX_COUNT or cls.count(place.node) is not None:
            return
        # Resuming reads again from row 0, so a number far beyond the rows received would take forever.
        most = max(place.rows.most, place.scope.received) + SKIPPED_ROWS
        named = place.scope.book.ordinals_of(place.scope.keys[place.node])
        if len(named) and int(named[-1]) >= most:
            raise DamagedStateError(
                TABLE.path, f"refers to row {int(named[-1])} of {place.node.label}, but {most} rows are the limit"
            )

    @classmethod
    def count(cls, node: Any) -> int | None:
        rows = cardinality(node)
        return rows if rows >= 0 else None

    # -- recall

    async def recall(self, lineage: Lineage) -> Chunk:
        _, ordinals = local(lineage.ids)
        count = self.count(self.node)
        if (ordinals < 0).any() or (count is not None and (ordinals >= count).any()):
            row = int(ordinals[np.abs(ordinals).argmax()])
            raise StateMismatchError([f"{self._name()} has no row {row}"], OTHER_PIPELINE)
        namespace = self._namespace()
        if getattr(self.node, "one_shot", False):
            kept = await self.context.services.features.of(OneShotRows).of(self.node)
        else:
            kept = await self._read_again(ordinals)
        lost = [row for row in ordinals.tolist() if row not in kept]
        if lost:
            raise StateMismatchError(
                [f"{self._name()} was read past row {lost[0]}, and can be read only once"],
                "Pass a re-iterable object, or use from_generator() with a function.",
            )
        ids = RowIds.of_source(namespace.base, ordinals)
        return collate([kept[row] for row in ordinals.tolist()], ids)

    async def _read_again(self, ordinals: NDArray[np.int64]) -> dict[int, Any]:
        wanted, count = set(ordinals.tolist()), int(ordinals.max()) + 1
        with self.context.services.workers.thread(f"asd-{self.node.label}") as thread:
            source = await hop(self.counters, thread.submit(self._make(), *getattr(self.node, "args", ())))
            if hasattr(source, "__aiter__"):
                iterator = aiter(source)
                try:
                    return await _pass_over_async(iterator, count, wanted)
                finally:
                    if (aclose := getattr(iterator, "aclose", None)) is not None:
                        await aclose()
            iterator = await hop(self.counters, thread.submit(iter, source))
            try:
                return await self._pass_over(thread, iterator, count, wanted)
            finally:
                if (close := getattr(iterator, "close", None)) is not None:
                    thread.submit(close)

    async def _pass_over(
        self, thread: ThreadExecutor, iterator: Iterator[Any], count: int, keep: Collection[int]
    ) -> dict[int, Any]:
        """Skip ``count`` elements of the iterator, in several worker-thread calls.

        Return a dict with the skipped elements whose numbers are in ``keep``.
        """
        kept: dict[int, Any] = {}
        for start in range(0, count, PASSED_PER_HOP):
            stop = min(start + PASSED_PER_HOP, count)
            await hop(self.counters, thread.submit(_pass_over, iterator, start, stop, count, keep, kept))
        return kept

    def _following(self, count: int) -> int:
        """Limit the number of elements to pull next: 1 in debug mode, else at most ``CHUNK_ROWS``."""
        return 1 if self.context.services.workers.one_at_a_time else max(1, min(count, CHUNK_ROWS))

    def _make(self) -> Any:
        node = self.node
        return node.factory if isinstance(node, Generator) else lambda: node.iterable

    def _wanted(self) -> set[int]:
        """For a one-shot iterable, return the row numbers that the saved state lists. Otherwise return an empty set."""
        if not getattr(self.node, "one_shot", False):
            return set()
        return set(self.context.services.book.ordinals_of(self.context.keys[self.node]).tolist())

    def _keep(self, passed: dict[int, Any]) -> None:
        if getattr(self.node, "one_shot", False):
            self.context.services.features.of(OneShotRows).of(self.node).set_result(passed)

    def _namespace(self) -> Namespace:
        return self.context.namespace(self.node, always(self._name()))

    def _name(self) -> str:
        return f"{self.node.label}({self.node.factory_name if isinstance(self.node, Generator) else ''})"

    def _signature(self) -> Any:
        return self.node.signature if isinstance(self.node, Generator) else None


def _begin_once(node: PythonIterable) -> None:
    # A second run would silently lose the rows that the first run had read ahead.
    if node in _begun:
        raise StageBuildError(
            f"cannot read the {type(node.iterable).__name__} passed to from_iterable() again: it can be read only "
            "once. Pass a re-iterable object, use from_generator() with a function, or put .cache() after it."
        )
    _begun.add(node)


def _pull(
    iterator: Iterator[Any], count: int, split: int, first: int, signature: Any, name: str
) -> tuple[Chunk, bool, BaseException | None]:
    """Pull up to ``count`` elements from the iterator.

    Return a chunk, a flag that is True at the end of the iterator, and the iterator's error, if any.
    """
    elements: list[Any] = []
    ended, failure = False, None
    try:
        ended = pull_elements(iterator, elements, count, CHUNK_NBYTES, perf_counter() + PULL_S, object_nbytes)
    except BaseException as raised:  # noqa: BLE001 - raised behind the elements before
        failure = workable(raised)
        failure.add_note(f"record: {name} record {first + len(elements)}")
    chunk, wrong = _chunk(elements, split, first, signature)
    return chunk, ended, wrong or failure


async def _pull_async(
    iterator: AsyncIterator[Any], steps: LoopSteps, count: int, first: int, name: str
) -> tuple[list[Any], bool, BaseException | None]:
    elements: list[Any] = []
    nbytes = 0
    deadline = perf_counter() + PULL_S
    while len(elements) < count and nbytes < CHUNK_NBYTES and (not elements or perf_counter() < deadline):
        try:
            element = await steps.watched(anext(iterator), perf_counter())
        except StopAsyncIteration:
            return elements, True, None
        except BaseException as raised:
            task = asyncio.current_task()
            if isinstance(raised, asyncio.CancelledError) and task is not None and task.cancelling():
                raise
            failure = workable(raised)
            failure.add_note(f"record: {name} record {first + len(elements)}")
            return elements, False, failure
        elements.append(element)
        nbytes += object_nbytes(element)
    return elements, False, None


def _pass_over(
    iterator: Iterator[Any], start: int, stop: int, needed: int, keep: Collection[int], kept: dict[int, Any]
) -> None:
    for row in range(start, stop):
        try:
            element = next(iterator)
        except StopIteration:
            raise _too_short(row, needed) from None
        except Exception as error:
            error.add_note(f"record: number {row} of the source")
            raise
        if row in keep:
            kept[row] = element


async def _pass_over_async(iterator: AsyncIterator[Any], count: int, keep: Collection[int]) -> dict[int, Any]:
    """Skip ``count`` elements. Return a dict with the skipped elements whose numbers are in ``keep``."""
    kept: dict[int, Any] = {}
    for row in range(count):
        try:
            element = await anext(iterator)
        except StopAsyncIteration:
            raise _too_short(row, count) from None
        except Exception as error:
            error.add_note(f"record: number {row} of the source")
            raise
        if row in keep:
            kept[row] = element
    return kept


async def _to_its_end(closing: Awaitable[None]) -> None:
    """Wait until the user's cleanup code has ended, even if the waiting task is cancelled again."""
    task = asyncio.ensure_future(closing)
    cancellation: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancellation = error
    if cancellation is not None:
        raise cancellation


def _too_short(rows: int, needed: int) -> StateMismatchError:
    return StateMismatchError(
        [f"the source has {rows} rows, but the state was saved after {needed} rows"], "Restore the rows of the source."
    )


def _chunk(elements: list[Any], split: int, first: int, signature: Any) -> tuple[Chunk, AiostreamError | None]:
    """Check the elements against the signature, and collate the elements before the first mismatch.

    Return the chunk, and the error or None.
    """
    wrong = None
    for row, element in enumerate(elements if signature is not None else ()):
        try:
            check_signature(element, signature, first + row)
        except AiostreamError as error:
            wrong, elements = error, elements[:row]
            break
    return collate(elements, RowIds.run(split, first, len(elements))), wrong
