"""Deletion vectors of Iceberg and Delta tables: Roaring bitmaps of the deleted rows of one data file.

The library pyroaring reads a bitmap. This module checks what pyroaring does not: the checksum of a vector, its length,
and its number of rows before they are written to an array.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import AiostreamError

_MAGIC: Final = b"\xd1\xd3\x39\x64"
_HEAD_NBYTES: Final = 12
"""Bytes of a vector before its bitmaps: the magic number, and the number of bitmaps."""

_BITMAP_BITS: Final = 32

MOST_BITMAPS: Final = 64
"""Maximum number of bitmaps of a vector. Each one has the deleted rows among four billion."""

MOST_ROWS: Final = 1 << 27
"""Maximum number of rows that one vector deletes, because they are written to an array of 8 bytes per row."""


_NO_VECTOR: Final = "it is not a deletion vector, or it is cut off"


class DamagedVectorError(AiostreamError):
    """The deletion vectors of a file are damaged. The caller raises another error that names the file."""


def rows_of_vector(vector: bytes | memoryview, rows: int) -> NDArray[np.int64]:
    """Return the numbers of the deleted rows in ascending order.

    Args:
        rows: Number of rows of the data file.

    Raises:
        DamagedVectorError: The vector is damaged, deletes rows that the file does not have, or deletes more rows than
            this package supports.
    """
    body = bytes(vector[4:-4])
    if int.from_bytes(vector[:4], "big") != len(body) or not body.startswith(_MAGIC):
        raise DamagedVectorError(_NO_VECTOR)
    if crc32(body) != int.from_bytes(vector[-4:], "big"):
        raise DamagedVectorError("the checksum of a deletion vector is wrong")
    return rows_of_body(body, rows)


def rows_of_body(body: bytes, rows: int, padding: int = 0) -> NDArray[np.int64]:
    """Return the numbers of the deleted rows of a vector without length and checksum; see :func:`rows_of_vector`.

    Args:
        padding: Maximum number of zero bytes behind the bitmaps.
    """
    if len(body) < _HEAD_NBYTES or not body.startswith(_MAGIC):
        raise DamagedVectorError(_NO_VECTOR)
    return np.concatenate([np.empty(0, np.int64), *_rows_of_bitmaps(body, rows, padding)])


def _rows_of_bitmaps(body: bytes, rows: int, padding: int) -> Iterator[NDArray[np.int64]]:
    """Yield the rows of each bitmap. A bitmap has the lower bits of its rows, and a key with the higher bits."""
    from pyroaring import BitMap

    count, at = int.from_bytes(body[4:_HEAD_NBYTES], "little"), _HEAD_NBYTES
    last, left = -1, min(rows, MOST_ROWS)
    for _ in range(min(count, MOST_BITMAPS)):
        key = int.from_bytes(body[at : at + 4], "little")
        if at + 4 >= len(body) or not last < key <= rows >> _BITMAP_BITS:
            raise DamagedVectorError("the keys of a deletion vector are damaged")
        try:
            bitmap = BitMap.deserialize(body[at + 4 :])
        except ValueError as error:
            raise DamagedVectorError("a bitmap of a deletion vector is damaged") from error
        left -= len(bitmap)
        if left < 0:
            most = f"the {rows} rows of its file" if rows <= MOST_ROWS else f"{MOST_ROWS} rows. Compact the table"
            raise DamagedVectorError(f"a deletion vector deletes more than {most}")
        last, at = key, at + 4 + len(bitmap.serialize())
        yield np.frombuffer(bitmap.to_array(), np.uint32).astype(np.int64) + (key << _BITMAP_BITS)
    if len(body) > at + padding or body[at:].strip(b"\0"):
        raise DamagedVectorError("a deletion vector has other bytes behind its bitmaps, or too many bitmaps")
