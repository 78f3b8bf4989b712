"""Format of MosaicML MDS shards: a table of offsets, a JSON header, and samples.

A shard begins with the number of samples and the offset of each sample and of the end, all uint32 and little-endian. A
header in JSON follows, and then the samples. A sample begins with the size of each value of variable size, uint32. The
values of all columns follow.

A reader that starts inside a shard has no offsets. It finds the end of each sample from the sizes of its columns.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aiostream_data.arguments import integer
from aiostream_data.errors import PlanError
from aiostream_data.formats.cutting import Bytes, Cut, CuttingFramer, no_records
from aiostream_data.formats.long_record import LongRecord
from aiostream_data.formats.mds_columns import MdsColumn
from aiostream_data.formats.mds_index import columns_of, parse_mds_index
from aiostream_data.rows.columns import VarColumn
from aiostream_data.rows.records import ShardRef

Indices = NDArray[np.int64]

_COUNT_NBYTES: Final = 4
_MAX_JSON_NBYTES: Final = 16 << 20
"""Maximum size of the JSON header of a shard."""


class _FoundSamples(NamedTuple):
    """Samples in a range of bytes.

    Attributes:
        starts, lengths: Place of each complete sample.
        consumed: Index of the first byte after them.
        problem: Description of the damage at ``consumed``, or None.
    """

    starts: Indices
    lengths: Indices
    consumed: int
    problem: str | None = None


@dataclass(frozen=True, kw_only=True)
class MdsFormat:
    """Format of MDS shards of version 2.

    Attributes:
        columns: Columns of all shards; empty until ``open()`` has read the index.
        max_sample_nbytes: Maximum size of a sample, and of the table of offsets, in bytes.
        samples: Number of samples of each shard, by its URL, as far as the index tells it.
    """

    columns: tuple[MdsColumn, ...] = ()
    max_sample_nbytes: int = 1 << 30
    samples: Mapping[str, int] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        integer("max_sample_nbytes", self.max_sample_nbytes, 1)

    @property
    def name(self) -> str:
        return "mds"

    @property
    def whole(self) -> bool:
        return False

    @property
    def largest_nbytes(self) -> int:
        """Maximum size of a record in bytes."""
        return self.max_sample_nbytes

    @cached_property
    def head_nbytes(self) -> int:
        """Number of bytes of the sizes at the start of a sample."""
        return 4 * sum(column.nbytes is None for column in self.columns)

    @cached_property
    def fixed_nbytes(self) -> int:
        """Number of bytes of a sample besides the values of variable size."""
        return self.head_nbytes + sum(column.nbytes or 0 for column in self.columns)

    def framer(self, url: str) -> MdsFramer:
        return MdsFramer(self, url)

    def indexed(self, index_url: str, content: bytes) -> Sequence[ShardRef]:
        """Return the shards that ``index.json`` lists. See :class:`.ReadsIndex`."""
        if not self.columns:
            raise PlanError(
                "from_mds() reads its index only when its dataset is opened by itself, but a function returned this "
                "dataset. Combine datasets with concatenate() or sample_from()."
            )
        return parse_mds_index(index_url, content).shards

    def recognises(self, first_bytes: bytes) -> bool:
        """Return True if the bytes begin with a number of samples and a first offset that fits it."""
        if len(first_bytes) < 2 * _COUNT_NBYTES:
            return False
        count, first = (int(number) for number in struct.unpack_from("<II", first_bytes))
        table = _table_nbytes(count)
        return table + 2 < first <= table + _MAX_JSON_NBYTES

    def sample_nbytes(self, values: Bytes, starts: Indices) -> Indices:
        """Return the size of the samples whose sizes of columns stand at ``starts``."""
        nbytes = np.full(len(starts), self.fixed_nbytes, np.int64)
        for at in range(0, self.head_nbytes, 4):
            nbytes += uint32_at(values, starts + at)
        return nbytes


def uint32_at(values: Bytes, starts: Indices) -> Indices:
    """Return the little-endian uint32 numbers at some places, as int64."""
    found = np.zeros(len(starts), np.int64)
    for byte in range(4):
        found |= values[starts + byte].astype(np.int64) << (8 * byte)
    return found


def _table_nbytes(count: int) -> int:
    return _COUNT_NBYTES + 4 * (count + 1)


class MdsFramer(CuttingFramer):
    """Framer that splits one shard into samples, and checks the table of offsets against the samples."""

    def __init__(self, description: MdsFormat, url: str) -> None:
        super().__init__(url)
        self._format = description
        self._edges: Indices | None = None  # offset of each sample and of the end
        self._next = 0  # number of the next sample
        self._has_header = True  # False after resume()
        self._wanted = 1  # bytes from the start of the incomplete record that are needed for progress
        self._found: _FoundSamples | None = None  # result of _window for _cut

    def resume(self, offset: int) -> None:
        super().resume(offset)
        self._has_header = offset == 0

    @property
    def record_nbytes(self) -> int:
        return max(self._wanted, self.held_nbytes)

    def check_end(self, nbytes: int) -> None:
        """Check that the incomplete sample or the table of offsets does not extend beyond the end of the stream.

        Raises:
            CorruptRecordError: It extends beyond the end of the stream.
        """
        if self.held_nbytes and self._offset + self._wanted > nbytes:
            raise self._failed(self._cut_short(nbytes - self._offset))

    def _completes(self, fresh: Bytes) -> bool:
        return self._tail.nbytes + len(fresh) >= self._wanted

    def _window(self, values: Bytes, start: int, stop: int, most_rows: int) -> int:
        self._found = found = self._samples(values, start, stop, most_rows)
        return found.consumed if len(found.starts) == most_rows and found.consumed < stop else stop

    def _cut(self, values: Bytes, start: int, stop: int) -> Cut:
        found, self._found = self._found, None
        assert found is not None
        self._next += len(found.starts)
        return Cut(VarColumn(values, found.starts, found.lengths), found.consumed, found.problem)

    def _samples(self, values: Bytes, start: int, stop: int, most_rows: int) -> _FoundSamples:
        """Find the complete samples in a range of bytes, and the number of bytes that the next one needs."""
        none = np.empty(0, np.int64)
        at = start
        if self._has_header and self._edges is None:
            edges, problem = self._read_header(values[start:stop])
            if edges is None:
                return _FoundSamples(none, none, start, problem)
            self._edges, at = edges, start + int(edges[0])
        if self._edges is None:
            return self._chained(values, at, stop, most_rows)
        return self._listed(self._edges, values, at, start, stop, most_rows)

    def _read_header(self, received: Bytes) -> tuple[Indices | None, str | None]:
        """Return the offsets if they and the JSON header are complete, or a description of their damage."""
        self._wanted = _table_nbytes(0)
        if len(received) < self._wanted:
            return None, None
        count = int.from_bytes(received[:_COUNT_NBYTES].tobytes(), "little")
        table = _table_nbytes(count)
        if table > self._format.max_sample_nbytes:
            return None, f"the shard claims {count} samples, whose offsets exceed max_sample_nbytes"
        listed = self._format.samples.get(self._url, count)
        if listed != count:
            reason = f"the shard has {count} samples, but the index lists {listed}"
            return None, f"{reason}. Write the index again, or replace the shard by the one that the index describes"
        self._wanted = table
        if len(received) < table:
            return None, None
        edges = np.frombuffer(received[_COUNT_NBYTES:table].tobytes(), "<u4").astype(np.int64)
        problem = self._problem_of_edges(edges, table)
        if problem is not None:
            return None, problem
        self._wanted = first = int(edges[0])
        if len(received) < first:
            return None, None
        problem = self._problem_of_json(received[table:first].tobytes())
        return None if problem is not None else edges, problem

    def _problem_of_edges(self, edges: Indices, table: int) -> str | None:
        """Describe the damage of a table of offsets that ends at byte ``table``, or return None."""
        first, sizes = int(edges[0]), np.diff(edges)
        if not table < first <= table + _MAX_JSON_NBYTES:
            return f"the first of {len(sizes)} samples begins at byte {first}, but the offsets end at byte {table}"
        falls = np.flatnonzero(sizes < 0)
        if len(falls):
            return f"the offsets decrease after sample {int(falls[0])}"
        largest = int(sizes.max(initial=0))
        if largest > self._format.max_sample_nbytes:
            return f"a sample has {largest} bytes, more than max_sample_nbytes"
        return None

    def _problem_of_json(self, text: bytes) -> str | None:
        try:
            described = json.loads(text)
        except (ValueError, RecursionError):
            return "the header is not JSON"
        columns = columns_of(described)
        if columns is None:
            return "the header has an invalid list of columns"
        if columns == self._format.columns:
            return None
        other = [column.name for column in columns if column not in self._format.columns]
        return f"the columns of the shard are not those of the index: {other or [column.name for column in columns]}"

    def _listed(self, edges: Indices, values: Bytes, at: int, start: int, stop: int, most_rows: int) -> _FoundSamples:
        """Find the samples at the known offsets."""
        base = start - self._offset
        behind = min(int(np.searchsorted(edges, stop - base, "right")), self._next + most_rows + 1)
        places = edges[self._next : behind] + base
        starts, lengths = places[:-1], np.diff(places)
        bad = self._first_bad(values, starts, lengths)
        if bad is not None:
            reason = f"the sizes of the columns of sample {self._next + bad} do not add up to its size"
            return _FoundSamples(starts[:bad], lengths[:bad], int(starts[bad]), reason)
        consumed = int(places[-1]) if len(places) else at
        done = self._next + len(starts)
        if done + 1 < len(edges):
            self._wanted = int(edges[done + 1] - edges[done])
            return _FoundSamples(starts, lengths, consumed)
        self._wanted = 1
        problem = f"bytes follow the last of {len(edges) - 1} samples" if consumed < stop else None
        return _FoundSamples(starts, lengths, consumed, problem)

    def _first_bad(self, values: Bytes, starts: Indices, lengths: Indices) -> int | None:
        """Return the first sample whose size is not the size of its columns."""
        bad = lengths < self._format.fixed_nbytes
        fits = np.flatnonzero(~bad)
        bad[fits] = self._format.sample_nbytes(values, starts[fits]) != lengths[fits]
        found = np.flatnonzero(bad)
        return int(found[0]) if len(found) else None

    def _chained(self, values: Bytes, start: int, stop: int, most_rows: int) -> _FoundSamples:
        """Find the samples one after the other, by the sizes of their columns."""
        head, fixed, most = self._format.head_nbytes, self._format.fixed_nbytes, self._format.max_sample_nbytes
        sizes = struct.Struct(f"<{head // 4}I")
        starts: list[int] = []
        data, at, problem = values.data, start, None
        self._wanted = head or fixed
        while len(starts) < most_rows and at + head <= stop:
            nbytes = fixed + sum(sizes.unpack_from(data, at))
            if nbytes > most:
                problem = f"a sample has {nbytes} bytes, more than max_sample_nbytes"
            if problem is not None or at + nbytes > stop:
                self._wanted = nbytes
                break
            starts.append(at)
            at += nbytes
        edges = np.array([*starts, at], np.int64)
        return _FoundSamples(edges[:-1], np.diff(edges), at, problem)

    def _end(self, tail: Bytes) -> Cut:
        is_cut = len(tail) > 0 or (self._has_header and (self._edges is None or self._next + 1 < len(self._edges)))
        return Cut(no_records(), 0, self._cut_short(len(tail)) if is_cut else None)

    def _cut_short(self, nbytes: int) -> str:
        what = "its header" if self._has_header and self._edges is None else f"a sample of {self._wanted} bytes"
        return f"the stream ends {nbytes} bytes into {what}"

    # -- samples that are longer than a block

    def _begin_long(self, rest: Bytes) -> LongRecord | None:
        is_header = self._has_header and self._edges is None
        if is_header or self._wanted <= len(rest):
            return None
        long = LongRecord(self._wanted)
        long.take(rest)
        return long

    def _problem_of(self, data: bytes, suffix: bytes) -> str | None:
        values, none = np.frombuffer(data, np.uint8), np.zeros(1, np.int64)
        bad = self._first_bad(values, none, np.array([len(data)], np.int64))
        return None if bad is None else f"the sizes of the columns of sample {self._next} do not add up to its size"

    def _long_column(self, long: LongRecord) -> VarColumn:
        column = super()._long_column(long)
        self._next += 1
        self._wanted = 1
        return column
