"""WebDataset format: each record is a sample, which is a run of tar members with the same key.

A record is the part of the archive from the sample's first header to the next sample. The decoder
(:mod:`.webdataset_samples`) reads the headers again and converts the record to a dict.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from typing import Final

import numpy as np

from aiostream_data import _native
from aiostream_data._native.tar_py import BLOCK, END, EXT_HASH, FIRST, KEY_HASH, KEY_NBYTES, MORE, TarWalk
from aiostream_data.arguments import integer
from aiostream_data.codecs.file_kinds import TAR, FileKind, kind_of
from aiostream_data.formats.cutting import Bytes, Cut, CuttingFramer, no_records
from aiostream_data.formats.long_record import LongRecord
from aiostream_data.formats.record_runs import RunFinder
from aiostream_data.formats.tar_samples import (
    SeenKeys,
    again_in_sample,
    again_in_shard,
    first_repeat,
    key_of,
    name_of,
    samples_of,
    too_large,
)
from aiostream_data.formats.webdataset_recovery import WebDatasetRecovery
from aiostream_data.formats.webdataset_runs import WebDatasetRuns
from aiostream_data.formats.webdataset_samples import WebDatasetSamples
from aiostream_data.rows.columns import VarColumn

NO_END: Final = (
    "the archive has no end marker, so members may be missing: write it again, or pass verify=False to accept it"
)
ANOTHER: Final = "another archive follows the end of this archive: store each archive as a separate file"


def walked(values: Bytes, start: int, stop: int) -> TarWalk:
    """Read the headers in one range."""
    return _native.walk_tar(values, np.array([start], np.int64), np.array([stop], np.int64))


@dataclass(frozen=True, kw_only=True)
class WebDatasetFormat:
    """Format of WebDataset shards: tar archives whose consecutive members form samples.

    The checksum of every header is always verified.

    Attributes:
        verify: If True, an archive without its end marker is damaged.
        max_sample_nbytes: Maximum size of a sample in the archive, in bytes.
    """

    verify: bool = True
    max_sample_nbytes: int = 1 << 30

    def __post_init__(self) -> None:
        integer("max_sample_nbytes", self.max_sample_nbytes, BLOCK)

    @property
    def name(self) -> str:
        return "webdataset"

    @property
    def whole(self) -> bool:
        return False

    @property
    def largest_nbytes(self) -> int:
        """Maximum size of a record in bytes."""
        return self.max_sample_nbytes

    def framer(self, url: str) -> WebDatasetFramer:
        return WebDatasetFramer(self, url)

    def recovery(self) -> WebDatasetRecovery:
        return WebDatasetRecovery()

    def run_finder(self, url: str, decoder: object) -> RunFinder | None:
        """Return a finder of samples with large members. See :class:`.FindsRuns`."""
        if not isinstance(decoder, WebDatasetSamples):
            return None
        framer = self.framer(url)
        return WebDatasetRuns(framer, framer.seen, self.max_sample_nbytes, self.recognises)

    def refuses(self, kind: FileKind) -> bool:
        """Return True if the file is of a known kind, and no tar archive."""
        return kind is not TAR and kind.is_certain

    def recognises(self, first_bytes: bytes) -> bool:
        """Return True if the bytes begin with a header, or with the name of a member: text, and then zero bytes."""
        if len(first_bytes) >= BLOCK:
            return kind_of(first_bytes) is TAR
        name = first_bytes.rstrip(b"\0")
        try:
            return bool(name) and codecs.getincrementaldecoder("utf-8")().decode(name).isprintable()
        except UnicodeDecodeError:
            return False


class WebDatasetFramer(CuttingFramer):
    """Framer that splits one archive into samples. The headers are read without the GIL.

    Attributes:
        seen: Keys of the samples before.
    """

    def __init__(self, description: WebDatasetFormat, url: str) -> None:
        super().__init__(url)
        self._format = description
        self.seen = SeenKeys()
        self._resumed_at = 0
        self._is_over = False  # True after the end marker
        self._wanted = BLOCK  # bytes from the start of the incomplete sample that are needed for progress
        self._members_end = 0  # bytes from the start of the incomplete sample to its next header
        self._long_key: int | None = None
        self._long_name = ""
        self._long_extensions: dict[int, int] = {}
        self._long_is_whole = False

    def resume(self, offset: int) -> None:
        super().resume(offset)
        self._resumed_at = offset

    def succeed(self, earlier: CuttingFramer) -> None:
        """Remember the keys that an earlier framer of the same stream has seen."""
        if isinstance(earlier, WebDatasetFramer):
            self.seen = earlier.seen

    @property
    def record_nbytes(self) -> int:
        return self._wanted

    def check_end(self, nbytes: int) -> None:
        """Check that the members of an incomplete sample do not extend beyond the end of the stream.

        Raises:
            CorruptRecordError: A member extends beyond the end of the stream.
        """
        if self.held_nbytes and not self._is_over and self._offset + self._members_end > nbytes:
            raise self._failed(self._cut_short(nbytes - self._offset))

    def _completes(self, fresh: Bytes) -> bool:
        return self._tail.nbytes + len(fresh) >= self._wanted

    def _cut(self, values: Bytes, start: int, stop: int) -> Cut:
        if self._is_over:
            return self._behind_end(values, start, stop)
        walk = walked(values, start, stop)
        column, consumed, problem = self._samples(values, walk, start)
        self._wanted, self._members_end = max(BLOCK, walk.wanted - consumed), walk.at - consumed
        if problem is None and walk.verdict == END:
            self._is_over, self._wanted = True, BLOCK
            _, consumed, problem = self._behind_end(values, walk.at, stop)
        return Cut(column, consumed, problem)

    def _samples(self, values: Bytes, walk: TarWalk, start: int, is_end: bool = False) -> Cut:
        """Return the complete samples of a walk, up to the first broken sample."""
        base = self._offset - start
        samples = samples_of(walk, start, base, self._format.max_sample_nbytes, is_end)
        fault = first_repeat(samples, walk, self.seen, base) or samples.fault
        count = samples.complete if fault is None else min(samples.complete, fault.sample)
        edges = samples.edges
        consumed = int(edges[count if fault is None else fault.sample])
        column = VarColumn(values, edges[:count], np.diff(edges[: count + 1]))
        return Cut(column, consumed, None if fault is None else fault.problem)

    def _behind_end(self, values: Bytes, start: int, stop: int) -> Cut:
        """Ignore the bytes after the end of the archive, unless they contain another archive."""
        whole = start + (stop - start) // BLOCK * BLOCK
        found = _native.find_tar_header(values, start, whole)
        return Cut(no_records(), whole if found < 0 else found, None if found < 0 else ANOTHER)

    def _end(self, tail: Bytes) -> Cut:
        if self._is_over or (not len(tail) and self._offset and self._offset == self._resumed_at):
            return Cut(no_records(), 0)
        walk = walked(tail, 0, len(tail))
        if walk.at != len(tail) or walk.verdict != MORE:
            return Cut(no_records(), 0, self._cut_short(len(tail)))
        if self._format.verify:
            return Cut(no_records(), 0, NO_END)
        return self._samples(tail, walk, 0, is_end=True)

    def _cut_short(self, nbytes: int) -> str:
        return f"the stream ends {nbytes} bytes into a sample"

    # -- samples that are longer than a block

    def _begin_long(self, rest: Bytes) -> LongRecord | None:
        if self._is_over:
            return None
        walk = walked(rest, 0, len(rest))
        self._long_key, self._long_extensions, self._long_is_whole = None, {}, False
        self._note(walk)
        long = LongRecord(None)
        known = min(len(rest), walk.at)
        long.take(rest[:known])
        self._tail.append(rest[known:])
        self._members_end, self._wanted = walk.at, walk.wanted
        return long

    def _note(self, walk: TarWalk) -> None:
        """Remember key and extensions of the members of the long sample."""
        for row in np.flatnonzero(walk.table[:, KEY_NBYTES] >= 0).tolist():
            if self._long_key is None:
                self._long_key, self._long_name = int(walk.table[row, KEY_HASH]), key_of(walk, row)
            self._long_extensions[int(walk.table[row, EXT_HASH])] = self._offset + int(walk.table[row, FIRST])

    def _extend(self, long: LongRecord, fresh: Bytes) -> int:
        """Append the members that belong to the long sample. Headers of the next sample stay in the tail."""
        used = 0
        while True:
            take = min(len(fresh) - used, self._members_end - long.nbytes)
            long.take(fresh[used : used + take])
            used += take
            missing = self._wanted - long.nbytes - self._tail.nbytes
            if long.nbytes < self._members_end or len(fresh) - used < missing:
                if long.nbytes == self._members_end:
                    self._tail.append(fresh[used:])
                return len(fresh)
            self._tail.append(fresh[used : used + missing])
            used += missing
            if self._ends_long(long, fresh[used:]):
                return used

    def _ends_long(self, long: LongRecord, rest: Bytes) -> bool:
        """Read the header in the tail. Return True if it belongs to another sample or ends the archive."""
        headers = self._tail.view()
        walk = walked(headers, 0, len(headers))
        at = self._members_end
        if not len(walk.table) and walk.verdict == MORE and walk.at == 0:
            self._wanted = at + walk.wanted
            return False
        is_other = walk.verdict == END or self._is_other(walk)
        if not is_other:
            self._check_member(walk, at, rest)
            long.take(self._tail.taken())
            self._members_end, self._wanted = at + walk.at, at + walk.wanted
        else:
            self._long_is_whole, self._wanted, self._members_end = True, BLOCK, 0
        return is_other

    def _is_other(self, walk: TarWalk) -> bool:
        """Return True if the member in the tail has another key than the long sample."""
        keyed = walk.table[walk.table[:, KEY_NBYTES] >= 0]
        return len(keyed) > 0 and self._long_key is not None and int(keyed[0, KEY_HASH]) != self._long_key

    def _check_member(self, walk: TarWalk, at: int, rest: Bytes) -> None:
        """Check the next member of the long sample, and remember its extension.

        Raises:
            CorruptRecordError: The member is damaged, cannot be read, or occurs twice.
        """
        base = self._offset + at
        problem = None
        samples = samples_of(walk, 0, base, self._format.max_sample_nbytes)
        if samples.fault is not None:
            problem = samples.fault.problem
        elif at + walk.at > self._format.max_sample_nbytes:
            problem = too_large(self._format.max_sample_nbytes)
        for row in np.flatnonzero(walk.table[:, KEY_NBYTES] >= 0).tolist():
            first = self._long_extensions.get(int(walk.table[row, EXT_HASH]))
            if first is not None and problem is None:
                problem = again_in_sample(name_of(walk, row), first, base + int(walk.table[row, FIRST]))
        if problem is not None:
            self._rest = rest
            raise self._failed(problem)
        shifted = walk.table.copy()
        shifted[:, FIRST] += at
        self._note(walk._replace(table=shifted))

    def _is_whole(self, long: LongRecord) -> bool:
        return self._long_is_whole

    def _problem_of(self, data: bytes, suffix: bytes) -> str | None:
        if self._long_key is None:
            return None
        earlier = self.seen.add(self._long_key, self._offset)
        return None if earlier is None else again_in_shard(self._long_name, earlier, self._offset)

    def _long_column(self, long: LongRecord) -> VarColumn:
        self._long_nbytes = long.nbytes
        column = super()._long_column(long)
        return column if self._long_key is not None else no_records()

    def _last_long(self, long: LongRecord) -> VarColumn:
        if long.nbytes < self._members_end or self._tail.nbytes:
            raise self._failed(self._cut_short(long.nbytes + self._tail.nbytes))
        if self._format.verify:
            raise self._failed(NO_END)
        return self._long_column(long)

    def unread(self) -> list[Bytes]:
        if self._long is None:
            return super().unread()
        tail, rest, self._rest = self._tail.taken(), self._rest, None
        pieces = (*super().unread(), tail, rest)
        return [piece for piece in pieces if piece is not None and len(piece)] or [np.empty(0, np.uint8)]
