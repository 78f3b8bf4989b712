"""Source that reads one file with a directory of row groups, such as Parquet."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.flow.chunk_sizes import most_chunk_nbytes, rows_of_a_chunk
from aiostream_data._engine.flow.stage import NumberedRows
from aiostream_data._engine.flow.stage_io import Inlet, Outlet
from aiostream_data._engine.resume.lineage_writer import BookWriter
from aiostream_data._engine.resume.origins import Namespace, always, local
from aiostream_data._engine.resume.places import Place
from aiostream_data._engine.resume.position import Log, State, taken_up
from aiostream_data._engine.sources.cached_file import CachedFile
from aiostream_data._engine.sources.listed_objects import check_as_listed
from aiostream_data._engine.sources.row_groups_ahead import (
    AHEAD_GROUPS,
    AHEAD_NBYTES,
    AHEAD_SHARE,
    NEAR_GROUPS,
    RowGroupsAhead,
)
from aiostream_data._engine.sources.table_groups import Decoded, Fetched, TableGroups
from aiostream_data._engine.sources.table_losses import Apart, SkippedPart, TableLosses, or_apart
from aiostream_data._engine.sources.tables_read_again import TablesReadAgain, read_whole
from aiostream_data._native import Charge
from aiostream_data.errors import CorruptRecordError, ObjectNotFoundError, StateMismatchError
from aiostream_data.failing.policies import handling_of
from aiostream_data.formats.row_groups import (
    DeclaresTypes,
    DeletesRows,
    Directory,
    JoinsGroups,
    RowGroup,
    TableFormat,
    TableRows,
    UsesPool,
)
from aiostream_data.formats.table_types import TypesOfFiles
from aiostream_data.plan.tables import FilesToken, TableFile
from aiostream_data.rows.lineage import Lineage
from aiostream_data.rows.records import Chunk, Columns, ShardRef, concat
from aiostream_data.rows.row_ids import OTHER_PIPELINE, RowIds
from aiostream_data.safe_url import safe_url
from aiostream_data.state_fields import MAX_COUNT
from aiostream_data.storage.read_ahead import ReadAhead
from aiostream_data.storage.stores import StoreSet
from aiostream_data.storage.urls import has_magic, split_url


class SeenTypes(WeakKeyDictionary[FilesToken, TypesOfFiles]):
    """For each data set, the types of the columns in the files opened so far. A feature."""

    def of(self, files: FilesToken) -> TypesOfFiles:
        """Return the types of a data set. The table drops them when the token is deleted."""
        return self.setdefault(files, TypesOfFiles())


class _Paces(WeakKeyDictionary[FilesToken, ReadAhead]):
    """For each data set, the controller of read-ahead that its files share. A feature."""

    def of(self, files: FilesToken) -> ReadAhead:
        """Return the controller of a data set. The table drops it when the token is deleted."""
        return self.setdefault(files, ReadAhead())


@dataclass
class TableFileSource(NumberedRows):
    """Stage of a ``TableFile`` node. While it emits one row group, it decodes the next, and reads others ahead.

    The ordinal of a row is its number in the file. The saved state is the number of the next row in the file.
    """

    kind: ClassVar[str] = "table"

    _emitted: Log[RowIds] = field(default_factory=Log)

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        node: TableFile = self.node
        self.counters.waits_for = "disk" if split_url(node.url).scheme == "file" else "network"
        self.counters.work = "parse"
        stores = self.context.services.stores(node.storage_options)
        base = self._namespace().base
        losses = TableLosses(self.context, node, base, self.counters)
        opened = await losses.attempted(lambda: self._opened(stores))
        if isinstance(opened, SkippedPart):
            await losses.lose_file(opened, 0, self._first, outlet)
            return
        reader, directory = opened
        if self._first > directory.rows:
            raise StateMismatchError(
                [f"the state names row {self._first} of {safe_url(node.url)}, which has {directory.rows} rows"],
                "Restore the file.",
            )
        budget = self.context.services.budget

        async def fetch(group: RowGroup, is_next: Callable[[], bool]) -> Fetched:
            return await reader.fetched(group, lambda: is_next() and outlet.is_awaited())

        async def read(group: RowGroup, fetched: Callable[[], Awaitable[Fetched]]) -> Decoded:
            return await reader.decoded(directory, group, await fetched())

        async def decode_alone(group: RowGroup, fetched: Callable[[], Awaitable[Fetched]]) -> Decoded | SkippedPart:
            return await losses.attempted(partial(read, group, fetched))

        async def decode(group: RowGroup, fetched: Callable[[], Awaitable[Fetched]]) -> Decoded | Apart | SkippedPart:
            if not isinstance(directory, JoinsGroups):
                return await decode_alone(group, fetched)
            attempt = partial(or_apart, partial(read, group, fetched), partial(directory.separated, group))
            return await losses.attempted(attempt)

        sent = 0

        async def deliver(group: RowGroup, decoded: Decoded | SkippedPart) -> bool:
            """Send the rows of a group. Return False if the rest of the file is lost."""
            nonlocal sent
            if not isinstance(decoded, SkippedPart):
                sent = await self._send(decoded, base, sent, outlet)
                losses.count(sent)
            elif decoded.is_of_the_rest:
                await losses.lose_file(decoded, sent, group.first_row, outlet)
                return False
            else:
                await losses.lose_group(decoded, sent, group, outlet)
            return True

        async def deliver_apart(groups: Sequence[RowGroup]) -> bool:
            for group in groups:
                decoded = await decode_alone(group, partial(fetch, group, lambda: True))
                if not await deliver(group, decoded):
                    return False
            return True

        async with asyncio.TaskGroup() as tasks:
            groups = RowGroupsAhead(
                directory.groups_from(self._first),
                tasks,
                fetch,
                decode,
                wake=budget.poke,
                pace=self.context.services.features.of(_Paces).of(node.files),
                most=NEAR_GROUPS if stores.part_nbytes(node.url) is None else AHEAD_GROUPS,
                most_nbytes=min(AHEAD_NBYTES, budget.limit // AHEAD_SHARE) // self.context.crowd,
            )
            while (found := await groups.next()) is not None:
                group, decoded = found
                del found
                is_left = await (
                    deliver_apart(decoded.groups) if isinstance(decoded, Apart) else deliver(group, decoded)
                )
                del decoded
                if not is_left:
                    groups.stop()
                    break

    async def _send(self, decoded: Decoded, base: int, sent: int, outlet: Outlet) -> int:
        """Send the rows of a group behind the ``sent`` rows of this run. Return the number of rows after these."""
        most_nbytes = most_chunk_nbytes(self.context.services.budget.limit)
        for part in decoded.parts:
            for chunk in _chunks(part, base, self._first, decoded.charge, most_nbytes):
                self._emitted.add(sent, chunk.ids)
                sent += len(chunk)
                await outlet.send(chunk)
        return sent

    async def _opened(self, stores: StoreSet) -> tuple[TableGroups, Directory]:
        """Read the directory of the file. Return the reader of its groups, and the directory."""
        format: TableFormat = self.node.format
        services = self.context.services
        shard = await self._found(stores)
        if shard.nbytes is None:
            raise CorruptRecordError(shard.url, 0, "the store does not report the size of the object")
        reader = TableGroups(await self._file(stores, shard), services.budget, self.hop)
        found = await reader.directory(format.directory(shard.url, shard.nbytes))
        if isinstance(found, UsesPool):
            found.pool = services.blocks
        seen = services.features.of(SeenTypes).of(self.node.files)
        seen.add(shard.url, found.types, can_declare=isinstance(format, DeclaresTypes))
        return reader, found

    async def _file(self, stores: StoreSet, shard: ShardRef) -> CachedFile:
        services = self.context.services
        if services.features.of(TablesReadAgain).includes(self.node, shard.nbytes or 0):
            return await read_whole(stores, shard, services.blocks, services.budget)
        return CachedFile.of(stores, shard, services.blocks)

    async def _found(self, stores: StoreSet) -> ShardRef:
        url = self.node.url
        try:
            found = await stores.info(url)
        except ObjectNotFoundError:
            if handling_of(self.node.on_error).kind == "raise" and not has_magic(url):
                await stores.glob(url)  # raises an error that names similar files
            raise
        check_as_listed(self.context, found)
        return found

    def _namespace(self) -> Namespace:
        return self.context.namespace(self.node, always(str(self.node.url)))

    # -- saved position

    def at(self, rows: int, book: BookWriter) -> State:
        found = self._emitted.find(rows - 1) if rows else None
        place = self._first if found is None else found[1].pairs_of(rows - 1 - found[0])[0][1] + 1
        return self.state_before(place)

    @classmethod
    def state_before(cls, row: int) -> State:
        """Return the state from which a run continues with row number ``row`` of the file."""
        return {"op": cls.kind, "next": row}

    def forget(self, rows: int) -> None:
        self._emitted.forget(rows - 1)

    def resume(self, state: State) -> Sequence[State]:
        self._first = taken_up(state, self.kind)["next"]
        return ()

    @classmethod
    def schema(cls, place: Place) -> Iterator[Place]:
        place.fields(cls.kind, "next")["next"].integer(0, MAX_COUNT)
        yield from ()

    async def recall(self, lineage: Lineage) -> Chunk:
        """Decode the row groups of the rows again."""
        _, ordinals = local(lineage.ids)
        stores = self.context.services.stores(self.node.storage_options)
        reader, directory = await self._opened(stores)
        if len(ordinals) and not 0 <= int(ordinals.min()) <= int(ordinals.max()) < directory.rows:
            url = safe_url(reader.file.shard.url)
            raise StateMismatchError(
                [f"row {int(ordinals.max())} of {url} was requested, but it has {directory.rows} rows"],
                OTHER_PIPELINE,
            )
        if isinstance(directory, DeletesRows):
            directory.check_not_deleted(ordinals)
        base = self._namespace().base
        found: list[Chunk] = []
        places: list[NDArray[np.int64]] = []
        left = deque(directory.groups_from(0))
        while left:
            group = left.popleft()
            wanted = np.flatnonzero((ordinals >= group.first_row) & (ordinals < group.first_row + group.rows))
            if not len(wanted):
                continue
            read = partial(self._recalled, reader, directory, group, ordinals[wanted], base)
            rows = await or_apart(read, partial(_separated, directory, group))
            if isinstance(rows, Apart):  # the rows may be in undamaged groups
                left.extendleft(reversed(rows.groups))
            else:
                found.append(rows)
                places.append(wanted)
        together = concat(found)
        return together if len(found) == 1 else _in_order(together, np.concatenate(places))

    async def _recalled(
        self, reader: TableGroups, directory: Directory, group: RowGroup, wanted: NDArray[np.int64], base: int
    ) -> Chunk:
        """Decode rows of one group again, given their numbers in the file."""
        parts = await reader.bytes_of(group.ranges)
        await self.hop(reader.needed_nbytes, directory, group, parts)
        if isinstance(directory, DeletesRows):
            await self.hop(directory.check_kept, group, parts, wanted)
        rows: Chunk = await self.hop(_all_rows, directory, group, parts, base)
        return rows.take(wanted - group.first_row)


def _chunks(part: TableRows, base: int, first: int, charge: Charge, most_nbytes: int) -> Iterator[Columns]:
    """Cut the rows of a group from row ``first`` of the file into chunks."""
    whole = chunk_of(part, base, charge)
    start = int(np.searchsorted(part.rows, first))
    step = rows_of_a_chunk(len(part.rows), part.nbytes, most_nbytes)
    for begin in range(start, len(part.rows), step):
        yield whole.slice(begin, min(begin + step, len(part.rows)))


def chunk_of(part: TableRows, base: int, lease: Charge | None) -> Columns:
    """Return decoded rows of a file as one chunk.

    Args:
        base: Split number of the row ids.
    """
    rows = part.rows  # ascending, with gaps where a filter excluded rows
    is_run = len(rows) > 0 and int(rows[-1]) - int(rows[0]) == len(rows) - 1
    ids = RowIds.run(base, int(rows[0]), len(rows)) if is_run else RowIds.of_source(base, rows)
    return Columns(part.structure, part.leaves, ids, lease)


def _separated(directory: Directory, group: RowGroup) -> Sequence[RowGroup]:
    """Return the groups of which a group consists, if they were joined."""
    return directory.separated(group) if isinstance(directory, JoinsGroups) else ()


def _all_rows(directory: Directory, group: RowGroup, parts: Sequence[memoryview], base: int) -> Chunk:
    """Decode all rows of a group, also those that a filter excludes."""
    found = directory.decode(group, parts, filtered=False)
    return concat([chunk_of(part, base, None) for part in found])


def _in_order(rows: Chunk, places: NDArray[np.int64]) -> Chunk:
    return rows.take(np.argsort(places))
