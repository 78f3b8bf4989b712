"""Parse CSV records to typed columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np

from aiostream_data import _native
from aiostream_data._native.csv_rows_py import (
    BAD_VALUE,
    FIELD_COUNT,
    KINDS,
    OPEN_QUOTE,
    OUT_OF_RANGE,
    SKIPPED,
    TEXT,
    TEXT_AFTER_QUOTE,
    CsvFault,
    Parsed,
)
from aiostream_data.arguments import numpy_dtype, shown
from aiostream_data.errors import ArgumentTypeError, CsvParseError, PlanError
from aiostream_data.formats.csv_line_ends import has_bare_return
from aiostream_data.formats.csv_objects import CsvObjectRecords
from aiostream_data.formats.csv_rules import COMMAS, CsvRecords, CsvSyntax
from aiostream_data.formats.first_type import type_inferred_from
from aiostream_data.rows.columns import Column, VarColumn
from aiostream_data.rows.records import Columns
from aiostream_data.rows.structure import LEAF, NULLABLE, Structure
from aiostream_data.safe_url import shorten

FieldType: TypeAlias = "np.dtype[Any] | type[str] | type[bytes]"
Schema: TypeAlias = Mapping[str, FieldType]
Describe: TypeAlias = Callable[[int], tuple[str, int]]
"""The function ``describe(row)`` returns the URL and the record number for a row."""

_SHOWN_CHARACTERS: Final = 60
_INTEGERS: Final = tuple(map(np.dtype, "bhilqBHILQ"))
_TYPES: Final = "str, bytes, bool, or a dtype of bool, integers, float32 or float64"


def checked_schema(schema: Any) -> dict[str, FieldType]:
    """Return the type of each column of a ``schema`` argument.

    Raises:
        PlanError: The schema is not a mapping of names to types that a CSV field can have.
    """
    if not isinstance(schema, Mapping):
        example = "{'id': np.int64, 'text': str}"
        raise ArgumentTypeError(f"schema must be a dict such as {example} or None, got {type(schema).__name__}")
    if not schema:
        raise PlanError("schema must contain at least one column, got an empty dict")
    return {_checked_name(name): _checked_type(name, given) for name, given in schema.items()}


def _checked_name(name: Any) -> str:
    if not isinstance(name, str):
        raise ArgumentTypeError(f"the names of schema must be str, got {shown(name)}")
    return name


def _checked_type(name: str, given: Any) -> FieldType:
    if given is str or given is bytes:
        return given
    dtype = numpy_dtype(f"schema[{name!r}]", given, _TYPES)
    if dtype.kind in "US" and dtype.itemsize == 0:
        return str if dtype.kind == "U" else bytes
    if dtype not in KINDS or given is None:
        raise PlanError(f"schema[{name!r}] must be {_TYPES}, got {shown(given)}")
    return dtype


@dataclass(frozen=True)
class CsvParser:
    """Parser of CSV records with known columns. Picklable and thread-safe.

    Attributes:
        names, types: Names and types of all columns of a record.
        select: Names of the columns to deliver, in this order.
        na_values: Texts of fields without a value.
        syntax: Delimiter and quote.
        inferred_from: URL of the file from which the types were inferred, for error messages; "" if they are declared.
    """

    wraps: ClassVar[bool] = False

    names: tuple[str, ...]
    types: tuple[FieldType, ...]
    select: tuple[str, ...]
    na_values: tuple[str, ...] = ("",)
    syntax: CsvSyntax = COMMAS
    inferred_from: str = field(default="", compare=False, repr=False)

    @property
    def structure(self) -> Structure:
        """Structure of an element: a dict with one leaf per selected column."""
        return Structure("dict", self.select, (LEAF,) * len(self.select))

    @property
    def element_specs(self) -> tuple[tuple[tuple[int, ...], Any, bool], ...]:
        """Shape, dtype and ``ragged`` flag of each leaf of an element."""
        types = dict(zip(self.names, self.types, strict=True))
        return tuple(((), object if types[name] in (str, bytes) else types[name], False) for name in self.select)

    def parse(self, chunk: Columns, describe: Describe) -> Columns:
        """Parse a chunk of records. The result has one row per record, with the row ids of the chunk.

        A column is nullable in the result only if one of its fields has no value.
        Text columns refer to the buffer of the records, unless a field contains quotes.

        Raises:
            CsvParseError: A record does not match the schema. The error names the first such record.
        """
        (records,) = chunk.leaves
        assert isinstance(records, VarColumn)
        found = self.parsed(records)
        if isinstance(found, CsvFault):
            raise self._error(found, records, describe)
        buffer = np.ascontiguousarray(records.values)
        columns = dict(zip(sorted(self.select, key=self.names.index), found, strict=True))
        types = dict(zip(self.names, self.types, strict=True))
        leaves: list[Column] = []
        children = []
        for name in self.select:
            leaves += self._leaves(columns[name], types[name], buffer)
            children.append(NULLABLE if columns[name][3] else LEAF)
        structure = Structure("dict", self.select, tuple(children))
        is_shared = any(isinstance(leaf, VarColumn) and leaf.values is buffer for leaf in leaves)
        return Columns(structure, tuple(leaves), chunk.ids, chunk.lease if is_shared else None)

    def parsed(self, records: VarColumn) -> list[Parsed] | CsvFault:
        """Parse records to one result per selected column, in the order of the file; or return the first fault."""
        kinds = [
            _kind(found) if name in self.select else SKIPPED for name, found in zip(self.names, self.types, strict=True)
        ]
        missing = [text.encode() for text in self.na_values]
        buffer = np.ascontiguousarray(records.values)
        return _native.parse_csv(
            buffer, records.starts, records.lengths, kinds,
            self.syntax.delimiter_byte, self.syntax.quote_byte, missing,
        )  # fmt: skip

    def _leaves(self, parsed: Parsed, kind: FieldType, buffer: Any) -> list[Column]:
        values, lengths, valid, has_missing, has_doubled = parsed
        column: Column = values
        if lengths is not None:
            spans = (buffer, values, lengths)
            if has_doubled:
                spans = _native.unescape_csv(buffer, values, lengths, self.syntax.quote_byte)
            column = VarColumn(*spans, "str" if kind is str else "bytes")
        return [column, valid] if has_missing else [column]

    def _error(self, fault: CsvFault, records: VarColumn, describe: Describe) -> CsvParseError:
        url, record = describe(fault.row)
        line = records.line_of(fault.row) if isinstance(records, (CsvRecords, CsvObjectRecords)) else None
        column, reason = self._explained(fault, records.element(fault.row), url)
        return CsvParseError(url, record, line, column, reason)

    def _explained(self, fault: CsvFault, record: bytes, url: str) -> tuple[str, str]:
        """Return the column of a fault, or "", and the reason."""
        name = self.names[fault.column] if fault.column < len(self.names) else ""
        if fault.code == FIELD_COUNT:
            fields = self.syntax.fields(record)
            count = len(self.names) if fields is None else len(fields)
            cure = "check the delimiter and the quotes, or skip such records with on_error='skip'"
            cure = self._cure_of_line_ends(record) or cure
            return "", f"expected {len(self.names)} fields, found {count} in {_quoted(record)}; {cure}"
        if fault.code in (OPEN_QUOTE, TEXT_AFTER_QUOTE):
            what = "a quote is not closed" if fault.code == OPEN_QUOTE else "text follows the closing quote"
            return name, f"{what} in {_quoted(record)}; write a quote in a quoted field twice, or pass quote=None"
        assert fault.code in (BAD_VALUE, OUT_OF_RANGE)
        fields = self.syntax.fields(record)
        value = b"" if fields is None else fields[fault.column]
        kind = self.types[fault.column]
        problem = "is out of range for" if fault.code == OUT_OF_RANGE else "is not"
        wider = "np.float64" if kind in _INTEGERS and _is_number(value) else "str"
        cure = f"declare the type of the column, as in schema={{{name!r}: {wider}, ...}}, or add the text to na_values"
        cure = self._cure_of_line_ends(record) or cure
        return name, f"{_quoted(value)} {problem} {kind}{type_inferred_from(self.inferred_from, url)}; {cure}"

    def _cure_of_line_ends(self, record: bytes) -> str:
        """Return a cure if the record contains lines that end with a carriage return alone; otherwise ""."""
        if not has_bare_return(record, self.syntax):
            return ""
        return r"a carriage return (\r) alone does not end a line, so convert the line ends of the file"


def _kind(found: FieldType) -> int:
    return KINDS[found] if isinstance(found, np.dtype) else TEXT


def _is_number(text: bytes) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _quoted(text: bytes) -> str:
    found = shorten(text[: 4 * _SHOWN_CHARACTERS].decode("utf-8", "replace"))
    return repr(found if len(found) <= _SHOWN_CHARACTERS else found[: _SHOWN_CHARACTERS - 3] + "...")


@dataclass(frozen=True)
class CsvParserToInfer:
    """Parser of CSV records whose schema is inferred when the dataset is opened.

    Attributes:
        select, na_values, syntax: See :class:`CsvParser`; ``select`` is None to deliver all columns.
    """

    wraps: ClassVar[bool] = False

    select: tuple[str, ...] | None
    na_values: tuple[str, ...]
    syntax: CsvSyntax

    def with_types(self, names: tuple[str, ...], types: tuple[FieldType, ...], inferred_from: str = "") -> CsvParser:
        """Return the parser for a schema.

        Raises:
            PlanError: A selected column does not exist.
        """
        select = checked_select(self.select, names)
        return CsvParser(names, types, select, self.na_values, self.syntax, inferred_from)

    def parse(self, chunk: Columns, describe: Describe) -> Columns:
        raise PlanError(
            "from_csv() infers a schema only when its dataset is opened by itself, but a function returned this "
            "dataset. Pass schema= to from_csv(), as in schema={'id': np.int64, 'text': str}."
        )


def checked_select(select: Any, names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the columns to deliver.

    Raises:
        PlanError: A selected column does not exist or is selected twice.
    """
    if select is None:
        return tuple(names)
    for name in select:
        if name not in names:
            raise PlanError(f"select contains {name!r}, but the columns are {', '.join(map(repr, names[:20]))}")
    return tuple(select)
