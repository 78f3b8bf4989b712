"""Read many small files with a directory of row groups at once, such as Parquet and NumPy files.

The run of one file costs tasks, channels and many hops, which take longer than reading a small file. So consecutive
small files are read whole, and decoded in one hop. Only files without any problem pass this way. Every other file gets
a run of its own, which applies the error policy and names the failure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.flow.context import RunContext, hop
from aiostream_data._engine.flow.sizes import chunk_nbytes
from aiostream_data._engine.flow.step_sizes import ROW_NBYTES
from aiostream_data._engine.resume.lineage_writer import BookWriter
from aiostream_data._engine.resume.origins import always
from aiostream_data._engine.resume.position import State
from aiostream_data._engine.sources.cached_file import cut
from aiostream_data._engine.sources.files_read import ContextOf, FileRows, FilesRead, group_nbytes
from aiostream_data._engine.sources.group_bytes import BlockPlaces
from aiostream_data._engine.sources.listed_objects import check_as_listed
from aiostream_data._engine.sources.table_file import SeenTypes, TableFileSource, chunk_of
from aiostream_data._engine.sources.table_losses import TableLosses
from aiostream_data._engine.sources.tables_read_again import TablesReadAgain
from aiostream_data.errors import TableSchemaError
from aiostream_data.formats.row_groups import Directory, TableFormat, TableRows, advance
from aiostream_data.plan.tables import TableFile
from aiostream_data.rows.records import Chunk, ShardRef, concat, same_layout, with_equal_marks
from aiostream_data.storage.stores import StoreSet

SMALL_NBYTES: Final = 1 << 20
"""Maximum size in bytes of a small file."""

MOST_FILES: Final = 64
"""Maximum number of files of a group. Objects of a store are requested at once."""

SMALL_SHARE: Final = 4
"""A file is small if at least this number of files of its size fit into a group."""


class TablePosition(NamedTuple):
    """Position of the run of one file of which all rows are known.

    Attributes:
        numbers: Numbers of the rows in the file, ascending int64.
    """

    numbers: NDArray[np.int64]

    def at(self, rows: int, book: BookWriter) -> State:
        """Return the state of a :class:`.TableFileSource` after the first ``rows`` rows."""
        return TableFileSource.state_before(int(self.numbers[rows - 1]) + 1 if rows else 0)

    def forget(self, rows: int) -> None:
        """Do nothing: the numbers are one array."""


@dataclass(frozen=True)
class SmallTables:
    """Reader of the small files that one stage opens.

    Attributes:
        context: Run context of the stage.
        counts_rows: False if the stage counts the rows of its files against their error budget.
    """

    context: RunContext
    counts_rows: bool = True

    def most_files(self, *, is_local: bool) -> int:
        return MOST_FILES

    @property
    def most_nbytes(self) -> int:
        return group_nbytes(self.context)

    async def read(self, files: Sequence[TableFile], context_of: ContextOf, is_wanted: Callable[[], bool]) -> FilesRead:
        """Read and decode consecutive files. See :class:`.ReadsFiles`."""
        services = self.context.services
        stores, counters = services.stores(files[0].storage_options), context_of(0).counters(files[0])
        counters.work = "parse"
        infos = await stores.infos([file.url for file in files])
        sizes = [info.nbytes or 0 for info in infos if isinstance(info, ShardRef)]
        chosen = self._chosen(infos)
        mean_nbytes = sum(sizes) / len(sizes) if sizes else None
        if not chosen:
            return FilesRead(None, {}, mean_nbytes, None, perf_counter())
        charge = await services.budget.admit(sum(shard.nbytes or 0 for shard in chosen.values()), is_wanted)
        try:
            contents = await self._contents(stores, files, chosen)
            arrived_at = perf_counter()
            room = await services.budget.room_for_step(2 * self.most_nbytes, is_wanted)
            try:
                decoded = services.pool.submit(_decoded, files, chosen, contents, self.most_nbytes, context_of)
                del contents
                chunk, found, is_copy, took_s = await hop(counters, decoded)
            finally:
                room.end()
            if chunk is None:
                charge.end()
            else:
                charge.resize(chunk_nbytes(chunk) + (0 if is_copy else charge.nbytes))
        except BaseException:
            charge.end()
            raise
        rows = None if chunk is None else chunk.with_lease(charge)
        return FilesRead(rows, found, mean_nbytes, took_s, arrived_at)

    def accepted(self, files: Sequence[TableFile], read: Sequence[FileRows], context_of: ContextOf) -> int:
        """Compare the columns of files that were read with those of earlier files, and count their rows.

        See :class:`.ReadsFiles`.
        """
        seen = self.context.services.features.of(SeenTypes)
        for place, (file, rows) in enumerate(zip(files, read, strict=True)):
            try:
                seen.of(file.files).add(file.url, rows.types)
            except TableSchemaError:  # the run of this file raises it
                return place
            context = context_of(place)
            counters = context.counters(file)
            counters.rows += rows.rows_read
            counters.chunks += 1
            if self.counts_rows:
                TableLosses(context, file, 0, counters).count(rows.rows_read)
        return len(files)

    def _chosen(self, infos: Sequence[ShardRef | Exception | None]) -> dict[int, ShardRef]:
        """Return the small files, by place, as many as may be read at once."""
        chosen: dict[int, ShardRef] = {}
        left = self.most_nbytes
        for place, info in enumerate(infos):
            nbytes = info.nbytes or 0 if isinstance(info, ShardRef) else 0
            if isinstance(info, ShardRef) and 0 < nbytes <= min(left, SMALL_NBYTES, self.most_nbytes // SMALL_SHARE):
                chosen[place] = info
                left -= nbytes
        return chosen

    async def _contents(
        self, stores: StoreSet, files: Sequence[TableFile], shards: Mapping[int, ShardRef]
    ) -> dict[int, memoryview]:
        """Return the bytes of the files that can be read, by place. The runs of all other files read them again."""
        sizes = [shard.nbytes or 0 for shard in shards.values()]
        parts = BlockPlaces(self.context.services.blocks.lend(sum(sizes)), sizes).places
        failures = await stores.read_objects(list(shards.values()), parts)
        read_again = self.context.services.features.of(TablesReadAgain)
        contents: dict[int, memoryview] = {}
        for (place, shard), part, failure in zip(shards.items(), parts, failures, strict=True):
            if failure is None:
                contents[place] = part
            else:
                read_again.add(files[place], shard.nbytes or 0)
        return contents


def are_tables_alike(nodes: Sequence[Any]) -> bool:
    """Return True if all nodes are files with row groups, in one store with the same options."""
    options = nodes[0].storage_options
    try:
        return all(
            type(node) is TableFile and (node.storage_options is options or node.storage_options == options)
            for node in nodes
        )
    except Exception:  # noqa: BLE001 - an object of the user cannot be compared, so nothing is known about it
        return False


def _decoded(
    files: Sequence[TableFile],
    shards: Mapping[int, ShardRef],
    contents: Mapping[int, memoryview],
    most_nbytes: int,
    context_of: ContextOf,
) -> tuple[Chunk | None, dict[int, FileRows], bool, float]:
    """Decode files of which the bytes are known. Leave out files with problems, and of another layout than the first.

    A file that is no longer as it was listed has a problem.

    Return the rows of all files as one chunk, the rows of each file, True if the chunk refers to none of the bytes, and
    the time that this took in seconds.
    """
    began = perf_counter()
    chunks: list[Chunk] = []
    found: dict[int, FileRows] = {}
    first = 0
    for place, data in contents.items():
        file, context = files[place], context_of(place)
        try:
            check_as_listed(context, shards[place])
            opened = _opened(file, data, most_nbytes)
        except Exception:  # noqa: BLE001 - the run of this file raises it
            continue
        if opened is None:
            continue
        directory, parts, nbytes = opened
        base = context.namespace(file, always(file.url)).base
        rows = [chunk_of(part, base, None) for part in parts if len(part.rows)]
        if rows and not all(_has_layout_of((chunks or rows)[0], each) for each in rows):
            continue
        chunks += rows
        numbers = np.concatenate([part.rows for part in parts]) if parts else np.empty(0, np.int64)
        found[place] = FileRows(first, len(numbers), TablePosition(numbers), directory.types)
        first += len(numbers)
        most_nbytes -= nbytes
    chunk = concat(chunks) if chunks else None
    return chunk, found, len(chunks) != 1, perf_counter() - began


def _opened(file: TableFile, data: memoryview, most_nbytes: int) -> tuple[Directory, list[TableRows], int] | None:
    """Return the directory of a file, its rows, and their size in bytes; None if they are too large."""
    format: TableFormat = file.format  # type: ignore[assignment]
    steps = format.directory(file.url, len(data))
    ranges, directory = advance(steps, None)
    while directory is None:
        ranges, directory = advance(steps, cut(file.url, data, ranges))
    parts: list[TableRows] = []
    nbytes = 0
    for group in directory.groups_from(0):
        stored = cut(file.url, data, group.ranges)
        nbytes += max(group.nbytes, directory.decoded_nbytes(group, stored)) + ROW_NBYTES * group.rows
        if nbytes > most_nbytes:
            return None
        parts += directory.decode(group, stored)
    return directory, parts, nbytes


def _has_layout_of(first: Chunk, other: Chunk) -> bool:
    return other is first or same_layout(with_equal_marks([first, other]))
