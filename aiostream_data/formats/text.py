r"""Format of text files, with one record per line (``\n`` or ``\r\n``)."""

from __future__ import annotations

import codecs
from dataclasses import dataclass

import numpy as np

from aiostream_data import _native
from aiostream_data.arguments import shown
from aiostream_data.codecs.file_kinds import GZIP, TFRECORD, UTF16, UTF32, ZSTD, FileKind
from aiostream_data.errors import PlanError
from aiostream_data.formats.base import SmallObjects
from aiostream_data.formats.cutting import Bytes, Cut, CuttingFramer, no_records
from aiostream_data.formats.lines import BOM, Indices, LineRules, first_newline, lines_of_objects, most_lines
from aiostream_data.formats.long_record import LongRecord
from aiostream_data.formats.text_recovery import LineRecovery
from aiostream_data.rows.columns import VarColumn, VarKind
from aiostream_data.safe_url import shorten

_ASCII = bytes(range(128))
_WHITE_SPACE = b"\t\n\f\r"
_READ_AS_BYTES = (TFRECORD, GZIP, ZSTD, UTF16, UTF32)
_SHOWN_CHARACTERS = 40


@dataclass(frozen=True, kw_only=True)
class TextFormat:
    r"""Format of ``tf.data.TextLineDataset``: lines without their ``\n`` or ``\r\n``.

    The last line is a record even if it does not end with a newline. Records are ``str``, and a UTF-8 byte order mark
    at the start of the stream is removed. With ``encoding=None`` records are unmodified ``bytes``.

    Attributes:
        encoding: Text encoding, or None. The encoding must extend ASCII (utf-8, latin-1, cp1252, shift_jis ...).
            Bytes that are invalid in the encoding raise an error. For encodings other than utf-8 and ascii, the text is
            copied.
        max_line_nbytes: Maximum length of a line in bytes. A longer line is treated as damaged data. The maximum limits
            memory use if a file has no newlines.
    """

    encoding: str | None = "utf-8"
    max_line_nbytes: int = 64 << 20

    def __post_init__(self) -> None:
        if self.max_line_nbytes < 1:
            raise PlanError(f"max_line_nbytes must be at least 1, got {self.max_line_nbytes}")
        if self.encoding is not None and not _extends_ascii(self.encoding):
            raise PlanError(f"encoding must be compatible with ASCII, got {shown(self.encoding)}")

    @property
    def name(self) -> str:
        return "text"

    @property
    def whole(self) -> bool:
        return False

    @property
    def largest_nbytes(self) -> int:
        """Maximum size of a record in bytes."""
        return self.max_line_nbytes

    def framer(self, url: str) -> LineFramer:
        return LineFramer(self, url)

    @property
    def split_proves_format(self) -> bool:
        """False: any bytes can be records of this format."""
        return False

    def split_objects(self, values: Bytes, bounds: Indices, most_rows: int) -> SmallObjects | None:
        """Split all objects into lines in one pass; None if a line is invalid or must be re-encoded."""
        return lines_of_objects(LineRules(self.encoding, self.max_line_nbytes), values, bounds, most_rows)

    def most_rows(self, values: Bytes, bounds: Indices) -> Indices:
        return most_lines(values, bounds)

    def recovery(self) -> LineRecovery:
        return LineRecovery(LineRules(self.encoding, self.max_line_nbytes))

    def refuses(self, kind: FileKind) -> bool:
        """Return True for every recognized file type, because none of these types is text.

        With ``encoding=None``, some recognized file types are accepted as raw bytes.
        """
        return self.encoding is not None or kind not in _READ_AS_BYTES

    def recognises(self, first_bytes: bytes) -> bool:
        """Return True if the bytes are valid UTF-8 without control characters."""
        if any(byte < 0x20 and byte not in _WHITE_SPACE for byte in first_bytes):
            return False
        try:
            codecs.getincrementaldecoder("utf-8")().decode(first_bytes)
        except UnicodeDecodeError:
            return False
        return True


def first_line(start: bytes) -> str:
    """Return a clause that quotes the first non-blank line in an error, shortened and without secrets; "" for blank
    text."""
    line = shorten(start.decode("utf-8-sig", "ignore").lstrip().partition("\n")[0])
    line = line if len(line) <= _SHOWN_CHARACTERS else line[: _SHOWN_CHARACTERS - 3] + "..."
    return f", {shown(line)}" if line else ""


def _extends_ascii(encoding: str) -> bool:
    try:
        # The first probe detects codecs that decode escape sequences, such as unicode_escape. Codecs such as idna
        # cannot replace invalid bytes.
        probes = (b"\\u000a", _ASCII)
        return all(probe.decode(encoding, "replace") == probe.decode("ascii") for probe in probes)
    except (LookupError, TypeError, ValueError):  # unknown encoding
        return False


class LineFramer(CuttingFramer):
    """Framer that splits the bytes of one text file into lines.

    The native (compiled) newline search releases the GIL.
    """

    def __init__(self, description: TextFormat, url: str) -> None:
        super().__init__(url)
        self._rules = LineRules(description.encoding, description.max_line_nbytes)
        self._lines: tuple[Indices, Indices, int] | None = None  # of a window: starts, lengths, end of the last line
        self._ended = self._marked = False  # state of the long line: newline found, begins with a byte order mark

    def _kind(self) -> VarKind:
        return self._rules.kind

    def _completes(self, fresh: Bytes) -> bool:
        if not self._tail.nbytes or self._rules.is_too_long(self._tail.nbytes + len(fresh)):
            return True
        return first_newline(fresh) is not None

    def _window(self, values: Bytes, start: int, stop: int, most_rows: int) -> int:
        self._lines = starts, _, end = _native.find_lines(values, start, stop, most_rows)
        return end if len(starts) == most_rows else stop

    def _begin_long(self, rest: Bytes) -> LongRecord | None:
        if not self._rules.keeps_bytes:
            return None
        long = LongRecord(None)
        self._marked = self._offset == 0 and self._rules.is_utf8 and np.array_equal(rest[: len(BOM)], BOM)
        long.take(rest[len(BOM) :] if self._marked else rest)
        self._ended = False
        return long

    def _extend(self, long: LongRecord, fresh: Bytes) -> int:
        end = first_newline(fresh)
        self._ended = end is not None
        used = long.take(fresh[:end])
        if end is None:
            if self._rules.is_too_long(long.nbytes):
                self._long_nbytes += used
                raise self._failed(self._rules.too_long())
            return used
        long.drop_last(b"\r")
        return used + 1

    def _is_whole(self, long: LongRecord) -> bool:
        return self._ended

    def _problem_of(self, data: bytes, suffix: bytes) -> str | None:
        return self._rules.problem_of(data, self._offset)

    def _long_parts(self, data: bytes, suffix: bytes) -> list[bytes]:
        mark = BOM.tobytes() if self._marked else b""
        left = self._long_nbytes - len(mark) - len(data)  # length of the line ending
        return [mark, data, b"\r\n"[2 - left :]]

    def _last_long(self, long: LongRecord) -> VarColumn:
        return self._long_column(long)

    def _cut(self, values: Bytes, start: int, stop: int) -> Cut:
        assert self._lines is not None, "the lines of the window were found before"
        (starts, lengths, consumed), self._lines = self._lines, None
        self._drop_mark(values, starts, lengths)
        cut = self._rules.checked(values, start, starts, lengths, consumed, self._offset)
        if cut.problem is None and self._rules.is_too_long(stop - consumed):
            return cut._replace(problem=self._rules.too_long())
        return cut

    def _end(self, tail: Bytes) -> Cut:
        starts, lengths = np.zeros(1, np.int64), np.array([len(tail)], np.int64)
        self._drop_mark(tail, starts, lengths)
        if not lengths[0]:
            return Cut(no_records(self._kind()), 0)
        return self._rules.checked(tail, 0, starts, lengths, len(tail), self._offset)

    def _drop_mark(self, values: Bytes, starts: Indices, lengths: Indices) -> None:
        at_start = self._offset == 0 and self._rules.is_utf8 and len(starts) > 0 and lengths[0] >= len(BOM)
        if at_start and np.array_equal(values[starts[0] : starts[0] + len(BOM)], BOM):
            starts[0] += len(BOM)
            lengths[0] -= len(BOM)
