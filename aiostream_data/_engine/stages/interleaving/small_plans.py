"""Operators over small files that were read in groups, such as ``Dataset.from_tfrecord(file).map(parse)``.

The run of one file would need tasks, channels and calls on worker threads for a few rows. So one call on a worker
thread runs the operators over the files of a group. Files whose operators fail, or for which there is no time or memory
left, get runs of their own, which apply all rules and name the failure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from time import perf_counter
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.calls.row_work import RowWork, Tally
from aiostream_data._engine.calls.rowwise import part_of
from aiostream_data._engine.flow.context import RunContext
from aiostream_data._engine.flow.sizes import chunk_nbytes
from aiostream_data._engine.resume.lineage_writer import BookWriter
from aiostream_data._engine.resume.position import Position, State
from aiostream_data._engine.sources.files_read import ContextOf, FileRows, FilesRead
from aiostream_data._engine.stages.interleaving.file_plans import FilePlan, have_same_functions
from aiostream_data._engine.stages.interleaving.small_batches import batches_of_each
from aiostream_data.plan.base import Node
from aiostream_data.plan.operators import Batch, Call, SkipFirst, Take
from aiostream_data.rows.records import Chunk, concat
from aiostream_data.transforms.batching import Describe

COSTLY_S: Final = 0.002
"""Operators that need more time than this per file, in seconds, run concurrently in runs of the files."""

NOISE_S: Final = 0.01
"""Less time than this, in seconds, may be that of other threads and says nothing about the operators."""

MOST_TOGETHER: Final = 16
"""Maximum number of files for which operators run together. Time and memory are checked before these files."""

NOTHING: Final = Tally(0, 0, 0, [], 0, 0.0, 0.0)
"""Statistics of an operator without rows."""

ONE_ROW: Final = np.array([1])


class _Output(NamedTuple):
    """Output rows of one operator, of several files.

    Attributes:
        chunk: The rows, one file after another; None if there are none.
        rows: Number of rows of each file, int64.
        tally: Statistics.
        kept: Numbers of the input rows that a filter kept; None for all rows.
    """

    chunk: Chunk | None
    rows: NDArray[np.int64]
    tally: Tally
    kept: NDArray[np.int64] | None = None


class PlanPosition(NamedTuple):
    """Position of the run of a plan over a small file, of which all rows are known.

    Attributes:
        file: Position of the file.
        operators: Nodes from the first operator to the last.
        outputs: Rows of the files for which the operators ran together, and rows of each operator.
        number: Number of this file among them.
    """

    file: Position
    operators: Sequence[Node]
    outputs: Sequence[_Output]
    number: int

    def at(self, rows: int, book: BookWriter) -> State:
        """Return the state of the last operator after its first ``rows`` rows."""
        if not rows:
            return None
        states: list[dict[str, Any]] = []
        for step in range(len(self.operators) - 1, -1, -1):
            node = self.operators[step]
            if isinstance(node, Take):
                states.append({"op": "take", "taken": rows})
            elif isinstance(node, SkipFirst):
                states.append({"op": "skip", "skipped": node.count})
            rows = self._rows_in(step, rows)
        state = self.file.at(rows, book)
        for each in reversed(states):
            state = each | {"input": state}
        return state

    def forget(self, rows: int) -> None:
        """Do nothing: there is no history."""

    def _rows_in(self, step: int, rows: int) -> int:
        """Return the number of input rows of an operator that lead to its first ``rows`` rows, at least 1."""
        node, before, after = self.operators[step], self.outputs[step], self.outputs[step + 1]
        if isinstance(node, SkipFirst):
            return rows + node.count
        if isinstance(node, Batch):
            return min(rows * node.batch_size, int(before.rows[self.number]))
        if after.kept is None:
            return rows
        if rows == after.rows[self.number]:
            return int(before.rows[self.number])
        first = int(before.rows[: self.number].sum())
        return int(after.kept[int(after.rows[: self.number].sum()) + rows - 1]) - first + 1


def with_operators(
    read: FilesRead, plans: Sequence[FilePlan], context_of: ContextOf, most_nbytes: int, row_nbytes: float | None
) -> FilesRead:
    """Run the operators of files that were read. Leave out files for which this fails, takes long, or needs memory.

    The result has no lease.

    Args:
        plans: Plans of the files.
        most_nbytes: Maximum size of the output rows in bytes.
        row_nbytes: Size of the output in bytes per row of a file, of earlier files. With None, one row is tried first,
            so that no slow function is called for many rows one after another.
    """
    if row_nbytes is None:
        row_nbytes = _tried_nbytes(read, plans, context_of)
    if row_nbytes is None:
        return read._replace(chunk=None, files={}, are_costly=True)
    began = perf_counter()
    chunks: list[Chunk] = []
    files: dict[int, FileRows] = {}
    first = nbytes = tried = 0
    for places in _together([*read.files], plans):
        rows = _rows_of(read, places)
        is_late = perf_counter() - began > max(NOISE_S, COSTLY_S * tried)
        if is_late or nbytes + row_nbytes * int(rows.rows.sum()) > most_nbytes:
            break
        tried += len(places)
        operators = plans[places[0]].operators
        outputs = _outputs(operators, rows, context_of(places[0]))
        if outputs is None:
            continue
        chunk = outputs[-1].chunk
        if chunk is not None:
            chunks.append(chunk)
            nbytes += chunk_nbytes(chunk)
            row_nbytes = max(row_nbytes, chunk_nbytes(chunk) / int(rows.rows.sum()))
        for number, place in enumerate(places):
            file, count = read.files[place], int(outputs[-1].rows[number])
            position, done = PlanPosition(file.position, operators, outputs, number), _tallies(outputs, number)
            files[place] = file._replace(first=first, rows=count, position=position, done=done)
            first += count
    took_s = perf_counter() - began
    joined = concat(chunks) if chunks else None
    mean_nbytes = max(read.mean_nbytes or 0.0, nbytes / max(1, tried))
    are_costly = took_s > max(NOISE_S, COSTLY_S * tried)
    return FilesRead(joined, files, mean_nbytes, (read.took_s or 0.0) + took_s, are_costly, row_nbytes)


def _tried_nbytes(read: FilesRead, plans: Sequence[FilePlan], context_of: ContextOf) -> float | None:
    """Return the size in bytes of what the operators make of one row; None if they need much time for it."""
    place = next((place for place, file in read.files.items() if file.rows), None)
    if place is None or read.chunk is None:
        return 0.0
    first = read.files[place].first
    began = perf_counter()
    row = _Output(read.chunk.slice(first, first + 1), ONE_ROW, NOTHING)
    outputs = _outputs(plans[place].operators, row, context_of(place))
    is_costly = perf_counter() - began > NOISE_S
    chunk = None if outputs is None else outputs[-1].chunk
    return None if is_costly else 0.0 if chunk is None else float(chunk_nbytes(chunk))


def _together(places: Sequence[int], plans: Sequence[FilePlan]) -> Iterator[list[int]]:
    """Group files whose operators can run together: few at first, so that slow ones are noticed soon."""
    most = 1
    part: list[int] = []
    for place in places:
        if part and (len(part) == most or not have_same_functions(plans[part[0]], plans[place])):
            yield part
            part, most = [], min(2 * most, MOST_TOGETHER)
        part.append(place)
    if part:
        yield part


def _rows_of(read: FilesRead, places: Sequence[int]) -> _Output:
    files = [read.files[place] for place in places]
    rows = np.array([file.rows for file in files], np.int64)
    total = int(rows.sum())
    chunk = read.chunk.slice(files[0].first, files[0].first + total) if read.chunk is not None and total else None
    return _Output(chunk, rows, NOTHING)


def _outputs(operators: Sequence[Node], rows: _Output, context: RunContext) -> list[_Output] | None:
    """Run operators over rows. Return the rows, and the output of each operator; None if one of them fails."""
    outputs = [rows]
    for node in operators:
        before = outputs[-1]
        try:
            output = _output(node, before.chunk, before.rows, context)
        except Exception:  # noqa: BLE001 - the run of a file raises it
            return None
        if output is None:
            return None
        outputs.append(output)
    return outputs


def _output(node: Node, chunk: Chunk | None, rows: NDArray[np.int64], context: RunContext) -> _Output | None:
    if chunk is None:
        return _Output(None, rows, NOTHING)
    if isinstance(node, Batch):
        return _batched(node, chunk, rows, context.services.origins.describe)
    if not isinstance(node, Call):
        return _selected(node, chunk, rows)
    done = RowWork((part_of(context, node),))(chunk)
    if done.failure is not None:
        return None
    if done.kept is not None:
        rows = np.bincount(np.repeat(np.arange(len(rows)), rows)[done.kept], minlength=len(rows))
    return _Output(done.chunk or None, rows, done.tallies[0], done.kept)


def _selected(node: Any, chunk: Chunk, rows: NDArray[np.int64]) -> _Output:
    """Return the first rows of each file, or all rows after them."""
    numbers = np.arange(len(chunk)) - np.repeat(np.cumsum(rows) - rows, rows)  # of each row in its file
    first = numbers < node.count
    kept = np.flatnonzero(first if isinstance(node, Take) else ~first)
    firsts = np.minimum(rows, node.count)
    out = chunk if len(kept) == len(chunk) else chunk.take(kept)
    tally = Tally(len(chunk), len(out), chunk_nbytes(out), [], 0, 0.0, 0.0)
    return _Output(out or None, firsts if isinstance(node, Take) else rows - firsts, tally)


def _batched(node: Batch, chunk: Chunk, rows: NDArray[np.int64], describe: Describe) -> _Output:
    """Return the batches of each file.

    Raises:
        BatchShapeError: The rows of a batch cannot be stacked.
    """
    began = perf_counter()
    batches = batches_of_each(node, chunk, rows.tolist(), describe)
    full, rest = rows // node.batch_size, rows % node.batch_size
    counts = full if node.drop_remainder else full + (rest > 0)
    nbytes = 0 if batches is None else chunk_nbytes(batches)
    busy_s = perf_counter() - began
    return _Output(batches, counts, Tally(len(chunk), int(counts.sum()), nbytes, [], 0, busy_s, busy_s))


def _tallies(outputs: Sequence[_Output], number: int) -> list[Tally]:
    """Return the statistics of each operator for one file: its rows, and its share of the rest."""
    tallies = []
    for before, after in pairwise(outputs):
        rows_in, rows = int(before.rows[number]), int(after.rows[number])
        share, tally = rows_in / max(1, after.tally.rows_in), after.tally
        times = tally.busy_s * share, tally.cpu_s * share
        tallies.append(Tally(rows_in, rows, int(tally.nbytes * share), [], 0, *times))
    return tallies


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
            counters.dropped += 0 if isinstance(node, Batch) else tally.rows_in - tally.rows
            counters.nbytes += tally.nbytes
            counters.busy_s += tally.busy_s
            counters.cpu_s += tally.cpu_s
        counters.chunks += 1
