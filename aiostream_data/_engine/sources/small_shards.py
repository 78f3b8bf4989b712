"""Read groups of small shards: one reservation, one read and one hop for many shards.

A shard costs a task, a channel and several hops, which take longer than reading a small object. So consecutive small
shards are read into one block, and split into records together. Only shards without any problem pass this way. Every
other shard gets a :class:`.ShardReader`, which decompresses, applies the error policy and names the failure exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.flow.sizes import chunk_nbytes
from aiostream_data._engine.memory.budget import DECODED, RANGES, Budget
from aiostream_data._engine.memory.buffers import BlockPool
from aiostream_data._engine.resume.shard_offsets import ShardOffsets
from aiostream_data._engine.sources.shard_reader import Content, decode, own_nbytes
from aiostream_data._engine.sources.shard_siblings import ShardSiblings
from aiostream_data.codecs.compression_by_suffix import MARK_NBYTES, suffix_of
from aiostream_data.errors import StorageError
from aiostream_data.formats.base import LEFT, SplitsObjects
from aiostream_data.formats.small_objects import split_objects
from aiostream_data.metrics.counters import FETCH, FETCHED, FETCHES, StageCounters
from aiostream_data.plan.sources import ReadFiles
from aiostream_data.rows.records import Chunk, ShardRef, VarColumn, concat, records_chunk
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.storage.stores import LATE, StoreSet
from aiostream_data.storage.urls import split_url

LOCAL: Final = "file"
"""URL scheme of local files."""

GROUP_NBYTES: Final = 4 << 20
"""Maximum bytes of a group."""

GROUP_SHARE: Final = 64
"""A group may take this fraction (1/64) of the memory limit."""

GROUP_SHARDS: Final = 512
"""Maximum number of shards of a group on this machine."""

REQUESTS_OF_A_GROUP: Final = 16
"""Maximum number of shards of a group in a remote store. They are requested at once."""

FIRST_SHARDS: Final = 4
"""Number of shards of the first group, so that the first rows arrive early."""

QUICK_S: Final = 0.02
"""Groups of local files grow while reading one takes less than this time, in seconds."""

SLOW_S: Final = 0.1
"""Groups of local files shrink if reading one takes more than this time, in seconds."""

SHARDS_OF_A_FULL_GROUP: Final = 4
"""A shard is small if at least this number of shards of its size fit into a group."""


class ReadAlone(NamedTuple):
    """A shard of a group that must be read alone.

    Attributes:
        number: Number of the shard in its source.
        failure: Error of reading the shard, or None.
        content: Bytes of the shard; None if they could not be read, or if their read was cancelled as late.
    """

    number: int
    failure: Exception | None
    content: Content | None


class GroupRows(NamedTuple):
    """Records of a group.

    Attributes:
        chunk: Records of all shards that were split, in order; None if there are none.
        rows: Number of records of each shard, int64; ``LEFT`` for a shard that must be read alone.
        alone: The shards that must be read alone, by their place in the group.
        read_s: Seconds that reading all shards took.
    """

    chunk: Chunk | None
    rows: NDArray[np.int64]
    alone: Mapping[int, ReadAlone]
    read_s: float


@dataclass(frozen=True)
class SmallShards:
    """Reader of groups of small shards in one run of a source.

    Attributes:
        first_split: Split number of the rows of shard number 0.
        offsets: Known byte offsets of records. Receives the starts of the shards that were split.
        hop: Runs a function on a worker thread.
        siblings: Shows the compression of shards that are too short to show it.
    """

    node: ReadFiles
    stores: StoreSet
    budget: Budget
    blocks: BlockPool
    counters: StageCounters
    hop: Callable[..., Any]
    siblings: ShardSiblings
    first_split: int
    offsets: ShardOffsets

    @property
    def is_possible(self) -> bool:
        """True if shards of this source may be read in groups."""
        node = self.node
        return isinstance(node.format, SplitsObjects) and not node.checks_first and self._most_nbytes > 0

    def is_small(self, shard: ShardRef) -> bool:
        """Return True if a shard may be part of a group."""
        return shard.nbytes is not None and shard.nbytes * SHARDS_OF_A_FULL_GROUP <= self._most_nbytes

    def group(self, shards: Sequence[tuple[int, ShardRef]], most: int) -> list[tuple[int, ShardRef]]:
        """Return the first shards that form one group of at most ``most`` shards; the first of them is small."""
        scheme = split_url(shards[0][1].url).scheme
        most = min(most, GROUP_SHARDS if scheme == LOCAL else REQUESTS_OF_A_GROUP)
        chosen: list[tuple[int, ShardRef]] = []
        nbytes = 0
        for number, shard in shards[:most]:
            nbytes += shard.nbytes or 0
            if not self.is_small(shard) or nbytes > self._most_nbytes or split_url(shard.url).scheme != scheme:
                break
            chosen.append((number, shard))
        return chosen

    @property
    def _most_nbytes(self) -> int:
        return min(GROUP_NBYTES, self.budget.limit // GROUP_SHARE)

    async def read(self, group: Sequence[tuple[int, ShardRef]], is_wanted: Callable[[], bool]) -> GroupRows:
        """Read the shards of a group and split them into records.

        Args:
            is_wanted: Returns True if the consumer waits for this group. It may then exceed a full memory limit.
        """
        shards = [shard for _, shard in group]
        bounds = np.cumsum([0, *[shard.nbytes or 0 for shard in shards]], dtype=np.int64)
        nbytes = int(bounds[-1])
        charge = await self.budget.admit(nbytes, is_wanted, RANGES)
        values = self.blocks.lend(nbytes)
        began = perf_counter()
        failures = await self.stores.read_objects(shards, bounds, values)
        read_s = perf_counter() - began
        was_read = np.array([failure is None for failure in failures])
        self.counters.add(FETCH, read_s)
        self.counters.add(FETCHES, int(was_read.sum()))
        self.counters.add(FETCHED, int(np.diff(bounds)[was_read].sum()))
        plain_suffixes = await self._plain_suffixes(shards)
        room = await self.budget.room_for_step(2 * nbytes, is_wanted)
        chunk, rows = await self.hop(self._rows, group, values, bounds, was_read, plain_suffixes, charge)
        room.end()
        alone = {
            place: ReadAlone(group[place][0], None, Content(values[bounds[place] : bounds[place + 1]], charge))
            if was_read[place]
            else ReadAlone(group[place][0], None if failures[place] is LATE else failures[place], None)
            for place in np.flatnonzero(rows == LEFT).tolist()
        }
        return GroupRows(chunk, rows, alone, read_s)

    async def _plain_suffixes(self, shards: Sequence[ShardRef]) -> set[str]:
        """Return the suffixes of shards too short to show a compression, if other shards show that there is none."""
        if self.node.compression.lower() != "auto":
            return set()
        short = {suffix_of(shard.url): shard.url for shard in shards if (shard.nbytes or 0) < MARK_NBYTES}
        plain = set()
        for suffix, url in short.items():
            with suppress(StorageError):  # raised by the reader of each short shard
                if await self.siblings.evidence(url) is None:
                    plain.add(suffix)
        return plain

    # -- on a worker thread

    def _rows(
        self,
        group: Sequence[tuple[int, ShardRef]],
        values: NDArray[np.uint8],
        bounds: NDArray[np.int64],
        was_read: NDArray[np.bool_],
        plain_suffixes: set[str],
        charge: object,
    ) -> tuple[Chunk | None, NDArray[np.int64]]:
        """Return the rows of all shards without a problem, and the number of rows of each shard."""
        urls = [shard.url for _, shard in group]
        node = self.node
        found = split_objects(node.format, node.compression, urls, values, bounds, plain_suffixes, was_read)
        if found is None:
            return None, np.full(len(group), LEFT, np.int64)
        parts = list(self._decoded(found.column, found.rows, group))
        return (self._leased(concat(parts), values, charge) if parts else None), found.rows

    def _decoded(
        self, column: VarColumn, rows: NDArray[np.int64], shards: Sequence[tuple[int, ShardRef]]
    ) -> Iterator[Chunk]:
        """Yield decoded records. If a shard cannot be decoded, set its number of rows to ``LEFT``."""
        was_split = np.flatnonzero(rows != LEFT)
        counts = rows[was_split]
        stops = np.cumsum(counts)
        shard_of = np.repeat(was_split, counts)
        ordinals = np.arange(len(column)) - np.repeat(stops - counts, counts)
        numbers = np.array([number for number, _ in shards], np.int64)
        if not self.node.format.whole:
            self.offsets.learn_starts(numbers[was_split])
        ids = RowIds.of_source(self.first_split + numbers[shard_of], ordinals)
        chunk: Chunk = records_chunk(column, ids)
        urls = [shards[place][1].url for place in shard_of.tolist()]

        def parsed(start: int, stop: int) -> Chunk:
            def describe(row: int) -> tuple[str, int]:
                return urls[start + row], int(ordinals[start + row])

            return decode(chunk.slice(start, stop), self.node.decoders, describe)

        try:
            yield parsed(0, len(chunk))
        except Exception:  # noqa: BLE001 - the reader of the failing shard raises it
            for place, start, stop in zip(was_split.tolist(), (stops - counts).tolist(), stops.tolist(), strict=True):
                try:
                    yield parsed(start, stop)
                except Exception:  # noqa: BLE001 - the reader of this shard raises it
                    rows[place] = LEFT

    def _leased(self, chunk: Chunk, values: NDArray[np.uint8], charge: object) -> Chunk:
        """Return a chunk with a lease on the block of the group, if its rows refer to the block, and on its arrays."""
        own = own_nbytes(chunk, values)
        if own is None:
            return chunk.with_lease(self.budget.charge(chunk_nbytes(chunk), DECODED))
        return chunk.with_lease((charge, self.budget.charge(own, DECODED)))


def next_size(shards: int, read_s: float, *, is_local: bool) -> int:
    """Return the maximum number of shards of the next groups, after a group of ``shards`` shards.

    A group delivers its first row after its last shard was read. Local files are read one after another, so groups stay
    small on slow file systems. Objects in a store are requested at the same time.
    """
    if not is_local:
        return min(2 * shards, REQUESTS_OF_A_GROUP)
    if read_s < QUICK_S:
        return min(2 * shards, GROUP_SHARDS)
    return shards if read_s < SLOW_S else max(FIRST_SHARDS, shards // 2)
