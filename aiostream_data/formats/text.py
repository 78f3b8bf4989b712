r"""Lines of text: a record is what stands before each ``\n``."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from aiostream_data import _native
from aiostream_data.arguments import shown
from aiostream_data.codecs.file_kinds import GZIP, TFRECORD, ZSTD, FileKind
from aiostream_data.errors import PlanError
from aiostream_data.formats.cutting import Bytes, Cut, CuttingFramer, no_records
from aiostream_data.formats.long_record import LongRecord
from aiostream_data.records import VarColumn, VarKind

_NEWLINE = 0x0A
_BOM = np.frombuffer(codecs.BOM_UTF8, np.uint8)
_ASCII = bytes(range(128))
_WHITE_SPACE = b"\t\n\f\r"
_READ_AS_BYTES = (TFRECORD, GZIP, ZSTD)
_FIRST_WINDOW_NBYTES = 1 << 20
_SEARCHED_NBYTES = 64 << 10

Indices: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class TextFormat:
    r"""What ``tf.data.TextLineDataset`` reads: lines without their ``\n`` or ``\r\n``.

    A last line without newline is a record, too. Lines come as ``str``, and a UTF-8 byte order mark at
    the start of the stream is dropped; with ``encoding=None`` they come as ``bytes``, untouched.

    Attributes:
        encoding: One in which ASCII stands for itself (utf-8, ascii, latin-1, cp1252, shift_jis ...), or
            None. Bytes that are not valid in it are an error. Other than utf-8 and ascii cost a copy.
        max_line_nbytes: A longer line is taken for damage; bounds what is kept while no newline comes.
    """

    encoding: str | None = "utf-8"
    max_line_nbytes: int = 64 << 20

    def __post_init__(self) -> None:
        if self.max_line_nbytes < 1:
            raise PlanError(f"max_line_nbytes must be at least 1, got {self.max_line_nbytes}")
        if self.encoding is not None and not _extends_ascii(self.encoding):
            raise PlanError(f"encoding must be one in which ASCII stands for itself, got {shown(self.encoding)}")

    @property
    def name(self) -> str:
        return "text"

    @property
    def whole(self) -> bool:
        return False

    @property
    def largest_nbytes(self) -> int:
        """Bytes of the largest record."""
        return self.max_line_nbytes

    def framer(self, url: str) -> LineFramer:
        return LineFramer(self, url)

    def refuses(self, kind: FileKind) -> bool:
        """Refuse every known kind of file, none of which is text. As bytes, records and compressed data are read."""
        return self.encoding is not None or kind not in _READ_AS_BYTES

    def recognises(self, first_bytes: bytes) -> bool:
        """Return whether the bytes are plain text beyond doubt: UTF-8 without control characters."""
        if any(byte < 0x20 and byte not in _WHITE_SPACE for byte in first_bytes):
            return False
        try:
            codecs.getincrementaldecoder("utf-8")().decode(first_bytes)
        except UnicodeDecodeError:
            return False
        return True


def _extends_ascii(encoding: str) -> bool:
    try:
        # The first probe finds codecs that turn an escape into a newline.
        return all(probe.decode(encoding) == probe.decode("ascii") for probe in (b"\\u000a", _ASCII))
    except (LookupError, TypeError, ValueError):  # no name of an encoding
        return False


class LineFramer(CuttingFramer):
    """Cuts one stream of text into lines. Finding newlines releases the GIL where the native core is built."""

    def __init__(self, description: TextFormat, url: str) -> None:
        super().__init__(url)
        self._max_nbytes = description.max_line_nbytes
        self._codec = None if description.encoding is None else codecs.lookup(description.encoding).name
        self._is_utf8 = self._codec in ("utf-8", "utf-8-sig")
        self._window_nbytes = _FIRST_WINDOW_NBYTES
        self._ended = False  # the long line

    def _kind(self) -> VarKind:
        return "bytes" if self._codec is None else "str"

    def _completes(self, fresh: Bytes) -> bool:
        if not self._tail.nbytes or self._is_too_long(self._tail.nbytes + len(fresh)):
            return True
        return _first_newline(fresh) is not None

    def _is_too_long(self, waiting_nbytes: int) -> bool:
        """Return whether a line without end is too long even if its mark and a carriage return do not count."""
        return waiting_nbytes > self._max_nbytes + len(_BOM) + 1

    def _window(self, values: Bytes, start: int, stop: int, most_rows: int) -> int:
        end = min(stop, start + self._window_nbytes)
        while end < stop and not _newlines(values[start:end]):
            end = min(stop, 2 * end - start)
        without = start  # there is no newline before it
        while end - start > most_rows and _newlines(values[start:end]) > most_rows:
            half = (without + end) // 2
            if _newlines(values[start:half]):
                end = half
            else:
                without = half
        self._window_nbytes = max(most_rows, 2 * (end - start))
        return end

    def _begin_long(self, rest: Bytes) -> LongRecord | None:
        if not (self._is_utf8 or self._codec in (None, "ascii")):
            return None
        long = LongRecord(None)
        marked = self._offset == 0 and self._is_utf8 and np.array_equal(rest[: len(_BOM)], _BOM)
        long.take(rest[len(_BOM) :] if marked else rest)
        self._ended = False
        return long

    def _extend(self, long: LongRecord, fresh: Bytes) -> int:
        end = _first_newline(fresh)
        self._ended = end is not None
        used = long.take(fresh[:end])
        if end is None:
            if self._is_too_long(long.nbytes):
                raise self._failed(self._too_long())
            return used
        long.drop_last(b"\r")
        return used + 1

    def _is_whole(self, long: LongRecord) -> bool:
        return self._ended

    def _problem_of(self, data: bytes, suffix: bytes) -> str | None:
        if len(data) > self._max_nbytes:
            return self._too_long()
        try:
            if self._codec is not None:
                str(data, self._codec)
        except UnicodeDecodeError as error:
            return self._not_valid(self._offset + error.start, error)
        return None

    def _last_long(self, long: LongRecord) -> VarColumn:
        return self._long_column(long)

    def _cut(self, values: Bytes, start: int, stop: int) -> Cut:
        starts, lengths, consumed = _native.find_lines(values, start, stop)
        self._drop_mark(values, starts, lengths)
        cut = self._checked(values, start, starts, lengths, consumed)
        if cut.problem is None and self._is_too_long(stop - consumed):
            return cut._replace(problem=self._too_long())
        return cut

    def _end(self, tail: Bytes) -> Cut:
        starts, lengths = np.zeros(1, np.int64), np.array([len(tail)], np.int64)
        self._drop_mark(tail, starts, lengths)
        if not lengths[0]:
            return Cut(no_records(self._kind()), 0)
        return self._checked(tail, 0, starts, lengths, len(tail))

    def _drop_mark(self, values: Bytes, starts: Indices, lengths: Indices) -> None:
        at_start = self._offset == 0 and self._is_utf8 and len(starts) > 0 and lengths[0] >= len(_BOM)
        if at_start and np.array_equal(values[starts[0] : starts[0] + len(_BOM)], _BOM):
            starts[0] += len(_BOM)
            lengths[0] -= len(_BOM)

    def _checked(self, values: Bytes, start: int, starts: Indices, lengths: Indices, consumed: int) -> Cut:
        """Keep the lines before the first that is too long or not valid."""
        good, problem = len(starts), None
        if good and int(lengths.max()) > self._max_nbytes:
            good, problem = int(np.argmax(lengths > self._max_nbytes)), self._too_long()
        if good and self._codec is not None:
            try:
                text = str(_span(values, starts[:good], lengths[:good]), self._codec)
            except UnicodeDecodeError as error:
                at = int(starts[0]) + error.start
                good = int(np.searchsorted(starts[:good], at, side="right")) - 1
                problem = self._not_valid(self._offset + at - start, error)
                text = str(_span(values, starts[:good], lengths[:good]), self._codec)
        if problem is not None:
            consumed = int(starts[good]) if good else start
        starts, lengths = starts[:good], lengths[:good]
        if good and not self._is_utf8 and self._codec not in (None, "ascii"):
            # Nothing of a line is lost here: find_lines takes off exactly what is put on.
            values = np.frombuffer((text + "\r\n").encode(), np.uint8)
            starts, lengths, _ = _native.find_lines(values, 0, len(values))
        return Cut(VarColumn(values, starts, lengths, self._kind()), consumed, problem)

    def _not_valid(self, at: int, error: UnicodeDecodeError) -> str:
        cure = "pass the encoding of the file, as in encoding='latin-1', or encoding=None for bytes"
        return f"not valid {self._codec} at byte {at}: {error.reason}; {cure}"

    def _too_long(self) -> str:
        return f"the line is longer than max_line_nbytes={self._max_nbytes}"


def _span(values: Bytes, starts: Indices, lengths: Indices) -> memoryview:
    """Return the bytes from the first line to the last. No line's bytes can make another's invalid or valid."""
    return values[starts[0] : starts[-1] + lengths[-1]].data if len(starts) else memoryview(b"")


def _newlines(values: Bytes) -> int:
    return int(np.count_nonzero(values == _NEWLINE))


def _first_newline(values: Bytes) -> int | None:
    """Return the index of the first newline. Nearly always it is close by, so a little is searched at a time."""
    for start in range(0, len(values), _SEARCHED_NBYTES):
        found = values[start : start + _SEARCHED_NBYTES] == _NEWLINE
        end = int(found.argmax())
        if found[end]:
            return start + end
    return None
