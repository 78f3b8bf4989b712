"""What a line may be: its longest length, and the encoding in which it must be valid."""

from __future__ import annotations

import codecs
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from aiostream_data import _native
from aiostream_data.formats.cutting import Bytes, Cut
from aiostream_data.rows.records import VarColumn, VarKind

NEWLINE: Final = 0x0A
BOM: Final = np.frombuffer(codecs.BOM_UTF8, np.uint8)
_SEARCHED_NBYTES: Final = 64 << 10

Indices: TypeAlias = NDArray[np.int64]


class LineRules:
    """Checks lines.

    Args:
        encoding: One that extends ASCII, or None for bytes.
        max_nbytes: Of a line, without its end.
    """

    def __init__(self, encoding: str | None, max_nbytes: int) -> None:
        self.max_nbytes = max_nbytes
        self.codec = None if encoding is None else codecs.lookup(encoding).name
        self.is_utf8 = self.codec in ("utf-8", "utf-8-sig")

    @property
    def kind(self) -> VarKind:
        """Kind of a column of lines."""
        return "bytes" if self.codec is None else "str"

    @property
    def keeps_bytes(self) -> bool:
        """Whether a line's bytes are given out as they are; else they are encoded as UTF-8 again."""
        return self.is_utf8 or self.codec in (None, "ascii")

    def is_too_long(self, waiting_nbytes: int) -> bool:
        """Return whether a line without end is too long even if its mark and a carriage return do not count."""
        return waiting_nbytes > self.max_nbytes + len(BOM) + 1

    def problem_of(self, line: bytes | memoryview, offset: int) -> str | None:
        """Return what is wrong with one line that begins at byte ``offset`` of the stream."""
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
        """Keep the lines before the first that is too long or not valid.

        Args:
            start, offset: Index of the first byte, and its offset in the stream.
        """
        good, problem = len(starts), None
        if good and int(lengths.max()) > self.max_nbytes:
            good, problem = int(np.argmax(lengths > self.max_nbytes)), self.too_long()
        if good and self.codec is not None:
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
            # Nothing of a line is lost here: find_lines takes off exactly what is put on.
            values = np.frombuffer((text + "\r\n").encode(), np.uint8)
            starts, lengths, _ = _native.find_lines(values, 0, len(values))
        return Cut(VarColumn(values, starts, lengths, self.kind), consumed, problem)

    def too_long(self) -> str:
        """Return what is wrong with a line that is too long."""
        return f"the line is longer than max_line_nbytes={self.max_nbytes}"

    def _not_valid(self, at: int, error: UnicodeDecodeError) -> str:
        cure = "pass the encoding of the file, as in encoding='latin-1', or encoding=None for bytes"
        return f"not valid {self.codec} at byte {at}: {error.reason}; {cure}"


def newlines(values: Bytes) -> int:
    """Return how many newlines there are."""
    return int(np.count_nonzero(values == NEWLINE))


def first_newline(values: Bytes) -> int | None:
    """Return the index of the first newline. Nearly always it is close by, so a little is searched at a time."""
    for start in range(0, len(values), _SEARCHED_NBYTES):
        found = values[start : start + _SEARCHED_NBYTES] == NEWLINE
        end = int(found.argmax())
        if found[end]:
            return start + end
    return None


def _span(values: Bytes, starts: Indices, lengths: Indices) -> memoryview:
    """Return the bytes from the first line to the last. No line's bytes can make another's invalid or valid."""
    return values[starts[0] : starts[-1] + lengths[-1]].data if len(starts) else memoryview(b"")
