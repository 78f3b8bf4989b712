"""Refuse CSV files whose lines end with a carriage return alone."""

from __future__ import annotations

import numpy as np

from aiostream_data._native.csv_rows_py import FIELD_START, QUOTED
from aiostream_data.errors import CsvSchemaError
from aiostream_data.formats.csv_rules import CsvSyntax
from aiostream_data.formats.lines import RETURN


def has_bare_return(record: bytes, syntax: CsvSyntax) -> bool:
    """Return True if a record contains a carriage return outside quotes. Its line end is not part of a record."""
    if b"\r" not in record:
        return False
    values, at, state = np.frombuffer(record, np.uint8), 0, FIELD_START
    for place in np.flatnonzero(values == RETURN).tolist():
        _, state = syntax.scan(values, at, place, state)
        if state != QUOTED:
            return True
        at = place
    return False


def check_first_row(record: bytes, syntax: CsvSyntax, url: str) -> None:
    r"""Check the line ends of a file by its first row, or by the received part of it.

    In a file whose lines end with ``\r``, this row would contain all rows.

    Raises:
        CsvSchemaError: The row contains a carriage return outside quotes.
    """
    if has_bare_return(record, syntax):
        cause = r"the first row contains a carriage return (\r) outside quotes, but lines must end with \n or \r\n"
        raise CsvSchemaError(url, "", f"{cause}; convert the line ends of the file, or quote the field")
