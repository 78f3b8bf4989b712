"""Infer the schema of CSV files from the first records of a file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from aiostream_data._native.csv_rows_py import CsvFault
from aiostream_data.errors import CsvSchemaError
from aiostream_data.formats.csv_columns import CsvParser, FieldType
from aiostream_data.formats.csv_header import names_of
from aiostream_data.formats.csv_rules import CsvSyntax
from aiostream_data.rows.columns import VarColumn

INFERRED_ROWS: Final = 1000
"""Maximum number of records that determine the types of the columns."""

_CANDIDATES: Final[tuple[np.dtype[Any], ...]] = (np.dtype(np.int64), np.dtype(np.float64))
_BOOLS: Final = (b"true", b"false")


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

    def names(self, records: Sequence[bytes], header: bool) -> tuple[str, ...]:
        """Return the names of the columns: from the header, or ``column_0``, ``column_1``, ...

        Raises:
            CsvSchemaError: The file has no record, or its first record is damaged.
        """
        if not records:
            raise CsvSchemaError(
                self._url, "", "the file is empty, so its columns are unknown; declare them with schema={name: type}"
            )
        if header:
            return names_of(records[0], self._syntax, self._encoding, self._url)
        fields = self._syntax.fields(records[0])
        if fields is None:
            raise CsvSchemaError(self._url, "", "the first record has text after a closing quote")
        return tuple(f"column_{number}" for number in range(len(fields)))

    def types(self, names: Sequence[str], rows: Sequence[bytes]) -> tuple[FieldType, ...]:
        """Return the type of each column: the first of int64, float64, bool and str that all values have.

        A column without any value is str. Records with another number of fields are ignored.
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
        for dtype in _CANDIDATES:
            if self._fits(given, dtype):
                return dtype
        return np.dtype(np.bool_) if all(text.lower() in _BOOLS for text in given) else text_type

    def _fits(self, texts: Sequence[bytes], dtype: np.dtype[Any]) -> bool:
        parser = CsvParser(("",), (dtype,), ("",), (), CsvSyntax("\x01", None))
        lengths = np.array([len(text) for text in texts], np.int64)
        values = np.frombuffer(b"".join(texts), np.uint8)
        return not isinstance(parser.parsed(VarColumn(values, np.cumsum(lengths) - lengths, lengths)), CsvFault)
