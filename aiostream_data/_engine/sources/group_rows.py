"""Turn the bytes of a group of small shards into rows, on a worker thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.flow.sizes import chunk_nbytes
from aiostream_data._engine.flow.step_sizes import ROW_NBYTES
from aiostream_data._engine.memory.budget import DECODED, Budget
from aiostream_data._engine.memory.buffers import BlockPool
from aiostream_data._engine.resume.shard_offsets import ShardOffsets
from aiostream_data._engine.sources.group_bytes import GroupBytes, OneBlock
from aiostream_data._engine.sources.shard_chunks import decode, own_nbytes
from aiostream_data._engine.sources.shard_ranges import Content
from aiostream_data.formats.base import LATER, LEFT, Format
from aiostream_data.formats.small_objects import ObjectKinds, accepted, fitting, kinds_of_objects
from aiostream_data.formats.small_streams import UnpackLimits, unpack
from aiostream_data.plan.sources import ReadFiles
from aiostream_data.rows.columns import VarColumn
from aiostream_data.rows.records import Chunk, ShardRef, concat, records_chunk
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.storage.stores import LATE

NumberedRefs: TypeAlias = Sequence[tuple[int, ShardRef]]
"""Consecutive shards: the number of each shard in its source, and its reference."""


_MEASURED_ROWS: Final = 64
"""Number of first rows of a group that show the size of a decoded row. So few rows need not be measured."""


class ReadAlone(NamedTuple):
    """A shard of a group that must be read alone.

    Attributes:
        number: Number of the shard in its source.
        shard: Reference to the shard, with its size if the size is known.
        failure: Error of reading the shard, or None.
        content: Bytes of the shard; None if they could not be read, or if their read was cancelled as late.
    """

    number: int
    shard: ShardRef
    failure: Exception | None
    content: Content | None


@dataclass(frozen=True)
class FetchedGroup:
    """Bytes of consecutive shards.

    Attributes:
        shards: Number and reference of each shard.
        content: Bytes of all shards.
        was_read: Mask of the shards that were read.
        failures: Error of each shard that failed; ``LATE`` if its read was cancelled as late.
        plain_suffixes: Suffixes of URLs for which other shards of the source show that nothing is compressed.
        charge: Memory charge of ``content``.
        read_s: Seconds that reading the shards took; None for the rest of a group.
        arrived_at: Time of ``perf_counter()`` at which the bytes had arrived.
    """

    shards: NumberedRefs
    content: GroupBytes
    was_read: NDArray[np.bool_]
    failures: Mapping[int, Exception]
    plain_suffixes: set[str]
    charge: object
    read_s: float | None
    arrived_at: float

    @property
    def nbytes(self) -> int:
        """Number of bytes of all shards."""
        return int(self.content.sizes.sum())

    def behind(self, count: int) -> FetchedGroup:
        """Return the group without its first ``count`` shards."""
        failures = {place - count: failure for place, failure in self.failures.items() if place >= count}
        return replace(
            self,
            shards=self.shards[count:],
            content=self.content.behind(count),
            was_read=self.was_read[count:],
            failures=failures,
            read_s=None,
        )

    def alone(self, place: int) -> ReadAlone:
        """Return the shard at ``place``, to be read alone."""
        failure = self.failures.get(place)
        if not self.was_read[place]:
            return ReadAlone(*self.shards[place], None if failure is LATE else failure, None)
        return ReadAlone(*self.shards[place], None, Content(self.content.of(place), self.charge))


class SplitShards(NamedTuple):
    """Rows of the first shards of a group.

    Attributes:
        chunk: Rows of all shards that were split, in order; None if there are none.
        rows: Number of rows of each shard, int64; ``LEFT`` for a shard that must be read alone.
    """

    chunk: Chunk | None
    rows: NDArray[np.int64]


@dataclass(frozen=True)
class GroupSplitter:
    """Splitter of groups of one run of a source. Safe from any thread.

    Attributes:
        first_split: Split number of the rows of shard number 0.
        offsets: Known byte offsets of records. Receives the starts of the uncompressed shards that were split.
    """

    node: ReadFiles
    format: Format
    budget: Budget
    blocks: BlockPool
    first_split: int
    offsets: ShardOffsets

    def split_unless_compressed(self, group: FetchedGroup, most_nbytes: int) -> tuple[ObjectKinds, SplitShards | None]:
        """Return the compression of all shards, and the rows of the first shards: at least of one.

        The rows are None if any shard is compressed.

        Args:
            most_nbytes: Maximum bytes of the rows: of their index and ids, and of their decoded values. A shard whose
                rows take more must be read alone.
        """
        urls = [shard.url for _, shard in group.shards]
        kinds = kinds_of_objects(
            self.format, self.node.compression, urls, *group.content.starts(), group.plain_suffixes, group.was_read
        )
        if kinds.compressed:
            return kinds, None
        return kinds, self._split(group, kinds, group.content, kinds.is_plain, group.charge, most_nbytes)

    def split_compressed(
        self, group: FetchedGroup, kinds: ObjectKinds, limits: UnpackLimits, most_nbytes: int
    ) -> SplitShards:
        """Return the rows of the first shards of a group, as many as the limits allow, and at least of one shard.

        See :meth:`split_unless_compressed`.
        """
        found = unpack(*group.content.block(), kinds, limits, self.blocks.lend)
        charge = self.budget.charge(found.values.nbytes, DECODED)
        is_plain = found.is_ready & accepted(self.format, found.values, found.bounds)
        return self._split(group, kinds, OneBlock(found.values, found.bounds), is_plain, charge, most_nbytes)

    def _split(
        self,
        group: FetchedGroup,
        kinds: ObjectKinds,
        content: GroupBytes,
        is_plain: NDArray[np.bool_],
        charge: object,
        most_nbytes: int,
    ) -> SplitShards:
        """Split the uncompressed bytes of the first shards of a group."""
        most_rows = most_nbytes // ROW_NBYTES
        column, rows = content.records(self.format, [shard.url for _, shard in group.shards], is_plain, most_rows)
        if not len(column):
            return SplitShards(None, rows)
        parts = list(self._decoded(column, rows, group, kinds, most_nbytes))
        return SplitShards(self._leased(concat(parts), content, charge) if parts else None, rows[rows != LATER])

    def _decoded(
        self, column: VarColumn, rows: NDArray[np.int64], group: FetchedGroup, kinds: ObjectKinds, most_nbytes: int
    ) -> Iterator[Chunk]:
        """Yield decoded records. Set the number of rows of each shard that is not decoded to ``LEFT`` or ``LATER``."""
        was_split = np.flatnonzero(rows != LEFT)
        counts = rows[was_split]
        stops = np.cumsum(counts)
        shard_of = np.repeat(was_split, counts)
        ordinals = np.arange(len(column)) - np.repeat(stops - counts, counts)
        numbers = np.array([number for number, _ in group.shards], np.int64)
        if not self.format.whole:
            self.offsets.learn_starts(numbers[was_split[kinds.is_plain[was_split]]])
        ids = RowIds.of_source(self.first_split + numbers[shard_of], ordinals)
        chunk: Chunk = records_chunk(column, ids)

        def parsed(start: int, stop: int) -> Chunk:
            def describe(row: int) -> tuple[str, int]:
                return group.shards[int(shard_of[start + row])][1].url, int(ordinals[start + row])

            return decode(chunk.slice(start, stop), self.node.decoders, describe)

        most_rows = self._most_decoded_rows(parsed, len(chunk), most_nbytes)
        taken = fitting(counts, most_rows)
        if taken < len(counts):
            rows[was_split[taken] :] = LATER
        counts, stops = counts[:taken], stops[:taken]
        together = None if (counts > most_rows).any() else _attempt(parsed, 0, int(stops[-1]))
        if together is not None:
            yield together
            return
        places = was_split[:taken].tolist()
        for place, start, stop in zip(places, (stops - counts).tolist(), stops.tolist(), strict=True):
            part = None if stop - start > most_rows else _attempt(parsed, start, stop)
            if part is None:
                rows[place] = LEFT
            else:
                yield part

    def _most_decoded_rows(self, parsed: Callable[[int, int], Chunk], rows: int, most_nbytes: int) -> int:
        """Return how many of the rows may be decoded together, as far as the size of the first rows shows it."""
        first = _attempt(parsed, 0, _MEASURED_ROWS) if self.node.decoders and rows > _MEASURED_ROWS else None
        return rows if first is None else most_nbytes * _MEASURED_ROWS // max(1, chunk_nbytes(first))

    def _leased(self, chunk: Chunk, content: GroupBytes, charge: object) -> Chunk:
        """Return a chunk with a lease on the bytes of the group, if its rows refer to them, and on its arrays."""
        own = own_nbytes(chunk, content.are_in)
        if own is None:
            return chunk.with_lease(self.budget.charge(chunk_nbytes(chunk), DECODED))
        return chunk.with_lease((charge, self.budget.charge(own, DECODED)))


def _attempt(parsed: Callable[[int, int], Chunk], start: int, stop: int) -> Chunk | None:
    """Return decoded rows, or None if they cannot be decoded."""
    try:
        return parsed(start, stop)
    except Exception:  # noqa: BLE001 - the reader of the failing shard raises it
        return None
