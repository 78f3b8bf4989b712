"""Read fields of the footer of a Parquet file that PyArrow must not read.

PyArrow ends the process if the largest or smallest value of a column is shorter than a value, or if it is asked for a
compression that does not exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aiostream_data.errors import CorruptRecordError
from aiostream_data.formats.thrift_fields import DamagedThriftError, Wanted, read_fields

FIXED_NBYTES: Final = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
"""Bytes of a value that is not encoded, by its type. Other types have lengths of their own."""

_ROW_GROUPS, _COLUMNS, _METADATA, _CODEC, _STATISTICS = 4, 1, 3, 4, 12
_BOUNDS: Final = (1, 2, 5, 6)
"""Numbers of the fields of statistics with the largest and the smallest value."""

_WITH_STATISTICS: Final[Wanted] = {_ROW_GROUPS: {_COLUMNS: {_METADATA: {_STATISTICS: dict.fromkeys(_BOUNDS)}}}}
_WITH_CODECS: Final[Wanted] = {_ROW_GROUPS: {_COLUMNS: {_METADATA: {_CODEC: None}}}}
_DAMAGE: Final = (DamagedThriftError, KeyError, IndexError, TypeError, AttributeError)


def short_statistics(url: str, footer: bytes | memoryview, sizes: Mapping[int, int]) -> set[tuple[int, int]]:
    """Return the row groups and columns whose largest or smallest value is shorter than a value.

    Writers may shorten the values of long columns. Values of other columns are damaged.

    Args:
        url: URL of the file, for error messages.
        footer: Bytes of the footer.
        sizes: Size of a value in bytes, by the number of the column.

    Raises:
        CorruptRecordError: The footer is damaged.
    """
    short = set()
    try:
        found, _ = read_fields(footer, 0, _WITH_STATISTICS)
        for group_number, group in enumerate(found[_ROW_GROUPS]):
            for number, nbytes in sizes.items():
                statistics = group[_COLUMNS][number].get(_METADATA, {}).get(_STATISTICS, {})
                if any(len(statistics[each]) < nbytes for each in _BOUNDS if each in statistics):
                    short.add((group_number, number))
    except _DAMAGE as error:
        raise CorruptRecordError(url, 0, f"the footer is damaged: {error}") from error
    return short


def codecs_of(url: str, footer: bytes | memoryview) -> list[list[int]]:
    """Return the numbers of the compressions of all columns, for each row group.

    Raises:
        CorruptRecordError: The footer is damaged.
    """
    try:
        found, _ = read_fields(footer, 0, _WITH_CODECS)
        return [[column[_METADATA][_CODEC] for column in group[_COLUMNS]] for group in found[_ROW_GROUPS]]
    except _DAMAGE as error:
        raise CorruptRecordError(url, 0, f"the footer is damaged: {error}") from error
