"""Read groups of small shards: one reservation, one read and one hop for many shards.

A shard costs a task, a channel and several hops, which take longer than reading a small object. So consecutive small
shards are read into one block, decompressed, and split into records together. Only shards without any problem pass this
way. Every other shard gets a :class:`.ShardReader`, which applies the error policy and names the failure exactly.

A shard is small if its decompressed size is small. This size is known only after the decompression, so a group is
chosen by an estimate. If the decompressed shards take more memory than a group may take, the rest of the group waits
compressed until its turn. A shard that takes more memory than a small shard is read alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import compress, islice
from time import perf_counter
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.memory.budget import RANGES, Budget
from aiostream_data._engine.memory.buffers import BlockPool
from aiostream_data._engine.sources.group_bytes import SEPARATE_NBYTES, BlockPlaces, ObjectPlaces
from aiostream_data._engine.sources.group_limits import GROUP_SHARDS, REQUESTS_OF_A_GROUP, GroupLimits, GroupSize
from aiostream_data._engine.sources.group_rows import FetchedGroup, GroupSplitter, NumberedRefs, ReadAlone
from aiostream_data._engine.sources.shard_siblings import ShardSiblings
from aiostream_data._engine.sources.typical_shards import TypicalShards
from aiostream_data.codecs.compression_by_suffix import MARK_NBYTES, named_compressed, suffix_of
from aiostream_data.codecs.deflate_stream import DEFLATE_NBYTES
from aiostream_data.errors import PlanError, StorageError
from aiostream_data.formats.base import LEFT, holds_one_record
from aiostream_data.formats.small_objects import ObjectKinds
from aiostream_data.formats.small_streams import UnpackLimits
from aiostream_data.metrics.counters import FETCH, FETCHED, FETCHES, StageCounters
from aiostream_data.plan.sources import ReadFiles
from aiostream_data.rows.records import Chunk, ShardRef
from aiostream_data.storage.stores import StoreSet
from aiostream_data.storage.urls import split_url

LOCAL: Final = "file"
"""URL scheme of local files."""

UNPACKING_SHARE: Final = 4
"""Decompressing and splitting takes up to this multiple of the decompressed size: pieces, block, index and ids."""

WINDOW_SHARE: Final = 2
"""The decompressor of a shard in a group may take this multiple of the size of a group. It runs alone in its hop."""


class Rest(NamedTuple):
    """Shards of a group that are split after the rows of the shards before them have been taken.

    Attributes:
        fetched: Shards that have been read.
        unread: Shards after them that have not been read.
    """

    fetched: FetchedGroup | None
    unread: NumberedRefs

    @property
    def shards(self) -> NumberedRefs:
        """All shards of the rest, in order."""
        return [*(() if self.fetched is None else self.fetched.shards), *self.unread]


class GroupRows(NamedTuple):
    """Rows of the first shards of a group.

    Attributes:
        chunk: Rows of all shards that were split, in order; None if there are none.
        rows: Number of rows of each shard, int64; ``LEFT`` for a shard that must be read alone.
        alone: The shards that must be read alone, by their place in the group.
        read_s: Seconds that reading the shards took; None if they had been read before.
        arrived_at: Time of ``perf_counter()`` at which their bytes had arrived.
        rest: The shards after them, or None.
    """

    chunk: Chunk | None
    rows: NDArray[np.int64]
    alone: Mapping[int, ReadAlone]
    read_s: float | None
    arrived_at: float
    rest: Rest | None


@dataclass(frozen=True)
class SmallShards:
    """Reader of groups of small shards in one run of a source.

    Attributes:
        hop: Runs a function on a worker thread.
        siblings: Shows the compression of shards that are too short to show it.
        splitter: Splits the bytes of groups into rows.
        crowd, sharers: Number of sources that are read side by side, and of runs that share the memory limit; see
            :class:`.RunContext`.
    """

    node: ReadFiles
    stores: StoreSet
    budget: Budget
    blocks: BlockPool
    counters: StageCounters
    hop: Callable[..., Any]
    siblings: ShardSiblings
    splitter: GroupSplitter
    crowd: int = 1
    sharers: int = 1
    typical: TypicalShards = field(default_factory=TypicalShards)

    @property
    def is_possible(self) -> bool:
        """True if the memory limit allows groups."""
        return self._limits.most_nbytes > 0

    def is_small(self, shard: ShardRef) -> bool:
        """Return True if a shard may be part of a group. A shard of unknown size may be small.

        An empty object of a store may not: a group would not request it, so its reader checks that it is still empty.
        """
        if shard.nbytes == 0 and scheme_of(shard) != LOCAL:
            return False
        expected = self._expected_nbytes(shard)
        return expected <= self._limits.most_small_nbytes or (
            expected <= self._limits.most_separate_nbytes and self._is_separate(shard)
        )

    def group(self, shards: Iterator[tuple[int, ShardRef]], size: GroupSize) -> NumberedRefs:
        """Take the first shards that form one group of at most this size; the first of them is small."""
        chosen = [next(shards)]
        first = chosen[0][1]
        most = min(size.shards, GROUP_SHARDS if scheme_of(first) == LOCAL else REQUESTS_OF_A_GROUP)
        most_nbytes = min(size.nbytes, self._most_nbytes_of(first), self._limits.crowd_nbytes)
        nbytes = self.likely_nbytes(first)
        for number, shard in islice(shards, most - 1):
            nbytes += self.likely_nbytes(shard)
            if nbytes > most_nbytes or not self.is_small(shard) or not have_one_scheme(first, shard):
                break
            chosen.append((number, shard))
        return chosen

    @cached_property
    def _limits(self) -> GroupLimits:
        return GroupLimits(self.budget.limit, self.crowd, self.sharers * self.node.cycle_length)

    def _most_nbytes_of(self, first: ShardRef) -> int:
        """Return the maximum bytes of a group that begins with the shard ``first``."""
        return self._limits.most_nbytes_of(is_local=scheme_of(first) == LOCAL, is_separate=self._is_separate(first))

    def _is_separate(self, shard: ShardRef) -> bool:
        """Return True if a shard is large enough for a separate object, if each shard is one record."""
        format = self.node.format
        if not (holds_one_record(format) and format.is_one_record(shard.nbytes)):
            return False
        return self.likely_nbytes(shard) >= SEPARATE_NBYTES and not self._is_compressed(shard)

    def likely_nbytes(self, shard: ShardRef) -> float:
        """Return the estimated decompressed size of a small shard, also if its size is unknown."""
        return self.typical.nbytes if shard.nbytes is None else self._expected_nbytes(shard)

    def _expected_nbytes(self, shard: ShardRef) -> int:
        """Return the estimated decompressed size of a shard; 0 if its size is unknown."""
        return (shard.nbytes or 0) * (self.typical.ratio if self._is_compressed(shard) else 1)

    def _is_compressed(self, shard: ShardRef) -> bool:
        """Return True if a shard is compressed, as far as its name, the options of the source and other shards show."""
        compression = self.node.compression
        if compression != "auto":
            return bool(compression)
        return self.typical.are_compressed or named_compressed(shard.url)

    # -- reading

    async def read(self, group: NumberedRefs, is_wanted: Callable[[], bool]) -> GroupRows:
        """Read the shards of a group and split them into records.

        If sizes of the shards were unknown, read only as many of the first shards as fit into a group.

        Args:
            is_wanted: Returns True if the consumer waits for this group. It may then exceed a full memory limit.
        """
        sized, failures = await self._sized(group)
        stop = len(group) if sized is group else self._fitting(sized)
        return await self._read_first(stop, sized, failures, is_wanted)

    async def read_rest(self, rest: Rest, is_wanted: Callable[[], bool]) -> GroupRows:
        """Split the rest of a group into records. See :meth:`read`."""
        if rest.fetched is not None:
            return await self._split(rest, is_wanted)
        sized, failures = await self._sized(rest.unread)
        return await self._read_first(self._fitting(sized), sized, failures, is_wanted)

    async def _read_first(
        self, stop: int, group: NumberedRefs, failures: dict[int, Exception], is_wanted: Callable[[], bool]
    ) -> GroupRows:
        """Read and split the first ``stop`` shards of a group."""
        failures = {place: failure for place, failure in failures.items() if place < stop}
        fetched = await self._fetched(group[:stop], failures, is_wanted)
        return await self._split(Rest(fetched, group[stop:]), is_wanted)

    async def _sized(self, group: NumberedRefs) -> tuple[NumberedRefs, dict[int, Exception]]:
        """Ask for the sizes that are unknown. Return the shards, and the errors of those that cannot be found.

        A large local file keeps its unknown size: its reader asks again, just before it reads the file.
        """
        unknown = [place for place, (_, shard) in enumerate(group) if shard.nbytes is None]
        if not unknown:
            return group, {}
        is_local = scheme_of(group[0][1]) == LOCAL
        sized, failures = list(group), {}
        for place, found in zip(unknown, await self.stores.infos([group[p][1].url for p in unknown]), strict=True):
            if isinstance(found, Exception):
                failures[place] = found
            elif found is not None and (self.is_small(found) or not is_local):
                sized[place] = group[place][0], found
        self.typical.learn([self._expected_nbytes(sized[place][1]) for place in unknown if sized[place][1].nbytes])
        return sized, failures

    def _fitting(self, group: NumberedRefs) -> int:
        """Return the number of first shards whose small ones fit into a group. It is at least 1."""
        nbytes, most_nbytes = 0, self._most_nbytes_of(group[0][1])
        for place, (_, shard) in enumerate(group):
            nbytes += self._expected_nbytes(shard) if self.is_small(shard) else 0
            if nbytes > most_nbytes:
                return max(1, place)
        return len(group)

    async def _fetched(
        self, group: NumberedRefs, failures: dict[int, Exception], is_wanted: Callable[[], bool]
    ) -> FetchedGroup:
        """Read the small shards of a group."""
        was_read = np.array([shard.nbytes is not None and self.is_small(shard) for _, shard in group])
        asked = np.flatnonzero(was_read).tolist()
        shards = [group[place][1] for place in asked]
        sizes = [(shard.nbytes or 0) * is_asked for (_, shard), is_asked in zip(group, was_read.tolist(), strict=True)]
        charge = await self.budget.admit(sum(sizes), is_wanted, RANGES)
        memory = self._memory(sizes)
        began = perf_counter()
        outcomes = await self.stores.read_objects(shards, [memory.places[place] for place in asked]) if shards else []
        arrived_at = perf_counter()
        read_s = arrived_at - began
        for place, failure in zip(asked, outcomes, strict=True):
            if failure is not None:
                failures[place] = failure
                was_read[place] = False
        self.counters.add(FETCH, read_s)
        self.counters.add(FETCHES, int(was_read.sum()))
        self.counters.add(FETCHED, sum(compress(sizes, was_read)))
        suffixes = await self._plain_suffixes(shards)
        return FetchedGroup(group, memory.filled(), was_read, failures, suffixes, charge, read_s, arrived_at)

    def _memory(self, sizes: Sequence[int]) -> BlockPlaces | ObjectPlaces:
        """Return memory for shards of these sizes."""
        nbytes, format = sum(sizes), self.node.format
        are_large = nbytes >= SEPARATE_NBYTES * len(sizes)
        if are_large and holds_one_record(format) and all(map(format.is_one_record, filter(None, sizes))):
            return ObjectPlaces(self.blocks.lend_objects(sizes))
        return BlockPlaces(self.blocks.lend(nbytes), sizes)

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

    # -- splitting

    async def _split(self, rest: Rest, is_wanted: Callable[[], bool]) -> GroupRows:
        """Split shards that were read. If some are compressed, split only as many as fit into a group."""
        group = rest.fetched
        assert group is not None, "the shards were not read"
        if group.content.is_split and all(decoder.wraps for decoder in self.node.decoders):
            kinds, found = self.splitter.split_unless_compressed(group, self._limits.most_rows_nbytes)
        else:
            room = await self.budget.room_for_step(
                group.nbytes + self._limits.rows_nbytes(group.nbytes, len(group.shards)), is_wanted
            )
            kinds, found = await self.hop(self.splitter.split_unless_compressed, group, self._limits.most_rows_nbytes)
            room.end()
        self.typical.are_compressed = found is None
        if found is None:
            self.counters.work = "decompress"
            limits = self._unpack_limits(group, kinds)
            room_needed = room_nbytes(limits, kinds) + group.content.joining_nbytes
            room = await self.budget.room_for_step(room_needed, is_wanted)
            found = await self.hop(self.splitter.split_compressed, group, kinds, limits, self._limits.most_rows_nbytes)
            room.end()
            rows = [found.rows[place] for place in kinds.compressed if place < len(found.rows)]
            self.typical.decompressed(len(rows), rows.count(LEFT))
        count = len(found.rows)
        left = group.behind(count) if count < len(group.shards) else None
        alone = {place: group.alone(place) for place in np.flatnonzero(found.rows == LEFT).tolist()}
        behind = Rest(left, rest.unread) if left or rest.unread else None
        return GroupRows(found.chunk, found.rows, alone, group.read_s, group.arrived_at, behind)

    def _unpack_limits(self, group: FetchedGroup, kinds: ObjectKinds) -> UnpackLimits:
        most = self._limits.most_nbytes
        nbytes = group.content.sizes
        expected = int(nbytes.sum() + (self.typical.ratio - 1) * nbytes[list(kinds.compressed)].sum())
        return UnpackLimits(
            nbytes=min(most, expected),
            object_nbytes=self._limits.most_small_nbytes,
            window_nbytes=max(WINDOW_SHARE * most, DEFLATE_NBYTES),
        )


def scheme_of(shard: ShardRef) -> str:
    """Return the URL scheme of a shard; "" if the URL is invalid, which the reader of the shard explains."""
    try:
        return split_url(shard.url).scheme
    except PlanError:
        return ""


def have_one_scheme(first: ShardRef, second: ShardRef) -> bool:
    """Return True if the URLs of two shards have the same scheme."""
    if first.url.startswith("/") and second.url.startswith("/"):
        return True
    scheme, mark, _ = first.url.partition("://")
    return (bool(mark) and second.url.startswith(scheme + mark)) or scheme_of(first) == scheme_of(second)


def room_nbytes(limits: UnpackLimits, kinds: ObjectKinds) -> int:
    """Return the maximum number of bytes that decompressing and splitting the shards of a group takes."""
    has_windows = any(name not in ("gzip", "zlib") for name in kinds.compressed.values())
    window = limits.window_nbytes if has_windows else DEFLATE_NBYTES
    return UNPACKING_SHARE * (limits.nbytes + limits.object_nbytes) + window
