"""Read and decode the row groups of one file within the memory budget."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from aiostream_data._engine.flow.root_cause import raise_as_it_is, root_error
from aiostream_data._engine.memory.budget import Budget
from aiostream_data._engine.sources.cached_file import CachedFile, advance_cached, cut, memory_for
from aiostream_data._native import Charge
from aiostream_data.errors import MemoryBudgetError
from aiostream_data.formats.row_groups import Directory, Ranges, RowGroup, Steps, TableRows, advance
from aiostream_data.safe_url import safe_url


class Decoded(NamedTuple):
    """Rows of a group, and the charge for their memory."""

    parts: list[TableRows]
    charge: Charge


class Fetched(NamedTuple):
    """Bytes of a group, and the charge for their memory and for the decoded rows.

    Attributes:
        parts: Bytes of the ranges; None if they are probably in the page cache, and are read when they are decoded.
    """

    parts: Sequence[memoryview] | None
    charge: Charge


@dataclass
class TableGroups:
    """Reader of the row groups of one file. For one event loop.

    Attributes:
        file: The file.
        budget: Memory budget of the run.
        hop: Runs a function on a worker thread.
    """

    file: CachedFile
    budget: Budget
    hop: Callable[..., Any]

    async def directory(self, steps: Steps[Directory]) -> Directory:
        """Read the directory of the file.

        Args:
            steps: Generator of :meth:`.TableFormat.directory`.
        """
        ranges, found, was_read = await self.hop(advance_cached, steps, self.file, self._has_room)
        for some in was_read:
            self.file.count(some)
        while found is None:
            parts = await self.bytes_of(ranges) if self._has_room(ranges) else self._too_large(ranges)
            ranges, found = await self.hop(advance, steps, parts)
        directory: Directory = found
        return directory

    async def fetched(self, group: RowGroup, is_urgent: Callable[[], bool]) -> Fetched:
        """Wait for memory for a group, and read its bytes unless they are probably in the page cache.

        Args:
            is_urgent: Returns True if the consumer waits for this group. It may then exceed a full memory limit.
        """
        nbytes = group.stored_nbytes + group.nbytes
        self._check_group(nbytes)
        charge = await self.budget.admit(nbytes, is_urgent)
        try:
            return Fetched(None if self.file.is_cached else await self.bytes_of(group.ranges), charge)
        except BaseException:
            charge.end()
            raise

    async def decoded(self, directory: Directory, group: RowGroup, fetched: Fetched) -> Decoded:
        """Decode a group. Its charge shrinks to the memory of the rows."""
        parts, charge = fetched
        del fetched
        found: list[TableRows] | None = None
        try:
            if parts is None:
                found = await self.hop(self._cached_rows, charge, directory, group)
                if found is None:
                    parts = await self.bytes_of(group.ranges)
                else:
                    self.file.count(group.ranges)
            if found is None:
                found = await self.hop(self._rows, charge, directory, group, parts)
        except BaseException:
            charge.end()
            raise
        charge.resize(sum(part.nbytes for part in found))
        return Decoded(found, charge)

    async def bytes_of(self, ranges: Ranges) -> list[memoryview]:
        """Read ranges of the file.

        Raises:
            CorruptRecordError: The content of the file ends before a range.
            StorageError: A range cannot be read.
        """
        file = self.file
        if file.content is not None:
            return cut(file.shard.url, file.content, ranges)
        parts = memory_for(ranges, file.blocks)
        try:
            async with asyncio.TaskGroup() as tasks:
                for part, buffer in zip(ranges, parts, strict=True):
                    if part.nbytes:
                        tasks.create_task(file.stores.read_into(file.shard, part.start, buffer))
        except BaseExceptionGroup as failures:
            raise_as_it_is(root_error(failures) or failures)
        return parts

    def needed_nbytes(self, directory: Directory, group: RowGroup, parts: Sequence[memoryview]) -> int:
        """Return the memory that decoding a group needs together with its bytes. Runs on a worker thread.

        Raises:
            MemoryBudgetError: It exceeds the memory limit.
        """
        needed = group.stored_nbytes + directory.decoded_nbytes(group, parts)
        self._check_group(needed)
        return needed

    def _cached_rows(self, charge: Charge, directory: Directory, group: RowGroup) -> list[TableRows] | None:
        """Read and decode a group; None if its bytes are not in the page cache. Runs on a worker thread."""
        parts = self.file.parts(group.ranges)
        return None if parts is None else self._rows(charge, directory, group, parts)

    def _rows(
        self, charge: Charge, directory: Directory, group: RowGroup, parts: Sequence[memoryview]
    ) -> list[TableRows]:
        """Decode a group within a charge, which grows to the memory that this needs. Runs on a worker thread."""
        charge.resize(max(charge.nbytes, self.needed_nbytes(directory, group, parts)))
        return directory.decode(group, parts)

    def _check_group(self, needed: int) -> None:
        limit = self.budget.limit
        if needed > limit:
            raise MemoryBudgetError(
                f"a row group of {safe_url(self.file.shard.url)} needs {needed} bytes, more than the memory limit of "
                f"{limit} bytes. Select fewer columns, raise memory_limit=, or write smaller row groups."
            )

    def _has_room(self, ranges: Ranges) -> bool:
        return sum(part.nbytes for part in ranges) <= self.budget.limit

    def _too_large(self, ranges: Ranges) -> MemoryBudgetError:
        limit, nbytes = self.budget.limit, sum(part.nbytes for part in ranges)
        return MemoryBudgetError(
            f"the directory of {safe_url(self.file.shard.url)} has {nbytes} bytes, more than the memory limit of "
            f"{limit} bytes. Raise memory_limit=."
        )
