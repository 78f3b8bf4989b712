"""Format of CSV files: one record per row, with quoted fields as in RFC 4180."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Final

import numpy as np

from aiostream_data._native.csv_rows_py import FIELD_START, QUOTED
from aiostream_data.arguments import integer
from aiostream_data.codecs.file_kinds import FileKind
from aiostream_data.errors import CsvSchemaError
from aiostream_data.formats.base import SmallObjects
from aiostream_data.formats.csv_header import NamedIn, order_of
from aiostream_data.formats.csv_line_ends import check_first_row
from aiostream_data.formats.csv_objects import records_of_objects
from aiostream_data.formats.csv_recovery import CsvRecovery
from aiostream_data.formats.csv_rules import COMMAS, CsvRecords, CsvRules, CsvSyntax, Records, reordered
from aiostream_data.formats.cutting import Bytes, Cut, CuttingFramer, no_records
from aiostream_data.formats.lines import BOM, Indices, in_line, most_lines, newlines
from aiostream_data.formats.text import TextFormat
from aiostream_data.rows.columns import VarColumn

_FIRST_NBYTES: Final = 64 << 10
"""Number of bytes of an incomplete first row whose line ends are checked."""

_REJOINED_NBYTES: Final = 64 << 10
"""Size in bytes above which an incomplete record is not scanned again for every block."""


@dataclass(frozen=True, kw_only=True)
class CsvFormat:
    """Format of CSV files. A record is one row, as bytes in UTF-8, without its line end.

    Attributes:
        syntax: Delimiter and quote.
        header: True if the first record of each file contains the names of the columns.
        names: Names of the columns in the order of the delivered records; empty if the header is not checked.
        named_in: The source of ``names``, for error messages.
        encoding: Text encoding of the files, or None; see :class:`.TextFormat`.
        max_line_nbytes: Maximum length of a record in bytes.
    """

    syntax: CsvSyntax = COMMAS
    header: bool = True
    names: tuple[str, ...] = ()
    named_in: NamedIn = field(default="the schema", compare=False)
    encoding: str | None = "utf-8"
    max_line_nbytes: int = 64 << 20

    def __post_init__(self) -> None:
        integer("max_line_nbytes", self.max_line_nbytes, 1)
        TextFormat(encoding=self.encoding)  # checks the encoding

    @property
    def name(self) -> str:
        return "csv"

    @property
    def whole(self) -> bool:
        return False

    @property
    def largest_nbytes(self) -> int:
        """Maximum size of a record in bytes."""
        return self.max_line_nbytes

    def rules(self) -> CsvRules:
        return CsvRules(self.syntax, self.encoding, self.max_line_nbytes)

    def framer(self, url: str) -> CsvFramer:
        return CsvFramer(self, url)

    @property
    def split_proves_format(self) -> bool:
        """False: any text can be records of this format."""
        return False

    def split_objects(self, values: Bytes, bounds: Indices, most_rows: int) -> SmallObjects | None:
        """Split all files into records without their headers. See :func:`.records_of_objects`."""
        order = partial(self.order_of_first, url="")
        return records_of_objects(self.rules(), order, self.header, values, bounds, most_rows)

    def most_rows(self, values: Bytes, bounds: Indices) -> Indices:
        return most_lines(values, bounds)

    def order_of_first(self, record: bytes, url: str) -> Indices | None:
        """Check the first row of a file. Return the order of its columns; see :func:`.order_of`.

        Raises:
            CsvSchemaError: The row shows that lines end with a carriage return, or it is not the expected header.
        """
        check_first_row(record, self.syntax, url)
        return self._order_of_header(record, url) if self.header else None

    def _order_of_header(self, header: bytes, url: str) -> Indices | None:
        return order_of(header, self.syntax, self.encoding, self.names, self.named_in, url)

    def recovery(self) -> CsvRecovery:
        return CsvRecovery(self.rules())

    def refuses(self, kind: FileKind) -> bool:
        """Return True for every recognized file type, because none of these types is CSV."""
        return True

    def recognises(self, first_bytes: bytes) -> bool:
        """Return True if the bytes are valid UTF-8 without control characters."""
        return TextFormat().recognises(first_bytes)


class CsvFramer(CuttingFramer):
    """Framer that splits the bytes of one CSV file into records. The native search releases the GIL."""

    def __init__(self, description: CsvFormat, url: str) -> None:
        super().__init__(url)
        self._description = description
        self._syntax = description.syntax
        self._rules = description.rules()
        self._is_first = True  # until the first row is found
        self._line: int | None = 1  # number of the line at ``offset``
        self._found: Records | None = None  # result of _window for _cut
        self._state = FIELD_START  # state after the first _scanned_nbytes of the incomplete record
        self._scanned_nbytes = 0
        self.order: Indices | None = None

    def resume(self, offset: int) -> None:
        super().resume(offset)
        if offset:
            self._is_first, self._line = False, None

    def hand_over(self, receiver: object) -> None:
        """Pass the order of the file's columns on."""
        if isinstance(receiver, CsvRecovery):
            receiver.order = self.order

    def succeed(self, earlier: CuttingFramer) -> None:
        """Take over the order of the file's columns."""
        if isinstance(earlier, CsvFramer):
            self.order = earlier.order

    def _completes(self, fresh: Bytes) -> bool:
        nbytes = self._tail.nbytes
        if nbytes < _REJOINED_NBYTES or not self._offset or self._rules.is_too_long(nbytes + len(fresh)):
            return True
        end, state = self._syntax.scan(fresh, 0, len(fresh), self._state)
        if end >= 0:
            return True
        self._state, self._scanned_nbytes = state, nbytes + len(fresh)
        return False

    def _keep(self, rest: Bytes) -> None:
        if len(rest) >= _REJOINED_NBYTES and len(rest) != self._scanned_nbytes:
            _, self._state = self._syntax.scan(rest, 0, len(rest), FIELD_START)
            self._scanned_nbytes = len(rest)
        super()._keep(rest)

    def _window(self, values: Bytes, start: int, stop: int, most_rows: int) -> int:
        found = self._syntax.records(values, self._behind_mark(values, start, stop), stop, most_rows)
        self._found = found
        return found.consumed if len(found.starts) == most_rows else stop

    def _behind_mark(self, values: Bytes, start: int, stop: int) -> int:
        """Return the index after a byte order mark at the start of the stream."""
        if self._offset or not self._rules.is_utf8 or not np.array_equal(values[start:stop][: len(BOM)], BOM):
            return start
        return start + len(BOM)

    def _cut(self, values: Bytes, start: int, stop: int) -> Cut:
        found, self._found = self._found, None
        assert found is not None
        self._scanned_nbytes = 0
        starts, lengths, consumed, lines = found
        if not lines:
            consumed = start  # keeps a byte order mark before an incomplete record
        if self._is_first:
            skipped = self._look_at_first(values, found, stop)
            starts, lengths = starts[skipped:], lengths[skipped:]
        line = self._line
        if line is not None:
            self._line = line + lines
        if not len(starts):
            return Cut(no_records(), consumed, self._too_long(stop - consumed))
        first = int(starts[0])
        cut = self._rules.checked(values, first, starts, lengths, consumed, self._offset + first - start)
        line = None if line is None else line + newlines(values[start:first])
        if cut.problem is None:
            return Cut(self._delivered(cut.column, line), cut.consumed, self._too_long(stop - consumed))
        damaged = None if line is None else line + newlines(values[first : cut.consumed])
        return Cut(self._delivered(cut.column, line), cut.consumed, in_line(damaged, cut.problem))

    def _look_at_first(self, values: Bytes, found: Records, stop: int) -> int:
        """Check the first row, also one that is incomplete. Return the number of rows that are no records: 1 or 0."""
        if len(found.starts):
            start = int(found.starts[0])
            return self._read_first(values[start : start + int(found.lengths[0])].tobytes())
        waiting = values[found.consumed : stop]
        start_of_row = waiting[:_FIRST_NBYTES].tobytes()
        check_first_row(start_of_row.removesuffix(b"\r"), self._syntax, self._url)
        if self._description.header and self._rules.is_too_long(len(waiting)):
            raise CsvSchemaError(self._url, "", f"the header is damaged: {self._rules.too_long()}")
        return 0

    def _too_long(self, waiting_nbytes: int) -> str | None:
        return in_line(self._line, self._rules.too_long()) if self._rules.is_too_long(waiting_nbytes) else None

    def _delivered(self, column: VarColumn, line: int | None) -> VarColumn:
        return CsvRecords(reordered(column, self.order, self._syntax), line)

    def _read_first(self, record: bytes) -> int:
        """Check the first row. Return 1 if it is a header, and 0 if it is a record."""
        self._is_first = False
        self.order = self._description.order_of_first(record, self._url)
        return int(self._description.header)

    def _end(self, tail: Bytes) -> Cut:
        start = self._behind_mark(tail, 0, len(tail))
        _, state = self._syntax.scan(tail, start, len(tail), FIELD_START)
        if state == QUOTED:
            return Cut(no_records(), 0, self._open_quote())
        nbytes = len(tail) - start
        nbytes -= nbytes > 0 and int(tail[-1]) == ord("\r")
        if not nbytes:
            return Cut(no_records(), 0)
        if self._is_first and self._read_first(tail[start : start + nbytes].tobytes()):
            return Cut(no_records(), 0)
        starts, lengths = np.array([start], np.int64), np.array([nbytes], np.int64)
        cut = self._rules.checked(tail, start, starts, lengths, len(tail), self._offset + start)
        problem = None if cut.problem is None else in_line(self._line, cut.problem)
        return cut._replace(column=self._delivered(cut.column, self._line), problem=problem)

    def _open_quote(self) -> str:
        if self._is_first and self._description.header:
            raise CsvSchemaError(self._url, "", "the file ends inside a quoted name of its header")
        line = "" if self._line is None else f" that begins in line {self._line}"
        return f"the file ends inside a quoted field of the record{line}; the closing quote is missing"
