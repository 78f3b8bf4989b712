"""Infer the schema of CSV files from the first records of a file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from aiostream_data._native.csv_rows_py import CsvFault
from aiostream_data.errors import CsvSchemaError
from aiostream_data.formats.csv import CsvFormat
from aiostream_data.formats.csv_columns import CsvParser, FieldType
from aiostream_data.formats.csv_header import names_of
from aiostream_data.formats.csv_rules import CsvSyntax
from aiostream_data.formats.first_records import MOST_RECORDS, FirstRecords
from aiostream_data.formats.lines import Indices
from aiostream_data.rows.columns import VarColumn

INFERRED_ROWS: Final = MOST_RECORDS
"""Maximum number of records that determine the types of the columns."""

_INTEGER_TYPES: Final[tuple[np.dtype[Any], ...]] = (np.dtype(np.int64), np.dtype(np.uint64))
_FLOAT: Final[np.dtype[Any]] = np.dtype(np.float64)
_INTEGER: Final = re.compile(rb"[ \t]*[+-]?[0-9]+[ \t]*")
_BOOLS: Final = (b"true", b"false")


@dataclass(frozen=True, kw_only=True)
class CsvFormatToInfer(CsvFormat):
    """Format that collects the header of a file, as it is stored, and does not compare it.

    Attributes:
        headers: The collected headers.
    """

    headers: list[bytes] = field(default_factory=list, compare=False)

    @classmethod
    def of(cls, known: CsvFormat) -> CsvFormatToInfer:
        return cls(
            syntax=known.syntax, header=known.header, encoding=known.encoding, max_line_nbytes=known.max_line_nbytes
        )

    def _order_of_header(self, header: bytes, url: str) -> Indices | None:
        self.headers.append(header)
        return None


class FirstRows(FirstRecords):
    """First records of a CSV file. See :class:`.FirstRecords`.

    Attributes:
        header: The header as it is stored; None if the files have no headers, or this file is empty.
    """

    def __init__(self, format: CsvFormat, url: str, compression: str, content: bytes, nbytes: int) -> None:
        to_infer = CsvFormatToInfer.of(format)
        super().__init__(to_infer, url, compression, content, nbytes)
        self.header = to_infer.headers[0] if to_infer.headers else None

    @property
    def is_blank(self) -> bool:
        return super().is_blank and self.header is None


class Inference:
    """Names and types of the columns of a file, from the first records.

    Args:
        url: URL of the file.
        syntax: Delimiter and quote.
        encoding: Text encoding, or None for bytes.
        na_values: Texts of fields without a value.
    """

    def __init__(self, url: str, syntax: CsvSyntax, encoding: str | None, na_values: Sequence[str]) -> None:
        self._url = url
        self._syntax = syntax
        self._encoding = encoding
        self._na_values = tuple(na_values)

    def names(self, first: FirstRows) -> tuple[str, ...]:
        """Return the names of the columns: from the header, or ``column_0``, ``column_1``, ...

        Raises:
            CsvSchemaError: The file has no row, or its first row is damaged.
            CorruptRecordError: All rows of the file are damaged.
        """
        if first.header is not None:
            return names_of(first.header, self._syntax, self._encoding, self._url)
        if not first.records:
            raise first.damage or self._no_row(first)
        fields = self._syntax.fields(first.records[0])
        if fields is None:
            raise CsvSchemaError(self._url, "", "the first record has text after a closing quote")
        return tuple(f"column_{number}" for number in range(len(fields)))

    def _no_row(self, first: FirstRows) -> CsvSchemaError:
        found = "the file is empty" if first.is_whole else "the first MiB of the file contains no complete row"
        cure = "declare them with schema={name: type}"
        return CsvSchemaError(self._url, "", f"{found}, so its columns are unknown; {cure}")

    def types(self, names: Sequence[str], rows: Sequence[bytes]) -> tuple[FieldType, ...]:
        """Return the type of each column: the first of int64, uint64, float64, bool and str that all values have.

        A column without any value is str, and so is one of integers that fit neither int64 nor uint64: float64 would
        round them. Records with another number of fields are ignored.
        """
        texts: list[list[bytes]] = [[] for _ in names]
        for record in rows[:INFERRED_ROWS]:
            fields = self._syntax.fields(record)
            if fields is not None and len(fields) == len(names):
                for column, text in zip(texts, fields, strict=True):
                    column.append(text)
        return tuple(map(self._type, texts))

    def _type(self, texts: Sequence[bytes]) -> FieldType:
        missing = {text.encode() for text in self._na_values}
        given = [text for text in texts if text not in missing]
        text_type: FieldType = bytes if self._encoding is None else str
        if not given:
            return text_type
        for dtype in _INTEGER_TYPES:
            if self._fits(given, dtype):
                return dtype
        if all(map(_INTEGER.fullmatch, given)):
            return text_type
        if self._fits(given, _FLOAT):
            return _FLOAT
        return np.dtype(np.bool_) if all(text.lower() in _BOOLS for text in given) else text_type

    def _fits(self, texts: Sequence[bytes], dtype: np.dtype[Any]) -> bool:
        parser = CsvParser(("",), (dtype,), ("",), (), CsvSyntax("\x01", None))
        lengths = np.array([len(text) for text in texts], np.int64)
        values = np.frombuffer(b"".join(texts), np.uint8)
        return not isinstance(parser.parsed(VarColumn(values, np.cumsum(lengths) - lengths, lengths)), CsvFault)
