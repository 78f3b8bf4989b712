"""Read the rows of many small datasets in memory at once, so that their operators run for all of them in one call.

An example is ``Dataset.range(x).map(function)``. The run of such a dataset needs tasks, channels and calls on worker
threads, which take far longer than its few rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.flow.context import RunContext, hop
from aiostream_data._engine.flow.sizes import chunk_nbytes
from aiostream_data._engine.memory.budget import READ_AHEAD
from aiostream_data._engine.resume.lineage_writer import BookWriter
from aiostream_data._engine.resume.origins import Namespace, always
from aiostream_data._engine.resume.position import State
from aiostream_data._engine.sources.files_read import ContextOf, FileRows, FilesRead, group_nbytes
from aiostream_data._engine.sources.memory_rows import epochs_of
from aiostream_data._engine.stages.interleaving.inner_rows import ids_of_each, joined_rows, kind_of, small_rows
from aiostream_data.plan.sources import Range, Tensors, TensorSlices
from aiostream_data.rows.records import Chunk

InMemory: TypeAlias = Range | TensorSlices | Tensors
"""Dataset in memory."""

MOST_DATASETS: Final = 1024
"""Maximum number of datasets of a group."""

_NO_WAIT: Final = 0.0
"""Time at which the rows arrived: before anyone could wait for them."""


class MemoryPosition:
    """Position of the run of a small dataset in memory, of which all rows are known. It is the same for all of them."""

    def at(self, rows: int, book: BookWriter) -> State:
        """Return the state of a :class:`.MemorySource` after the first ``rows`` rows."""
        return {"op": "rows", "next": rows}

    def forget(self, rows: int) -> None:
        """Do nothing: there is no history."""


_POSITION: Final = MemoryPosition()


@dataclass(frozen=True)
class SmallMemory:
    """Reader of small datasets in memory. See :class:`.ReadsFiles`.

    Attributes:
        context: Run context of the stage that opens them.
    """

    context: RunContext

    def most_files(self, *, is_local: bool) -> int:
        return MOST_DATASETS

    @property
    def most_nbytes(self) -> int:
        return group_nbytes(self.context) // 2

    async def read(self, files: Sequence[InMemory], context_of: ContextOf, is_wanted: Callable[[], bool]) -> FilesRead:
        services = self.context.services
        rows = np.fromiter(map(small_rows, files), np.int64, len(files))
        spaces = [_namespace(context_of(place), node) for place, node in enumerate(files)]
        work = services.pool.submit(_rows_of, files, rows, spaces, services.origins.describe)
        chunk: Chunk | None = await hop(context_of(0).counters(files[0]), work)
        stops = np.cumsum(rows)
        counts = zip(rows.tolist(), (stops - rows).tolist(), strict=True)
        read = {place: FileRows(first, count, _POSITION) for place, (count, first) in enumerate(counts)}
        if chunk is None:
            return FilesRead(None, read, None, None, _NO_WAIT)
        nbytes = chunk_nbytes(chunk)
        leased = chunk.with_lease(services.budget.charge(nbytes, READ_AHEAD))
        return FilesRead(leased, read, nbytes / len(files), None, _NO_WAIT)

    def accepted(self, files: Sequence[InMemory], read: Sequence[FileRows], context_of: ContextOf) -> int:
        counters = context_of(0).counters(files[0])
        counters.rows += sum(each.rows_read for each in read)
        counters.chunks += 1
        return len(files)


def is_small_memory(node: Any) -> bool:
    """Return True for a small dataset in memory that this module reads."""
    if type(node) not in (Range, TensorSlices, Tensors) or node.times != 1:
        return False
    return getattr(node, "permuted", None) is None and small_rows(node) >= 0


def are_memory_alike(nodes: Sequence[Any]) -> bool:
    """Return True if all datasets are in memory, as the first one is, and have elements of the same types."""
    first = kind_of(nodes[0])
    return all(kind_of(node) == first for node in nodes)


def _namespace(context: RunContext, node: InMemory) -> Namespace:
    """Return the namespace of the run of a dataset, as :class:`.MemorySource` has it."""
    return context.namespace(node, always(str(node.label)), times=epochs_of(node))


def _rows_of(
    nodes: Sequence[InMemory], rows: NDArray[np.int64], spaces: Sequence[Namespace], describe: Any
) -> Chunk | None:
    """Return the rows of all datasets, with the ids that their runs give them."""
    chunk = joined_rows(nodes, rows, lambda _: spaces[0], describe)
    if chunk is None:
        return None
    bases = np.fromiter((space.base for space in spaces), np.int64, len(spaces))
    return chunk.with_ids(ids_of_each(rows, np.repeat(bases, rows)))
