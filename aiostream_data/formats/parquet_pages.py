"""Check the headers of the pages of a Parquet column before PyArrow decodes them.

PyArrow trusts the headers: it reserves memory for as many values as they declare, and repeats a value as often. The
footer has the number of values of a column, for which the reader has reserved memory. Pages with more are refused.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from aiostream_data.errors import CorruptRecordError
from aiostream_data.formats.thrift_fields import DamagedThriftError, Wanted, read_fields
from aiostream_data.rows.records import ByteRange

_KIND, _DECODED_NBYTES, _STORED_NBYTES, _DATA, _DICTIONARY, _DATA_V2 = 1, 2, 3, 5, 7, 8
"""Numbers of the fields of a page header. The last three are structs, whose first field is the number of values."""

_ENCODING: Final = {_DATA: 2, _DATA_V2: 4}
"""Field number of the encoding in the header of a data page, for both versions of the header."""

_OF_DICTIONARY: Final = (2, 8)
"""Encodings whose values refer to the dictionary."""

_WANTED: Final[Wanted] = {
    **dict.fromkeys((_KIND, _DECODED_NBYTES, _STORED_NBYTES)),
    _DATA: {1: None, 2: None},
    _DICTIONARY: {1: None},
    _DATA_V2: {1: None, 4: None},
}
_STRUCT_OF_KIND: Final = {0: _DATA, 2: _DICTIONARY, 3: _DATA_V2}
_MOST_NBYTES: Final = 1 << 31
_DICTIONARY_ITEM_NBYTES: Final = 16
"""Memory of an item of a dictionary in addition to its bytes, at most."""


class StoredColumn(NamedTuple):
    """A column of a row group.

    Attributes:
        path: Name of the column, with the names of the structs around it.
        place: Bytes of the file that contain its pages.
        values: Number of values, with nulls.
        nbytes: Size in memory, in bytes, as the footer declares it.
        item_nbytes: Least size of a value that is not encoded, in bytes.
        is_text: True if each value has a length of its own.
        is_object: True if the values become Python objects, which are copies.
        position: Number of the column among all columns of the file.
    """

    path: str
    place: ByteRange
    values: int
    nbytes: int
    item_nbytes: int
    is_text: bool
    is_object: bool = False
    position: int = 0


class PagesSize(NamedTuple):
    """Memory that the pages of a column need while they are decoded, as their headers declare it.

    Attributes:
        nbytes: Size of all pages, in bytes.
        dictionary_nbytes: Size of the dictionary, in bytes; 0 if there is none.
        dictionary_items: Number of values in the dictionary.
        repeated: Number of values that refer to the dictionary, with nulls. A writer whose dictionary becomes too large
            stores all later values themselves.
        dictionary: Place of the stored bytes of the dictionary in the column.
    """

    nbytes: int
    dictionary_nbytes: int
    dictionary_items: int
    repeated: int
    dictionary: ByteRange


def pages_size(url: str, column: StoredColumn, pages: memoryview) -> PagesSize:
    """Check the headers of the pages of a column, and return the memory that the pages need.

    Args:
        pages: Bytes of the column.

    Raises:
        CorruptRecordError: A header is damaged, or the pages have more values than the column.
    """
    at = seen = nbytes = dictionary = items = repeated = 0
    place = ByteRange(0, 0)
    while seen < column.values and at < len(pages):
        try:
            header, behind = read_fields(pages, at, _WANTED)
        except DamagedThriftError as error:
            raise _damaged(url, column, at, str(error)) from error
        stored, decoded = _number(header, _STORED_NBYTES), _number(header, _DECODED_NBYTES)
        if not (0 <= stored <= len(pages) - behind and 0 <= decoded < _MOST_NBYTES):
            raise _damaged(url, column, at, f"it has {stored} bytes, and {decoded} decoded ones")
        nbytes += decoded
        kind = _STRUCT_OF_KIND.get(_number(header, _KIND))
        count = _number(header.get(kind), 1) if kind is not None else 0
        if kind == _DICTIONARY:
            if not 0 <= count <= decoded // max(1, column.item_nbytes):
                raise _damaged(url, column, at, f"the dictionary of {decoded} bytes has {count} values")
            dictionary += decoded
            items += count
            place = ByteRange(behind, behind + stored)
            nbytes += count * _DICTIONARY_ITEM_NBYTES
        elif not 0 <= count <= column.values - seen:
            raise _damaged(url, column, at, f"it has {count} values, but the column {column.values}")
        else:
            seen += count
            is_plain = kind is not None and _number(header.get(kind), _ENCODING[kind]) not in _OF_DICTIONARY
            repeated += 0 if is_plain else count
        at = behind + stored
    return PagesSize(nbytes, dictionary, items, repeated, place)


def _number(fields: Any, number: int) -> int:
    """Return a number of a struct, or -1 if it has none."""
    found = fields.get(number) if isinstance(fields, dict) else None
    return found if type(found) is int else -1


def _damaged(url: str, column: StoredColumn, at: int, reason: str) -> CorruptRecordError:
    return CorruptRecordError(url, column.place.start + at, f"a page of column {column.path!r} is damaged: {reason}")
