"""Run a chain of maps, filters and parsers over the rows of a chunk, in one hop (one call on a worker).

Consecutive row-wise operators become *parts* of one work object, so rows are sent to a worker and back only once. All
hops of a run share one work object, and each worker process receives this object once. The work object can be pickled
if the user functions in it can be pickled. The result of a hop stores the number of rows and the time of each part, so
the metrics of each operator are exact.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter, thread_time
from typing import Any, Final, Literal, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.calls.column_rows import with_column
from aiostream_data._engine.calls.listed_rows import listed
from aiostream_data._engine.calls.made_rows import Made
from aiostream_data._engine.calls.predicates import kept_rows
from aiostream_data._engine.calls.return_check import finished
from aiostream_data._engine.calls.user_code import (
    UserFunction,
    call_rows,
    map_batched,
    map_numbers,
)
from aiostream_data._engine.failures.carried_error import PartlyDone
from aiostream_data._engine.failures.element_summary import summary
from aiostream_data._engine.failures.failed_row import Failed
from aiostream_data._engine.flow.first_failing_row import leading
from aiostream_data._engine.flow.sizes import chunk_nbytes
from aiostream_data._engine.resume.row_keys import Stable
from aiostream_data.errors import PlanError
from aiostream_data.executors.failure import Failure, workable
from aiostream_data.metrics.cpu_samples import NO_LOOK, CoreLooks
from aiostream_data.metrics.machine import CoreTime, thread_switches
from aiostream_data.rows.records import Chunk, Columns, Items, concat
from aiostream_data.transforms.collate import collate, collate_results

BLOCK_ROWS = 4096
"""Maximum number of rows that exist as Python objects at once, chosen to fit the CPU cache."""

PartKind: TypeAlias = Literal["map", "batched", "filter", "parse", "inner", "listed", "column"]


@dataclass(frozen=True)
class HopPart:
    """Work of one operator in a hop (one call on a worker).

    Attributes:
        kind: Work of the operator. "inner" and "listed" return the results unchanged; "listed" reads iterators first.
        stage: Text that names the stage; added as a note to errors of the stage.
        column: Name of the column that the results form, if ``kind`` is "column".
    """

    kind: PartKind
    user: UserFunction
    stage: str
    column: str = ""

    def with_stable(self, stable: Stable) -> HopPart:
        """Return a copy that gets row names from ``stable``, for a worker process that cannot look up row names."""
        return replace(self, user=replace(self.user, stable=stable)) if self.user.rng_key is not None else self

    def __call__(self, chunk: Chunk) -> Made:
        """Run this operator over all rows of a chunk.

        If a row fails, return the results of the rows before the failure, and the error.
        """
        try:
            made = self._made(chunk)
        except BaseException as error:
            error.add_note(self.stage)
            raise
        if made.failure is not None:
            made.failure.add_note(self.stage)
        return made

    def _made(self, chunk: Chunk) -> Made:
        if self.kind == "filter":
            return _filtered(self.user, chunk)
        if self.kind == "batched":
            return _whole(self.user, chunk, partial(map_batched, self.user))
        if self.kind == "parse":
            return _whole(self.user, chunk, self.user.function)
        if self.kind == "column":
            return with_column(self.user, self.column, chunk, _mapped)
        if self.kind in ("inner", "listed"):
            return _unchanged(self.user, chunk, self.kind == "listed")
        return _mapped(self.user, chunk)


@dataclass(frozen=True, slots=True)
class Tally:
    """Statistics of one operator (part) in one hop.

    Attributes:
        rows_in: Number of input rows.
        rows: Number of output rows.
        nbytes: Output size in bytes.
        failed: Skipped and replaced rows, sorted by ``row``, the index of the row in the input.
        retries: Number of retries.
        busy_s: Wall time in seconds.
        cpu_s: CPU time in seconds.
    """

    rows_in: int
    rows: int
    nbytes: int
    failed: list[Failed]
    retries: int
    busy_s: float
    cpu_s: float

    @property
    def skipped(self) -> int:
        """Number of rows that were skipped because of an error."""
        return sum(failed.kind == "skip" for failed in self.failed)

    def __add__(self, other: Tally) -> Tally:
        later = [replace(failed, row=failed.row + self.rows_in) for failed in other.failed]
        return Tally(
            self.rows_in + other.rows_in,
            self.rows + other.rows,
            self.nbytes + other.nbytes,
            self.failed + later,
            self.retries + other.retries,
            self.busy_s + other.busy_s,
            self.cpu_s + other.cpu_s,
        )


_looks: Final = CoreLooks()


@dataclass(frozen=True, slots=True)
class Done:
    """Result of a hop.

    Attributes:
        chunk: Output rows of the last operator in the hop.
        nbytes: Size of ``chunk`` in bytes.
        kept: For each output row, its index in the input chunk; None if all input rows were kept.
        tallies: Statistics of each operator (part) in the hop. The counts cover all rows of the hop, even if a later
            part failed.
        failure: Error that ended the hop at input row number ``rows``; None on success.
        rows: Number of input rows processed before ``failure``; valid only if ``failure`` is set.
        preemptions: Number of involuntary context switches of the worker thread while it ran the hop.
        core: Seconds on a CPU core and seconds waiting for a core; zero if the hop was not measured.
    """

    chunk: Chunk
    nbytes: int
    kept: NDArray[np.int64] | None
    tallies: tuple[Tally, ...]
    failure: BaseException | None = None
    rows: int = 0
    preemptions: int = 0
    core: CoreTime = NO_LOOK

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the error as a ``Failure``, because some exceptions cannot be pickled."""
        told = None if self.failure is None else Failure(self.failure)
        more = self.rows, self.preemptions, self.core
        return _arrived, (self.chunk, self.nbytes, self.kept, self.tallies, told, *more)

    def up_to(self, row: int, failure: BaseException) -> Done:
        """Return a copy that ends before input row ``row``, which failed with ``failure``."""
        kept = np.arange(len(self.chunk)) if self.kept is None else self.kept
        count = int(np.searchsorted(kept, row))
        chunk = self.chunk.slice(0, count)
        return Done(chunk, chunk_nbytes(chunk), kept[:count], self.tallies, failure, row, self.preemptions, self.core)


def _arrived(
    chunk: Chunk,
    nbytes: int,
    kept: NDArray[np.int64] | None,
    tallies: tuple[Tally, ...],
    told: Failure | None,
    rows: int,
    preemptions: int,
    core: CoreTime,
) -> Done:
    return Done(chunk, nbytes, kept, tallies, None if told is None else told.as_error(), rows, preemptions, core)


@dataclass(frozen=True)
class RowWork:
    """Row-wise operators that run in one hop; call the object with a chunk to run them in order."""

    parts: tuple[HopPart, ...]

    def __call__(self, chunk: Chunk, stable: Stable | None = None) -> Done:
        kept: NDArray[np.int64] | None = None
        tallies: list[Tally] = []
        nbytes, failure, rows = 0, None, 0
        before, looked = thread_switches().preemptions, _looks.begin()
        for part in self.parts:
            wall, cpu, rows_in = perf_counter(), thread_time(), len(chunk)
            made = (part if stable is None else part.with_stable(stable))(chunk) if rows_in else Made(chunk)
            chunk, nbytes = made.chunk, chunk_nbytes(made.chunk)
            times = perf_counter() - wall, thread_time() - cpu
            tallies.append(Tally(rows_in, len(chunk), nbytes, made.failed, made.retries, *times))
            if made.failure is not None:  # its row precedes any row on which an earlier part failed
                failure, rows = made.failure, made.rows if kept is None else int(kept[made.rows])
            kept = _composed(kept, made.kept)
        preemptions = thread_switches().preemptions - before
        return Done(chunk, nbytes, kept, tuple(tallies), failure, rows, preemptions, _looks.end(looked))

    def prepare_worker(self) -> None:
        """Create this worker's user states before any call, so that ``init`` does not count towards a timeout."""
        for part in self.parts:
            try:
                part.user.call_with()
            except BaseException as error:
                error.add_note(part.stage)
                raise


def joined(dones: Sequence[Done], parts: int) -> Done:
    """Merge the results of several hops that processed consecutive slices of one chunk.

    All hops (calls on workers) must have succeeded.
    """
    first, given, kept = 0, [], []
    tallies = [Tally(0, 0, 0, [], 0, 0.0, 0.0)] * parts
    for done in dones:
        rows_in = done.tallies[0].rows_in
        kept.append(first + (np.arange(rows_in) if done.kept is None else done.kept))
        first += rows_in
        tallies = [before + now for before, now in zip(tallies, done.tallies, strict=True)]
        if len(done.chunk):
            given.append(done.chunk)
    chunk = concat(given) if given else dones[0].chunk
    nbytes, preemptions = sum(done.nbytes for done in dones), sum(done.preemptions for done in dones)
    core = CoreTime(*(sum(part) for part in zip(*(done.core for done in dones), strict=True)))
    return Done(chunk, nbytes, np.concatenate(kept), tuple(tallies), preemptions=preemptions, core=core)


def _composed(first: NDArray[np.int64] | None, then: NDArray[np.int64] | None) -> NDArray[np.int64] | None:
    if first is None or then is None:
        return then if first is None else first
    return first[then]


def _mapped(user: UserFunction, chunk: Chunk) -> Made:
    """Call the function for all rows, as few at a time as are Python objects at once: of numbers, only one."""
    if len(chunk) <= BLOCK_ROWS:
        return _mapped_block(user, chunk)
    first = _mapped_block(user, chunk.slice(0, BLOCK_ROWS))
    are_numbers = _numbers_of(user, chunk) is not None and _numbers_of(user, first.chunk) is not None
    bounds = [0, *range(BLOCK_ROWS, len(chunk), len(chunk) if are_numbers else BLOCK_ROWS), len(chunk)]
    begun = iter([first])
    blocks = [chunk.slice(start, stop) for start, stop in itertools.pairwise(bounds)]
    return _concatenated(lambda block: next(begun, None) or _mapped_block(user, block), blocks)


def _numbers_of(user: UserFunction, chunk: Chunk) -> NDArray[Any] | None:
    """Return the elements of a chunk if they are numbers for which native code can call the function."""
    if not user.is_plain or not isinstance(chunk, Columns) or not chunk.structure.is_leaf:
        return None
    numbers = chunk.leaves[0]
    is_plain = isinstance(numbers, np.ndarray) and numbers.ndim == 1 and numbers.dtype in (np.int64, np.float64)
    return cast("NDArray[Any]", numbers) if is_plain else None


def _mapped_numbers(user: UserFunction, chunk: Columns, numbers: NDArray[Any]) -> Made:
    try:
        mapped, failure = map_numbers(user, chunk, numbers), None
    except PartlyDone as partly:
        mapped, failure = partly.done, partly.error
    kept = None if failure is None else np.arange(len(mapped))
    return _only_finished(user, Made(_of_the_same(chunk, kept, mapped), kept, [], 0, failure, len(mapped)))


def _mapped_block(user: UserFunction, chunk: Chunk) -> Made:
    numbers = _numbers_of(user, chunk)
    if numbers is not None:
        return _mapped_numbers(user, cast(Columns, chunk), numbers)
    results = call_rows(user, chunk)
    kept = results.kept()
    more = results.failed, results.retries, results.failure, results.rows
    if kept is not None and not len(kept):
        return Made(chunk.slice(0, 0), kept, *more)
    mapped = collate_results(results.values, chunk.ids if kept is None else chunk.ids.take(kept))
    return _only_finished(user, Made(_of_the_same(chunk, kept, mapped), kept, *more))


def _unchanged(user: UserFunction, chunk: Chunk, reads_iterators: bool) -> Made:
    results = call_rows(user, chunk)
    kept = results.kept()
    values = list(map(listed, results.values)) if reads_iterators else results.values
    made = Items(values, chunk.ids if kept is None else chunk.ids.take(kept))
    return Made(_of_the_same(chunk, kept, made), kept, results.failed, results.retries, results.failure, results.rows)


def _only_finished(user: UserFunction, made: Made) -> Made:
    """Truncate the results before the first coroutine, generator or dataset, and record an error for that row."""
    found = leading(len(made.chunk), lambda first, stop: finished(user, made.chunk.slice(first, stop)))
    if found.error is None:
        return made
    kept = np.arange(len(made.chunk)) if made.kept is None else made.kept
    rows = int(kept[found.rows])
    failed = [failed for failed in made.failed if failed.row < rows]
    return Made(made.chunk.slice(0, found.rows), kept[: found.rows], failed, made.retries, found.error, rows)


def _filtered(user: UserFunction, chunk: Chunk) -> Made:
    kept, results = kept_rows(user, chunk)
    if len(kept) == len(chunk):
        return Made(chunk, None, results.failed, results.retries)
    return Made(chunk.take(kept), kept, results.failed, results.retries, results.failure, results.rows)


def _whole(user: UserFunction, chunk: Chunk, call: Callable[[Chunk], Chunk]) -> Made:
    """Call a function once for all rows.

    If the call raises an exception, call the function for fewer rows to find the failing row.
    """
    if user.handling.interferes:
        try:
            return Made(_of_the_same(chunk, None, call(chunk)))
        except Exception as error:  # noqa: BLE001 - of some row, which is found now
            may_be_left_out = not isinstance(error, PlanError)
        if may_be_left_out:
            return _concatenated(partial(_single, user, call), [chunk.slice(row, row + 1) for row in range(len(chunk))])
    found = leading(len(chunk), lambda first, stop: call(chunk.slice(first, stop)))
    if found.error is None:
        return Made(_of_the_same(chunk, None, found.done[0]))
    kept = np.arange(found.rows)
    given = concat(found.done) if found.done else chunk.slice(0, 0)
    return Made(_of_the_same(chunk, kept, given), kept, [], 0, workable(found.error), found.rows)


def _single(user: UserFunction, call: Callable[[Chunk], Chunk], row: Chunk) -> Made:
    """Process one row, with retries. After the last failed attempt, skip or replace the row, or return the failure."""
    handling = user.handling
    for attempt in itertools.count():
        try:
            return Made(_of_the_same(row, None, call(row)), None, [], attempt)
        except Exception as error:  # noqa: BLE001 - returned, or counted
            if attempt < handling.retries:
                user.pause(handling.pause_s(attempt))
                continue
            if handling.kind == "raise":
                return Made(row.slice(0, 0), np.empty(0, np.int64), [], attempt, workable(error))
            failed = [Failed.of(error, row, 0, summary(row.element(0)), handling.kind)]
            break
    if handling.kind == "skip":
        return Made(row.slice(0, 0), np.empty(0, np.int64), failed, attempt)
    return Made(_of_the_same(row, None, collate([handling.value], row.ids)), None, failed, attempt)


def _concatenated(work: Callable[[Chunk], Made], parts: Sequence[Chunk]) -> Made:
    """Run ``work`` over consecutive slices of a chunk until the first failure, and merge the results."""
    made: list[Made] = []
    firsts = [0]
    for part in parts:
        made.append(work(part))
        if made[-1].failure is not None:
            break
        firsts.append(firsts[-1] + len(part))
    failed = [
        replace(failed, row=failed.row + first)
        for part, first in zip(made, firsts, strict=False)
        for failed in part.failed
    ]
    given = [part.chunk for part in made if len(part.chunk)]
    chunk = concat(given) if given else made[0].chunk
    retries = sum(part.retries for part in made)
    if all(part.kept is None for part in made):
        return Made(chunk, None, failed, retries)
    kept = [
        first + (np.arange(len(part.chunk)) if part.kept is None else part.kept)
        for part, first in zip(made, firsts, strict=False)
    ]
    return Made(chunk, np.concatenate(kept), failed, retries, made[-1].failure, firsts[-1] + made[-1].rows)


def _of_the_same(given: Chunk, kept: NDArray[np.int64] | None, made: Chunk) -> Chunk:
    """Copy the lineage (ids of source rows) from the chunk ``given`` to its output ``made``; ``kept`` selects rows."""
    if given.made_of is None:
        return made
    entries = given.made_of
    return made.with_made_of(entries if kept is None else [entries[row] for row in kept.tolist()])
