"""Find the next TFRecords after damage. The run time of this search is linear in the stream length, for any content.

A *header* is a position where a length field matches its checksum. A record is *sound* if its payload matches its
checksum. A record is *framed* if its payload is damaged, but another header or the end of the stream directly follows
it. After any other damage, reading resumes at the next sound or framed record. The number of lost bytes therefore
depends only on the stream's content, not on block sizes.

The parser finds all headers of a window in one step. One pass computes the checksums of all payloads, which may
overlap. If the parser needs more bytes to check a record, the next window is at least twice as large as the unprocessed
bytes. The framer resumes only after the parser has processed at least half of the window. Each byte of the stream is
therefore read only a small number of times.

If the next record extends beyond the end of the stream, the framer reports this record when the stream ends.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Generator, Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aiostream_data import _native
from aiostream_data.formats.base import Loss
from aiostream_data.formats.cutting import Bytes
from aiostream_data.formats.range_checksums import crc32c_ranges, crc32c_words, masked
from aiostream_data.rows.columns import VarColumn

HEADER_NBYTES: Final = 12
FOOTER_NBYTES: Final = 4

WINDOW_NBYTES: Final = 256 << 10
"""Number of bytes that one search step covers, unless a record is larger."""

_HEADER: Final = struct.Struct("<QI")

SOUND, FRAMED, UNSOUND, UNKNOWN = range(4)
"""Possible results of checking the record at a header. UNKNOWN means that more bytes are needed to check the record."""

Numbers = NDArray[np.int64]


class _Headers(NamedTuple):
    """Record headers found in a window, in ascending order.

    Attributes:
        places: Start index of each header.
        ends: End index of each record.
        verdicts: Result of checking each record.
    """

    places: list[int]
    ends: list[int]
    verdicts: list[int]


class _FoundRecord(NamedTuple):
    """Valid records and losses found in a window.

    Attributes:
        starts, stops: Start and end indices of the payloads.
        losses: Pairs of a loss and the number of records before the loss.
    """

    starts: list[int]
    stops: list[int]
    losses: list[tuple[int, Loss]]

    def lose(self, loss: Loss) -> None:
        """Append a loss that follows the last found record."""
        self.losses.append((len(self.starts), loss))

    def parts(self, values: Bytes) -> Iterator[VarColumn | Loss]:
        """Yield records and losses in stream order. Consecutive records form one column."""
        starts = np.array(self.starts, np.int64)
        lengths = np.array(self.stops, np.int64) - starts
        first = 0
        for row, loss in self.losses:
            if first < row:
                yield VarColumn(values, starts[first:row], lengths[first:row])
            yield loss
            first = row
        if first < len(starts):
            yield VarColumn(values, starts[first:], lengths[first:])


class TFRecordRecovery:
    """Parser that finds the next TFRecords after damage. See :class:`~.base.Recovery`.

    Args:
        verify: If True, yield only records whose payload matches its checksum.
        most_nbytes: Maximum size of a payload in bytes.
    """

    def __init__(self, verify: bool, most_nbytes: int) -> None:
        self._verify = verify
        self._most_nbytes = most_nbytes
        self._is_fresh = False
        self._is_cut_short = False  # a record in sequence extends beyond the end of the stream
        self._lost_from: int | None = None  # offset of damage after which no record has been found
        self._reason = ""
        self._at = 0
        self.consumed = 0
        self.in_sync = True
        self.wanted = HEADER_NBYTES

    def begin(self) -> None:
        self._is_fresh, self._is_cut_short, self._lost_from = True, False, None

    def cut(self, values: Bytes, start: int, stop: int, base: int, end: int | None) -> Iterator[VarColumn | Loss]:
        self._at, self.in_sync = start, False
        if self._is_fresh:
            is_done = yield from self._pass_framed(values, stop, base, end)
            if is_done:
                self.consumed = self._at
                return
        size = WINDOW_NBYTES
        while True:
            window = min(stop, self._at + size)
            yield from self._walk(values, window, base, end).parts(values)
            left = window - self._at
            if window == end and self._lost_from is not None:
                yield Loss(self._lost_from, None, self._reason)
                self._lost_from = None
            has_passed_most = self._lost_from is None and stop != end and left <= self._at - start
            self.in_sync = window == end or self._is_cut_short or has_passed_most
            if self.in_sync or window == stop:
                self.consumed, self.wanted = self._at, max(HEADER_NBYTES, 2 * left)
                return
            size = max(WINDOW_NBYTES, 2 * left)

    def _pass_framed(self, values: Bytes, stop: int, base: int, end: int | None) -> Generator[Loss, None, bool]:
        """Skip the first damaged record if the record is framed and larger than a window.

        The framer has already checked the payload, so this method reads only two headers. Return True if the record was
        skipped, or if more bytes are needed to decide.
        """
        at = self._at
        behind = self._end_of(values, at, stop)
        if behind is not None and behind - at > WINDOW_NBYTES:
            if _is_cut(behind, stop, end):
                self.wanted = behind + HEADER_NBYTES - at
                return True
            if behind == end or self._end_of(values, behind, stop) is not None:
                yield Loss(base + at, behind - at, _PAYLOAD)
                self._at, self._is_fresh, self.in_sync = behind, False, True
                return True
        self._is_fresh = False
        return False

    def _walk(self, values: Bytes, window: int, base: int, end: int | None) -> _FoundRecord:
        """Collect records and losses from ``_at`` up to the first position that cannot be checked without more
        bytes."""
        places, ends, verdicts = self._headers(values, self._at, window, end)
        found = _FoundRecord([], [], [])
        row = 0
        while True:
            if self._lost_from is not None:
                while row < len(places) and verdicts[row] == UNSOUND:
                    row += 1
                if row == len(places) or verdicts[row] == UNKNOWN:
                    behind = window if window == end else max(self._at, window - HEADER_NBYTES + 1)
                    self._at = places[row] if row < len(places) else behind
                    return found
                self._at = places[row]
                found.lose(Loss(self._lost_from, base + self._at - self._lost_from, self._reason))
                self._lost_from = None
            at = self._at
            if row == len(places) or places[row] != at:
                self._is_cut_short = end is not None and at + HEADER_NBYTES > end
                if self._is_cut_short or at + HEADER_NBYTES > window:
                    return found
                self._search_from(at, base, self._problem_of(values, at, window))
            elif ends[row] <= window and (verdicts[row] == SOUND or not self._verify):
                found.starts.append(at + HEADER_NBYTES)
                found.stops.append(ends[row] - FOOTER_NBYTES)
                self._at = ends[row]
            elif verdicts[row] == FRAMED:
                found.lose(Loss(base + at, ends[row] - at, _PAYLOAD))
                self._at = ends[row]
            elif verdicts[row] == UNKNOWN or (end is not None and ends[row] > end):
                self._is_cut_short = verdicts[row] == UNSOUND
                return found
            else:
                self._search_from(at, base, f"{_PAYLOAD}, and no record follows")
            row = bisect_left(places, self._at, row)

    def _search_from(self, at: int, base: int, reason: str) -> None:
        """Start searching for the next valid record after the damage at index ``at``."""
        self._lost_from, self._at, self._reason = base + at, at + 1, reason

    def _problem_of(self, values: Bytes, at: int, stop: int) -> str:
        """Describe the damage of the header at index ``at``."""
        if _length_at(values, at, stop) is None:
            return "length checksum mismatch"
        length = int.from_bytes(values[at : at + 8], "little")
        return f"record of {length} bytes is longer than the limit of {self._most_nbytes}"

    def _end_of(self, values: Bytes, at: int, stop: int) -> int | None:
        """Return the end index of the record at ``at``, or None if no valid header begins there."""
        length = _length_at(values, at, stop)
        if length is None or length > self._most_nbytes:
            return None
        return at + HEADER_NBYTES + length + FOOTER_NBYTES

    def _headers(self, values: Bytes, start: int, stop: int, end: int | None) -> _Headers:
        """Find all headers in ``values[start:stop]``, and check the record at each header."""
        pieces = [
            _checked_headers(values, at, min(stop, at + WINDOW_NBYTES + HEADER_NBYTES - 1), self._most_nbytes)
            for at in range(start, stop, WINDOW_NBYTES)
        ]
        places, lengths = (np.concatenate([_NONE, *(piece[part] for piece in pieces)]) for part in range(2))
        if not len(places):
            return _Headers([], [], [])
        ends = places + HEADER_NBYTES + lengths + FOOTER_NBYTES
        verdicts = np.full(len(places), UNKNOWN)
        complete = np.flatnonzero(ends <= stop)
        is_sound = _is_sound(values, places[complete], ends[complete])
        nearest = np.minimum(np.searchsorted(places, ends[complete]), len(places) - 1)
        leads_on = places[nearest] == ends[complete]
        is_decided = ends[complete] + HEADER_NBYTES <= stop
        if end is not None:
            leads_on |= ends[complete] == end
            is_decided |= ends[complete] + HEADER_NBYTES > end
            verdicts[ends > end] = UNSOUND
        found = np.where(is_sound, SOUND, np.where(leads_on, FRAMED, np.where(is_decided, UNSOUND, UNKNOWN)))
        verdicts[complete] = found
        return _Headers(places.tolist(), ends.tolist(), verdicts.tolist())


_NONE: Final = np.empty(0, np.int64)
_PAYLOAD: Final = "payload checksum mismatch"


def _checked_headers(values: Bytes, start: int, stop: int, most_nbytes: int) -> tuple[Numbers, Numbers]:
    """Find each index in ``values[start:stop]`` where a payload length matches its checksum.

    Return indices and lengths.
    """
    count = stop - start - HEADER_NBYTES + 1
    if count <= 0:
        return _NONE, _NONE
    words = np.ndarray((count,), "<u8", values.data, start, (1,))  # overlapping words, one per byte, without a copy
    likely = np.flatnonzero(words <= most_nbytes)
    stored = np.ndarray((count,), "<u4", values.data, start + 8, (1,))[likely]
    lengths = words[likely]
    good = masked(crc32c_words(lengths)) == stored
    return start + likely[good], lengths[good].astype(np.int64)


def _is_sound(values: Bytes, places: Numbers, ends: Numbers) -> NDArray[np.bool_]:
    """Return a boolean mask over complete records: True if the payload matches its checksum."""
    stops = ends - FOOTER_NBYTES
    footers = np.ascontiguousarray(values[stops[:, None] + np.arange(FOOTER_NBYTES)])
    found: NDArray[np.bool_] = masked(crc32c_ranges(values, places + HEADER_NBYTES, stops)) == footers.view("<u4")[:, 0]
    return found


def _is_cut(at: int, stop: int, end: int | None) -> bool:
    """Return True if the header at index ``at`` is incomplete, and the stream may still deliver the missing bytes."""
    return at + HEADER_NBYTES > stop and (end is None or at + HEADER_NBYTES <= end)


def _length_at(values: Bytes, at: int, stop: int) -> int | None:
    """Return the payload length at index ``at`` if the length matches its checksum, else None."""
    if at + HEADER_NBYTES > stop:
        return None
    length, checksum = _HEADER.unpack_from(values.data, at)
    return length if _native.masked_crc32c(values[at : at + 8].data) == checksum else None
