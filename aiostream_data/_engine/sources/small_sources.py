"""Read many small sources at once, each of which reads the records of one file.

A user function that makes a dataset of each file returns such sources. The run of a source costs tasks, channels and
many hops, which take longer than reading a small file. So the files of consecutive sources are read as the shards of
one source are; see :mod:`.small_shards`. A file with a problem gets the run of its own source.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.flow.context import RunContext, hop
from aiostream_data._engine.flow.loss_account import LossAccount
from aiostream_data._engine.resume.lineage_writer import BookWriter
from aiostream_data._engine.resume.origins import Hint, Locate, always
from aiostream_data._engine.resume.position import State
from aiostream_data._engine.resume.shard_offsets import ShardOffsets
from aiostream_data._engine.sources.files import ReadFilesSource, describe_source
from aiostream_data._engine.sources.files_read import ContextOf, FileRows, FilesRead, group_nbytes
from aiostream_data._engine.sources.group_limits import REQUESTS_OF_A_GROUP
from aiostream_data._engine.sources.group_rows import GroupSplitter
from aiostream_data._engine.sources.shard_siblings import ShardSiblings
from aiostream_data._engine.sources.small_shards import SmallShards
from aiostream_data._engine.sources.typical_shards import TypicalShards
from aiostream_data.errors import PlanError
from aiostream_data.failing.policies import handling_of
from aiostream_data.formats.base import LEFT, ChoosesObjects
from aiostream_data.metrics.counters import StageCounters
from aiostream_data.plan.sources import ReadFiles
from aiostream_data.rows.records import ShardRef
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.storage.urls import has_magic

LOCAL_FILES: Final = 256
"""Maximum number of files of a group on this machine."""


class SourcePosition(NamedTuple):
    """Position of the run of a source with one small shard, of which all rows are known."""

    node: ReadFiles
    rows: int

    def at(self, rows: int, book: BookWriter) -> State:
        """Return the state of a :class:`.ReadFilesSource` after the first ``rows`` rows."""
        return ReadFilesSource.state_in_first_shard(self.node, self.rows, rows) if rows else None

    def forget(self, rows: int) -> None:
        """Do nothing: there is no history."""


@dataclass(frozen=True)
class SmallSources:
    """Reader of the small sources that one stage opens.

    Attributes:
        context: Run context of the stage.
    """

    context: RunContext
    typical: TypicalShards = field(default_factory=TypicalShards)

    def most_files(self, *, is_local: bool) -> int:
        return LOCAL_FILES if is_local else REQUESTS_OF_A_GROUP

    @property
    def most_nbytes(self) -> int:
        return group_nbytes(self.context) // 2  # sizes vary, and the last files of a larger group are read alone

    async def read(self, files: Sequence[ReadFiles], context_of: ContextOf, is_wanted: Callable[[], bool]) -> FilesRead:
        """Read the files of consecutive sources which differ only in their file. See :class:`.ReadsFiles`."""
        first = files[0]
        counters = _counters(context_of(0), first)
        offsets = ShardOffsets()
        small = self._shards(first, counters, offsets)
        found = await small.read([(place, ShardRef(url_of(file))) for place, file in enumerate(files)], is_wanted)
        was_read = np.flatnonzero(found.rows != LEFT)
        stops = np.cumsum(found.rows[was_read])
        rows = found.rows[was_read].tolist()
        read: dict[int, FileRows] = {}
        for place, count, stop in zip(was_read.tolist(), rows, stops.tolist(), strict=True):
            read[place] = FileRows(stop - count, count, SourcePosition(files[place], count))
        chunk = found.chunk
        if chunk is not None:
            bases: NDArray[np.int64] = np.zeros(len(files), np.int64)
            for place in read:
                bases[place] = _base(files[place], context_of(place), partial(_located, offsets, place))
            chunk = chunk.with_ids(RowIds.of_source(bases[chunk.ids.splits], chunk.ids.ordinals))
        mean_nbytes = self.typical.nbytes * len(files) / len(found.rows)  # more if too many rows cut the group short
        return FilesRead(chunk, read, mean_nbytes or None, None, found.arrived_at)

    def _shards(self, first: ReadFiles, counters: StageCounters, offsets: ShardOffsets) -> SmallShards:
        """Return a reader of one group of shards, whose numbers are the places of their sources."""
        services = self.context.services
        stores = services.stores(first.storage_options)

        async def run(work: Callable[..., Any], *args: Any) -> Any:
            return await hop(counters, services.pool.submit(work, *args))

        return SmallShards(
            node=first,
            stores=stores,
            budget=services.budget,
            blocks=services.blocks,
            counters=counters,
            hop=run,
            siblings=ShardSiblings(first, (), stores),
            splitter=GroupSplitter(first, first.format, services.budget, services.blocks, 0, offsets),
            crowd=self.context.crowd,
            sharers=self.context.sharers,
            typical=self.typical,
        )

    def accepted(self, files: Sequence[ReadFiles], read: Sequence[FileRows], context_of: ContextOf) -> int:
        """Count the rows of files that were read. See :class:`.ReadsFiles`."""
        rows = sum(each.rows_read for each in read)
        context = context_of(0)
        counters = context.counters(files[0])
        counters.rows += rows
        counters.chunks += 1
        if handling_of(files[0].on_error).kind == "skip":
            LossAccount(context, files[0], counters).take(rows, ())
        return len(files)


def read_alike(nodes: Sequence[Any]) -> bool:
    """Return True if all nodes are sources that read the file which they name, and differ in nothing else.

    A limit for the share of lost records depends on the rows before a loss, so such files are read alone.
    """
    first = nodes[0]
    if type(first) is not ReadFiles or isinstance(first.format, ChoosesObjects):
        return False
    if handling_of(first.on_error).max_rate is not None:
        return False
    try:
        return all(type(node) is ReadFiles and _names_one_file(node) and _is_read_like(first, node) for node in nodes)
    except Exception:  # noqa: BLE001 - an object of the user cannot be compared, so nothing is known about it
        return False


def _names_one_file(node: ReadFiles) -> bool:
    if len(node.patterns) != 1 or node.index_url is not None or node.share is not None or node.spread:
        return False
    try:
        return not has_magic(node.patterns[0])
    except PlanError:  # the run of the source raises it
        return False


def _is_read_like(first: ReadFiles, other: ReadFiles) -> bool:
    """Return True if two sources have equal options, except of those that are for several files."""
    return (
        first.format == other.format
        and first.decoders == other.decoders
        and first.compression == other.compression
        and first.storage_options == other.storage_options
        and first.on_error == other.on_error
        and first.checks_first == other.checks_first
    )


def url_of(node: ReadFiles) -> str:
    """Return the URL of the file of a source that reads one."""
    return node.patterns[0]


def _counters(context: RunContext, node: ReadFiles) -> StageCounters:
    """Return the counters that all sources of the stage share, with a description of one of them."""
    counters = context.counters(node)
    counters.workers = node.cycle_length
    describe_source(counters, node, [ShardRef(url_of(node))])
    return counters


def _base(node: ReadFiles, context: RunContext, locate: Locate) -> int:
    """Return the split number of the rows of a source with one shard."""
    return context.namespace(node, always(url_of(node)), locate).base


def _located(
    offsets: ShardOffsets, place: int, splits: NDArray[np.int64], ordinals: NDArray[np.int64]
) -> Sequence[Hint]:
    """Return the known byte offsets of records of one file. In the source of this file, its shard number is 0.

    Args:
        offsets: Offsets of all files of the group, whose shard numbers are their places.
        place: Place of the file.
    """
    return [hint._replace(split=0) for hint in offsets.locate(splits + place, ordinals)]
