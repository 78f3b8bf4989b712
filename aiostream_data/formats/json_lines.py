"""Format of JSON lines files: one JSON value per line, without blank lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from aiostream_data import _native
from aiostream_data.arguments import integer
from aiostream_data.codecs.file_kinds import FileKind
from aiostream_data.errors import CorruptRecordError
from aiostream_data.formats.base import Loss, SmallObjects
from aiostream_data.formats.cutting import Bytes, Cut, no_records
from aiostream_data.formats.lines import (
    NEWLINE,
    Indices,
    LineRules,
    in_line,
    lines_of_objects,
    most_lines,
    newlines,
)
from aiostream_data.formats.long_record import LongRecord
from aiostream_data.formats.placed_records import PlacedColumn, PlacedRecords, Places
from aiostream_data.formats.text import LineFramer, TextFormat
from aiostream_data.formats.text_recovery import LineRecovery
from aiostream_data.rows.columns import VarColumn, VarKind

_SPACES: Final = np.frombuffer(b" \t\r", np.uint8)


@dataclass(frozen=True, kw_only=True)
class JsonLinesFormat:
    """Format of JSON lines files. A record is one line that is not blank, as bytes in UTF-8, without its line end.

    Attributes:
        max_line_nbytes: Maximum length of a line in bytes. A longer line is damaged.
    """

    max_line_nbytes: int = 64 << 20

    def __post_init__(self) -> None:
        integer("max_line_nbytes", self.max_line_nbytes, 1)

    @property
    def name(self) -> str:
        return "jsonl"

    @property
    def whole(self) -> bool:
        return False

    @property
    def largest_nbytes(self) -> int:
        """Maximum size of a record in bytes."""
        return self.max_line_nbytes

    def framer(self, url: str) -> JsonLinesFramer:
        return JsonLinesFramer(self, url)

    @property
    def split_proves_format(self) -> bool:
        """False: any text can be records of this format."""
        return False

    def split_objects(self, values: Bytes, bounds: Indices, most_rows: int) -> SmallObjects | None:
        """Split all objects into lines in one pass; None if a line is invalid."""
        found = lines_of_objects(JsonLineRules(self.max_line_nbytes), values, bounds, most_rows)
        if found is None:
            return None
        kept = _are_filled(found.column)
        kept_before = np.concatenate([[0], np.cumsum(kept)])
        rows_before = np.concatenate([[0], np.cumsum(found.rows)])
        lines = np.arange(1, len(kept) + 1) - np.repeat(rows_before[:-1], found.rows)
        offsets = found.column.starts - np.repeat(bounds[:-1], found.rows)
        column = PlacedRecords(found.column, lines, offsets).take(np.flatnonzero(kept))
        return SmallObjects(column, np.diff(kept_before[rows_before]))

    def most_rows(self, values: Bytes, bounds: Indices) -> Indices:
        return most_lines(values, bounds)

    def recovery(self) -> JsonLinesRecovery:
        return JsonLinesRecovery(JsonLineRules(self.max_line_nbytes))

    def refuses(self, kind: FileKind) -> bool:
        """Return True for every recognized file type, because none of these types is JSON lines."""
        return True

    def recognises(self, first_bytes: bytes) -> bool:
        """Return True if the bytes are valid UTF-8 without control characters."""
        return TextFormat().recognises(first_bytes)


class JsonLineRules(LineRules):
    """Validator of lines of JSON, which must be UTF-8. Valid lines are bytes."""

    def __init__(self, max_nbytes: int) -> None:
        super().__init__("utf-8", max_nbytes)

    @property
    def kind(self) -> VarKind:
        return "bytes"

    def checked(
        self, values: Bytes, start: int, starts: Indices, lengths: Indices, consumed: int, offset: int = 0
    ) -> Cut:
        """Return all lines before the first invalid line. See :meth:`.LineRules.checked`."""
        is_short = not len(lengths) or int(lengths.max()) <= self.max_nbytes
        if is_short and _native.first_invalid_utf8(values, starts, lengths) < 0:  # makes no text, unlike the other way
            return Cut(VarColumn(values, starts, lengths, self.kind), consumed)
        return super().checked(values, start, starts, lengths, consumed, offset)

    def _not_valid(self, at: int, error: UnicodeDecodeError) -> str:
        return f"not valid utf-8 at byte {at}: {error.reason}; JSON must be UTF-8, so convert the file"


class JsonRecords(PlacedColumn):
    """A column of consecutive records of one stream that knows where its first record begins.

    Attributes:
        line: Number of the line of the first record, starting at 1; None if unknown.
        offset: Byte offset of the first record in the stream.
    """

    __slots__ = ("_places", "line", "offset")

    line: int | None
    offset: int
    _places: Places | None  # once they are known: a merge takes rows of one chunk again and again

    def __init__(self, column: VarColumn, line: int | None, offset: int) -> None:
        super().__init__(column.values, column.starts, column.lengths, column.kind)
        object.__setattr__(self, "line", line)
        object.__setattr__(self, "offset", offset)
        object.__setattr__(self, "_places", None)

    def __reduce__(self) -> tuple[object, ...]:
        column = VarColumn(self.values, self.starts, self.lengths, self.kind)
        return JsonRecords, (column, self.line, self.offset)

    def places(self) -> Places:
        if self._places is None:
            object.__setattr__(self, "_places", (self._lines(), self.starts + (self.offset - int(self.starts[0]))))
        assert self._places is not None
        return self._places

    def _lines(self) -> Indices:
        if self.line is None:
            return np.zeros(len(self), np.int64)
        first, last = int(self.starts[0]), int(self.starts[-1])
        ends = np.flatnonzero(self.values[first:last] == NEWLINE)
        lines: Indices = self.line + np.searchsorted(ends, self.starts - first)
        return lines

    def place_of(self, row: int) -> tuple[int | None, int]:
        first, start = int(self.starts[0]), int(self.starts[row])
        line = None if self.line is None else self.line + newlines(self.values[first:start])
        return line, self.offset + start - first

    def slice(self, start: int, stop: int) -> JsonRecords:
        line, offset = self.place_of(start) if start < len(self) else (self.line, self.offset)
        return JsonRecords(VarColumn.slice(self, start, stop), line, offset)


class JsonLinesFramer(LineFramer):
    """Framer that splits the bytes of one file into lines, without blank ones."""

    def __init__(self, description: JsonLinesFormat, url: str) -> None:
        super().__init__(TextFormat(max_line_nbytes=description.max_line_nbytes), url)
        self._rules: LineRules = JsonLineRules(description.max_line_nbytes)
        self._line: int | None = 1  # number of the line at ``offset``

    def resume(self, offset: int) -> None:
        super().resume(offset)
        if offset:
            self._line = None

    def _cut(self, values: Bytes, start: int, stop: int) -> Cut:
        cut = super()._cut(values, start, stop)
        return cut._replace(column=self._placed(cut.column, self._offset - start))

    def _end(self, tail: Bytes) -> Cut:
        cut = super()._end(tail)
        return cut._replace(column=self._placed(cut.column, self._offset))

    def _long_column(self, long: LongRecord) -> VarColumn:
        offset, mark = self._offset, 3 * self._marked
        return self._placed(super()._long_column(long), offset + mark)

    def _failed(self, problem: str) -> CorruptRecordError:
        return super()._failed(in_line(self._line, problem))

    def _placed(self, lines: VarColumn, shift: int) -> VarColumn:
        """Return the lines that are not blank. ``shift`` is the offset of index 0 of their values in the stream."""
        line = self._line
        if line is not None:
            self._line = line + len(lines)
        kept = np.flatnonzero(_are_filled(lines))
        if not len(kept):
            return no_records()
        filled = lines if len(kept) == len(lines) else lines.take(kept)
        first = None if line is None else line + int(kept[0])
        return JsonRecords(filled, first, shift + int(filled.starts[0]))


class JsonLinesRecovery(LineRecovery):
    """Parser that finds the next valid lines after damage, without blank ones."""

    def _judged(
        self, values: Bytes, starts: Indices, lengths: Indices, behind: int, base: int
    ) -> Iterator[VarColumn | Loss]:
        for part in super()._judged(values, starts, lengths, behind, base):
            if isinstance(part, Loss):
                yield part
                continue
            kept = np.flatnonzero(_are_filled(part))
            if len(kept):
                filled = part.take(kept)
                yield JsonRecords(filled, None, base + int(filled.starts[0]))


def _are_filled(lines: VarColumn) -> NDArray[np.bool_]:
    """Return for each line whether it contains more than spaces and tabs."""
    filled: NDArray[np.bool_] = lines.lengths > 0
    rows = np.flatnonzero(filled)
    rows = rows[np.isin(lines.values[lines.starts[rows]], _SPACES)]
    for row in rows.tolist():
        filled[row] = bool(lines.element(row).strip(b" \t\r"))
    return filled
