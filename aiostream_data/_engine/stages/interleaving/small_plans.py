"""Operators over small files that were read in groups, such as ``Dataset.from_tfrecord(file).map(parse)``.

The run of one file would need tasks, channels and calls on worker threads for a few rows. So one call on a worker
thread runs the operators over the files of a group, in blocks of rows. It ends when its time or memory is used up, and
calls no function twice: a file that was begun gets a run that continues it, and the files after it get runs of their
own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.calls.pacing import HOP_GROWTH
from aiostream_data._engine.calls.row_work import RowWork, Tally
from aiostream_data._engine.calls.rowwise import part_of
from aiostream_data._engine.flow.chunk_sizes import HOP_ROWS
from aiostream_data._engine.flow.context import RunContext
from aiostream_data._engine.flow.sizes import chunk_nbytes
from aiostream_data._engine.sources.files_read import BegunFile, ContextOf, FileRows, FilesRead, RowCost
from aiostream_data._engine.stages.interleaving.file_plans import FilePlan, have_same_functions
from aiostream_data._engine.stages.interleaving.plan_positions import PlanPosition
from aiostream_data.plan.base import Node
from aiostream_data.plan.operators import Call, Filter, Take
from aiostream_data.rows.records import Chunk, concat

GROUP_S: Final = 0.02
"""Time in seconds after which the operators begin no further block of a group, whose first rows wait for the last."""

REST_S: Final = 0.01
"""A late group is finished if the operators need less than this estimated time for its other rows, in seconds."""

COSTLY_S: Final = 0.002
"""Operators that need more time than this per file, in seconds, run concurrently in runs of the files."""

FIRST_ROWS: Final = 16
"""Maximum number of rows of the first block, as later files can be more costly than earlier ones."""

NOTHING: Final = Tally(0, 0, 0, [], 0, 0.0, 0.0)
"""Statistics of an operator without rows."""


@dataclass
class _Progress:
    """What operators did with the rows of one file.

    Attributes:
        place: Place of the file in its group.
        file: Rows of the file.
        plan: Plan of the file.
        consumed: Number of rows of the file that went into the first operator.
        tallies: Statistics of each operator.
        kept: For each operator, the numbers of the input rows that it kept, in parts.
        failure: Error of the row behind the last output, and number of the operator that failed; None without one.
        is_unknown: True if an operator failed for an unknown row, so that the file must be read alone.
    """

    place: int
    file: FileRows
    plan: FilePlan
    consumed: int = 0
    tallies: list[Tally] = field(default_factory=list)
    kept: list[list[NDArray[np.int64]]] = field(default_factory=list)
    failure: tuple[BaseException, int] | None = None
    is_unknown: bool = False

    def __post_init__(self) -> None:
        self.tallies = [NOTHING for _ in self.plan.operators]
        self.kept = [[] for _ in self.plan.operators]

    @property
    def error(self) -> BaseException | None:
        """Error of the row behind the last output. A failure does not matter if enough rows came before it."""
        if self.failure is None or self._has_enough(self.failure[1] + 1):
            return None
        return self.failure[0]

    @property
    def is_over(self) -> bool:
        """True if no further row of the file is needed."""
        return self.consumed == self.file.rows or self.failure is not None or self._has_enough(0)

    def _has_enough(self, first: int) -> bool:
        operators, tallies = self.plan.operators[first:], self.tallies[first:]
        return any(
            isinstance(node, Take) and tally.rows >= node.count for node, tally in zip(operators, tallies, strict=True)
        )

    @property
    def position(self) -> PlanPosition:
        kept = [
            np.concatenate(parts) if parts else np.empty(0, np.int64) if isinstance(node, Filter) else None
            for node, parts in zip(self.plan.operators, self.kept, strict=True)
        ]
        rows_in, rows_out = [each.rows_in for each in self.tallies], [each.rows for each in self.tallies]
        return PlanPosition(self.file.position, self.plan.operators, rows_in, rows_out, kept)

    def output(self, first: int) -> FileRows:
        """Return the output rows, of which the first one is row ``first`` of the group's output."""
        rows = self.tallies[-1].rows
        return self.file._replace(first=first, rows=rows, position=self.position, done=self.tallies)


class _Piece(NamedTuple):
    """Consecutive rows of one file in a block."""

    of: _Progress
    start: int
    stop: int


def with_operators(
    read: FilesRead, plans: Sequence[FilePlan], context_of: ContextOf, most_nbytes: int, cost: RowCost | None
) -> FilesRead:
    """Run the operators of files that were read, until time or memory is used up. The result has no lease.

    Args:
        plans: Plans of the files.
        most_nbytes: Maximum size in bytes of the output of an operator.
        cost: Cost of a row of earlier files. With None, the first block has one row.
    """
    run = _GroupRun(read, plans, context_of, most_nbytes, cost)
    while (block := run.next_block()) is not None:
        run.process(block)
    return run.result()


class _GroupRun:
    """Operators that run over the files of a group. See :func:`with_operators`."""

    def __init__(
        self, read: FilesRead, plans: Sequence[FilePlan], context_of: ContextOf, most_nbytes: int, cost: RowCost | None
    ) -> None:
        self._read, self._context_of, self._left_nbytes, self._known = read, context_of, most_nbytes, cost
        self._files = [_Progress(place, file, plans[place]) for place, file in read.files.items()]
        self._next = 0  # number of the first file of which rows are left
        self._rows = 0  # of the last block
        self._costs: list[RowCost | None] = [None] * len(plans[0].operators)  # of each operator, in the last block
        self._nbytes = 0  # of all output rows
        self._began = perf_counter()
        self._chunks: list[Chunk] = []
        self._is_late = self._is_full = False

    @property
    def _cost(self) -> RowCost | None:
        """Cost of a row that no filter drops. The next rows cost at most as much, if they are like the last ones."""
        costs = [each for each in self._costs if each is not None]
        if len(costs) < len(self._costs):
            return self._known
        return RowCost(sum(each.seconds for each in costs), max(each.nbytes for each in costs))

    def next_block(self) -> list[_Piece] | None:
        """Return the rows to process next: of one file, or of several files with the same functions."""
        while self._next < len(self._files) and self._files[self._next].is_over:
            self._next += 1
        most = self._most_rows()
        pieces: list[_Piece] = []
        for file in self._files[self._next :]:
            if most <= 0 or (pieces and not have_same_functions(pieces[0].of.plan, file.plan)):
                break
            stop = min(file.file.rows, file.consumed + most)
            most -= stop - file.consumed
            pieces.append(_Piece(file, file.consumed, stop))
        return pieces or None

    def _most_rows(self) -> int:
        """Return the number of rows for which there is time and memory."""
        if self._is_full or self._next == len(self._files):
            return 0
        left_s = max(GROUP_S, COSTLY_S * self._next) - (perf_counter() - self._began)
        cost = self._cost
        if cost is not None and (rest_s := cost.seconds * self._rows_left()) < REST_S:
            left_s = max(left_s, rest_s)  # it is late because other threads held the GIL
        if cost is None:
            most = max(1.0, 2.0 * self._rows)
        else:
            in_time, in_memory = left_s / max(cost.seconds, 1e-9), self._left_nbytes / max(cost.nbytes, 1.0)
            most = min(HOP_ROWS, max(FIRST_ROWS, HOP_GROWTH * self._rows), in_time, in_memory)
            self._is_full = in_memory < 1
        self._is_late = left_s <= 0 or (most < 1 and not self._is_full)
        return 0 if self._is_late else int(most)

    def _rows_left(self) -> int:
        return sum(each.file.rows - each.consumed for each in self._files[self._next :])

    def process(self, pieces: Sequence[_Piece]) -> None:
        """Run all operators over a block.

        If an operator fails and the failing row is unknown, all files of the block are read alone.
        """
        try:
            self._process(pieces)
        except Exception:  # noqa: BLE001 - the run of a file raises it
            self._is_full = True
            for piece in pieces:
                piece.of.is_unknown = True

    def _process(self, pieces: Sequence[_Piece]) -> None:
        first, last = pieces[0], pieces[-1]
        start, stop = first.of.file.first + first.start, last.of.file.first + last.stop
        chunk = None if self._read.chunk is None or start == stop else self._read.chunk.slice(start, stop)
        context, counts = self._context_of(first.of.place), np.array([each.stop - each.start for each in pieces])
        largest = 0
        for step, node in enumerate(first.of.plan.operators):
            rows = int(counts.sum())
            output = _output(node, step, chunk, counts, [piece.of for piece in pieces], context)
            chunk, counts = output.chunk, output.rows
            largest = max(largest, output.nbytes)
            if rows:
                self._costs[step] = RowCost(output.seconds / rows, output.nbytes / rows)
        for piece in pieces:
            piece.of.consumed = piece.stop
        if chunk is not None:
            self._chunks.append(chunk)
            self._nbytes += chunk_nbytes(chunk)
        self._rows = stop - start
        self._left_nbytes -= largest

    def result(self) -> FilesRead:
        """Return the output of the files that are complete, and of the one that was begun."""
        files: dict[int, FileRows] = {}
        begun: dict[int, BegunFile] = {}
        first = 0
        for each in self._files:
            output = each.output(first)
            first += output.rows
            if each.is_unknown:
                continue
            if each.is_over and each.error is None:
                files[each.place] = output
            elif each.consumed:
                begun[each.place] = BegunFile(output, partial(each.position.at_end, each.consumed), each.error)
        mean_nbytes = max(self._read.mean_nbytes or 0.0, self._nbytes / max(1, len(files) + len(begun)))
        return FilesRead(
            concat(self._chunks) if self._chunks else None,
            files,
            mean_nbytes,
            (self._read.took_s or 0.0) + perf_counter() - self._began,
            self._read.arrived_at,
            begun,
            are_costly=self._is_late or not files,
            cost=self._cost,
        )


class _Output(NamedTuple):
    """Output rows of one operator, for a block.

    Attributes:
        chunk: The rows; None if there are none.
        rows: Number of rows of each file, int64.
        nbytes: Size of the rows in bytes.
        seconds: Time.
    """

    chunk: Chunk | None
    rows: NDArray[np.int64]
    nbytes: int = 0
    seconds: float = 0.0


def _output(
    node: Node,
    step: int,
    chunk: Chunk | None,
    rows: NDArray[np.int64],
    files: Sequence[_Progress],
    context: RunContext,
) -> _Output:
    """Run one operator over a block, and note what it did with the rows of each file.

    Args:
        step: Number of the operator.
        chunk: Input rows; None if there are none.
        rows: Number of input rows of each file.
    """
    if chunk is None:
        return _Output(None, rows)
    owners = np.repeat(np.arange(len(rows)), rows)
    if isinstance(node, Call):
        called = _called(RowWork((part_of(context, node),)), step, chunk, owners, files)
    else:
        called = _selected(node, chunk, owners, np.array([each.tallies[step].rows_in for each in files]))
    left = rows if called.kept is None else np.bincount(owners[called.kept], minlength=len(rows))
    stops, firsts = np.cumsum(left), np.cumsum(rows) - rows
    for number, file in enumerate(files):
        before = file.tallies[step]
        if isinstance(node, Filter):
            of_file = slice(stops[number] - left[number], stops[number])
            kept = np.arange(left[number]) if called.kept is None else called.kept[of_file] - firsts[number]
            file.kept[step].append(before.rows_in + kept)
        rows_in = int(called.rows_in[number])
        share = rows_in / len(chunk)
        of_rest = int(called.tally.nbytes * share), called.tally.busy_s * share, called.tally.cpu_s * share
        file.tallies[step] = before + Tally(rows_in, int(left[number]), of_rest[0], [], 0, *of_rest[1:])
    return _Output(called.chunk, left, called.tally.nbytes, called.tally.busy_s)


class _Called(NamedTuple):
    """Result of one operator.

    Attributes:
        chunk: Output rows; None if there are none.
        kept: Numbers of the input rows that have a result; None for all rows.
        rows_in: Number of input rows of each file before a failure.
        tally: Statistics.
    """

    chunk: Chunk | None
    kept: NDArray[np.int64] | None
    rows_in: NDArray[np.int64]
    tally: Tally


def _called(work: RowWork, step: int, chunk: Chunk, owners: NDArray[np.int64], files: Sequence[_Progress]) -> _Called:
    """Call a function for all rows. Behind a failure, go on with the next file."""
    chunks: list[Chunk] = []
    kept: list[NDArray[np.int64]] = []
    rows_in = np.bincount(owners, minlength=len(files))
    tally, start = NOTHING, 0
    while start < len(chunk):
        done = work(chunk.slice(start, len(chunk)))
        tally += done.tallies[0]
        if len(done.chunk):
            chunks.append(done.chunk)
        rows = len(chunk) - start if done.failure is None else done.rows
        kept.append(start + (np.arange(rows) if done.kept is None else done.kept))
        if done.failure is None:
            break
        failing = owners[start + done.rows]
        first, stop = np.searchsorted(owners, [failing, failing + 1]).tolist()
        rows_in[failing] = start + done.rows - first
        files[failing].failure = done.failure, step
        start = stop
    all_kept = np.concatenate(kept)
    is_whole = len(all_kept) == len(chunk)
    return _Called(concat(chunks) if chunks else None, None if is_whole else all_kept, rows_in, tally)


def _selected(node: Any, chunk: Chunk, owners: NDArray[np.int64], before: NDArray[np.int64]) -> _Called:
    """Return the first rows of each file, or all rows after them.

    Args:
        before: Number of rows of each file in earlier blocks.
    """
    rows_in = np.bincount(owners, minlength=len(before))
    numbers = np.arange(len(chunk)) + (before - np.cumsum(rows_in) + rows_in)[owners]  # of each row in its file
    kept = np.flatnonzero((numbers < node.count) if isinstance(node, Take) else (numbers >= node.count))
    out = chunk if len(kept) == len(chunk) else chunk.take(kept)
    tally = Tally(len(chunk), len(out), chunk_nbytes(out), [], 0, 0.0, 0.0)
    return _Called(out if len(out) else None, kept, rows_in, tally)


def count_rows(files: Sequence[FileRows], plan: FilePlan, context: RunContext) -> None:
    """Add the statistics of files to the counters of the operators.

    Args:
        plan: Plan of one of the files.
    """
    for number, node in enumerate(plan.operators):
        counters = context.counters(node)
        if isinstance(node, Call):
            counters.waits_for = "user"
        for tally in (file.done[number] for file in files):
            counters.rows_in += tally.rows_in
            counters.rows += tally.rows
            counters.dropped += 0 if isinstance(node, Take) else tally.rows_in - tally.rows
            counters.nbytes += tally.nbytes
            counters.busy_s += tally.busy_s
            counters.cpu_s += tally.cpu_s
        counters.chunks += 1
