"""Validation of text lines: maximum length and encoding."""

from __future__ import annotations

import codecs
from functools import cache
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from aiostream_data import _native
from aiostream_data.formats.base import SmallObjects
from aiostream_data.formats.cutting import Bytes, Cut
from aiostream_data.rows.columns import VarColumn, VarKind

NEWLINE: Final = 0x0A
RETURN: Final = 0x0D
BOM: Final = np.frombuffer(codecs.BOM_UTF8, np.uint8)
_SEARCHED_NBYTES: Final = 64 << 10

Indices: TypeAlias = NDArray[np.int64]


class LineRules:
    """Validator of text lines.

    Args:
        encoding: Text encoding that extends ASCII, or None to return lines as bytes.
        max_nbytes: Maximum number of bytes of a line, without its line ending.
    """

    def __init__(self, encoding: str | None, max_nbytes: int) -> None:
        self.max_nbytes = max_nbytes
        self.codec = None if encoding is None else codecs.lookup(encoding).name
        self.is_utf8 = self.codec in ("utf-8", "utf-8-sig")

    @property
    def kind(self) -> VarKind:
        """Type of the column that contains the lines: "bytes" without an encoding, else "str"."""
        return "bytes" if self.codec is None else "str"

    @property
    def keeps_bytes(self) -> bool:
        """True if lines keep their original bytes; False if lines are re-encoded as UTF-8."""
        return self.is_utf8 or self.codec in (None, "ascii")

    def is_too_long(self, waiting_nbytes: int) -> bool:
        """Return True if an incomplete line is too long, not counting a byte order mark and a carriage return."""
        return waiting_nbytes > self.max_nbytes + len(BOM) + 1

    def problem_of(self, line: bytes | memoryview, offset: int) -> str | None:
        """Return a description of what is wrong with the line, or None if the line is valid."""
        if len(line) > self.max_nbytes:
            return self.too_long()
        try:
            if self.codec is not None:
                str(line, self.codec)
        except UnicodeDecodeError as error:
            return self._not_valid(offset + error.start, error)
        return None

    def checked(
        self, values: Bytes, start: int, starts: Indices, lengths: Indices, consumed: int, offset: int = 0
    ) -> Cut:
        """Return all lines before the first invalid line.

        If a line is invalid, also return a description of the problem.

        Args:
            values: Bytes that contain the lines.
            start, offset: Index in ``values`` of the first byte, and offset in the stream of the first byte.
            starts, lengths: Start indices and lengths of the lines in ``values``.
            consumed: Index in ``values`` of the first byte after the last line.
        """
        good, problem = len(starts), None
        if good and int(lengths.max()) > self.max_nbytes:
            good, problem = int(np.argmax(lengths > self.max_nbytes)), self.too_long()
        if good and self.codec is not None and not self._is_valid_utf8(values, starts[:good], lengths[:good]):
            try:
                text = str(_span(values, starts[:good], lengths[:good]), self.codec)
            except UnicodeDecodeError as error:
                at = int(starts[0]) + error.start
                good = int(np.searchsorted(starts[:good], at, side="right")) - 1
                problem = self._not_valid(offset + at - start, error)
                text = str(_span(values, starts[:good], lengths[:good]), self.codec)
        if problem is not None:
            consumed = int(starts[good]) if good else start
        starts, lengths = starts[:good], lengths[:good]
        if good and not self.keeps_bytes:
            # find_lines removes exactly the line ending that is appended here.
            values = np.frombuffer((text + "\r\n").encode(), np.uint8)
            starts, lengths = self._split(values)
        return Cut(VarColumn(values, starts, lengths, self.kind), consumed, problem)

    def _is_valid_utf8(self, values: Bytes, starts: Indices, lengths: Indices) -> bool:
        """Return True if the lines are valid UTF-8. False for any other encoding."""
        if not self.is_utf8:
            return False
        nbytes = starts[-1:] + lengths[-1:] - starts[:1]
        return _native.first_invalid_utf8(values, starts[:1], nbytes) < 0

    def _split(self, values: Bytes) -> tuple[Indices, Indices]:
        """Return the starts and lengths of the lines in re-encoded text."""
        return _native.find_lines(values, 0, len(values))[:2]

    def too_long(self) -> str:
        """Return the error text for a line that exceeds ``max_nbytes``."""
        return f"the line is longer than max_line_nbytes={self.max_nbytes}"

    def _not_valid(self, at: int, error: UnicodeDecodeError) -> str:
        cure = "pass the encoding of the file, as in encoding='latin-1', or encoding=None for bytes"
        return f"not valid {self.codec} at byte {at}: {error.reason}; {cure}"


def newlines(values: Bytes) -> int:
    """Return the number of newlines in ``values``."""
    return int(np.count_nonzero(values == NEWLINE))


def most_lines(values: Bytes, bounds: Indices) -> Indices:
    """Return the maximum number of lines of each object ``values[bounds[i]:bounds[i + 1]]``: newlines, and one more."""
    counts = np.ones(len(bounds) - 1, np.int64)
    for number, (start, stop) in enumerate(pairwise(bounds.tolist())):
        for at in range(start, stop, _SEARCHED_NBYTES):  # the mask of a short part stays in the processor's cache
            counts[number] += newlines(values[at : min(at + _SEARCHED_NBYTES, stop)])
    return counts


def in_line(line: int | None, problem: str) -> str:
    """Return the description of a problem with the number of its line, if it is known."""
    return problem if line is None else f"line {line}: {problem}"


def first_newline(values: Bytes) -> int | None:
    """Return the index of the first newline, or None if ``values`` contains no newline.

    The function searches small ranges, because the first newline is usually near the start.
    """
    for start in range(0, len(values), _SEARCHED_NBYTES):
        found = values[start : start + _SEARCHED_NBYTES] == NEWLINE
        end = int(found.argmax())
        if found[end]:
            return start + end
    return None


def _span(values: Bytes, starts: Indices, lengths: Indices) -> memoryview:
    """Return the bytes from the first to the last line, so that one call can decode all lines."""
    return values[starts[0] : starts[-1] + lengths[-1]].data if len(starts) else memoryview(b"")


def lines_of_objects(rules: LineRules, values: Bytes, bounds: Indices, most_rows: int) -> SmallObjects | None:
    """Split the objects ``values[bounds[i]:bounds[i + 1]]`` into lines.

    Return None if a line is invalid, if lines of several objects cannot be re-encoded together, or if there are more
    than ``most_rows`` lines.
    """
    if not rules.keeps_bytes and not _has_one_byte_per_character(rules.codec):
        return None
    first, stop = int(bounds[0]), int(bounds[-1])
    open_ends = _ends_without_newline(values, bounds)
    if len(open_ends) and not rules.keeps_bytes and open_ends[0] < stop:
        return None  # re-encoding would join two lines
    if rules.is_utf8 and _continues(values, open_ends[open_ends < stop]):
        return None  # decoding all objects at once would accept two halves of one character
    if len(open_ends):
        are_ends = values[first:stop] == NEWLINE
        if np.count_nonzero(are_ends) + len(open_ends) > most_rows:
            return None
        starts, lengths, is_open = _lines_up_to(values, first, are_ends, open_ends)
    else:
        starts, lengths, consumed = _native.find_lines(values, first, stop, most_rows)
        if consumed < stop:
            return None
        is_open = np.zeros(len(starts), np.bool_)
    rows_before = np.searchsorted(starts, bounds)
    if rules.is_utf8:
        marked = _remove_marks(values, starts, lengths, rows_before)
        if (is_open[marked] & (lengths[marked] == 0)).any():
            return None  # an object that consists of the mark has no line
    cut = rules.checked(values, first, starts, lengths, stop)
    return None if cut.problem is not None else SmallObjects(cut.column, np.diff(rows_before))


def _lines_up_to(
    values: Bytes, first: int, are_ends: NDArray[np.bool_], open_ends: Indices
) -> tuple[Indices, Indices, NDArray[np.bool_]]:
    """Find the lines that end with a newline or at one of ``open_ends``.

    Args:
        are_ends: Mask of the newlines from index ``first``.

    Returns:
        Their starts and lengths, and a mask of the lines without a newline.
    """
    ends = first + np.flatnonzero(are_ends)  # int64 on 64-bit systems
    place = np.searchsorted(ends, open_ends)
    is_open = np.insert(np.zeros(len(ends), np.bool_), place, True)
    ends = np.insert(ends, place, open_ends)
    starts = np.concatenate([[first], ends[:-1] + ~is_open[:-1]])
    lengths = ends - starts
    has_return = (lengths > 0) & ~is_open
    has_return[has_return] = values[ends[has_return] - 1] == RETURN
    return starts, lengths - has_return, is_open


@cache
def _has_one_byte_per_character(codec: str | None) -> bool:
    """Return True if a codec decodes each byte by itself."""
    return codec is not None and len(bytes(range(256)).decode(codec, "replace")) == 256


def _ends_without_newline(values: Bytes, bounds: Indices) -> Indices:
    """Return the ends of the objects that are not empty and do not end with a newline."""
    ends = bounds[1:][np.diff(bounds) > 0]
    is_open: NDArray[np.bool_] = values[ends - 1] != NEWLINE
    return ends[is_open]


def _continues(values: Bytes, places: Indices) -> bool:
    """Return True if a byte at one of the places cannot begin a UTF-8 character."""
    return bool((values[places] & 0xC0 == 0x80).any())


def _remove_marks(values: Bytes, starts: Indices, lengths: Indices, rows_before: Indices) -> Indices:
    """Remove a byte order mark from the first line of each object. Return the numbers of these lines."""
    rows = rows_before[:-1][np.diff(rows_before) > 0]
    rows = rows[lengths[rows] >= len(BOM)]
    marked: Indices = rows[(values[starts[rows][:, None] + np.arange(len(BOM))] == BOM).all(1)]
    starts[marked] += len(BOM)
    lengths[marked] -= len(BOM)
    return marked
