"""Deletion vectors of Iceberg tables: for each data file, a Roaring bitmap of the deleted rows in a Puffin file.

The library pyiceberg reads the list of the bitmaps, and pyroaring a bitmap. This module checks what they do not: the
checksum of a vector, its length, and its number of rows before they are written to an array.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import AiostreamError

_TYPE: Final = "deletion-vector-v1"
_FILE: Final = "referenced-data-file"
_MAGIC: Final = b"\xd1\xd3\x39\x64"
_HEAD_NBYTES: Final = 12
"""Bytes of a vector before its bitmaps: the magic number, and the number of bitmaps."""

_BITMAP_BITS: Final = 32

MOST_BITMAPS: Final = 64
"""Maximum number of bitmaps of a vector. Each one has the deleted rows among four billion."""

MOST_ROWS: Final = 1 << 27
"""Maximum number of rows that one vector deletes, because they are written to an array of 8 bytes per row."""


class DamagedVectorError(AiostreamError):
    """The deletion vectors of a file are damaged. The caller raises another error that names the file."""


def vectors_in(puffin: bytes) -> dict[str, memoryview]:
    """Return the deletion vectors in a Puffin file, by the URLs of their data files.

    Raises:
        DamagedVectorError: The file is damaged, a vector is compressed, or vectors overlap.
    """
    from pyiceberg.table.puffin import PuffinFile

    try:
        blobs = [each for each in PuffinFile(puffin).footer.blobs if each.type == _TYPE]
    except (ValueError, IndexError) as error:  # pyiceberg checks no lengths
        raise DamagedVectorError(f"it is not a Puffin file: {' '.join(str(error).split())}") from error
    found = dict(_vector_of(puffin, each) for each in blobs)
    if len(found) < len(blobs):
        raise DamagedVectorError("it has several deletion vectors for one data file")
    if sum(map(len, found.values())) > len(puffin):
        raise DamagedVectorError("its deletion vectors overlap")
    return found


def _vector_of(puffin: bytes, blob: Any) -> tuple[str, memoryview]:
    if blob.compression_codec is not None:
        raise DamagedVectorError("a deletion vector is compressed")
    if not (0 <= blob.offset <= len(puffin) and 0 <= blob.length <= len(puffin) - blob.offset):
        raise DamagedVectorError("a deletion vector lies outside of the file")
    if _FILE not in blob.properties:
        raise DamagedVectorError(f"a deletion vector has no {_FILE}")
    return blob.properties[_FILE], memoryview(puffin)[blob.offset : blob.offset + blob.length]


def rows_of_vector(vector: bytes | memoryview, rows: int) -> NDArray[np.int64]:
    """Return the numbers of the deleted rows in ascending order.

    Args:
        rows: Number of rows of the data file.

    Raises:
        DamagedVectorError: The vector is damaged, deletes rows that the file does not have, or deletes more rows than
            this package supports.
    """
    nbytes = int.from_bytes(vector[:4], "big")
    body = bytes(vector[4:-4])
    if nbytes != len(body) or nbytes < _HEAD_NBYTES or not body.startswith(_MAGIC):
        raise DamagedVectorError("it is not a deletion vector, or it is cut off")
    if crc32(body) != int.from_bytes(vector[-4:], "big"):
        raise DamagedVectorError("the checksum of a deletion vector is wrong")
    found = [np.empty(0, np.int64), *_rows_of_bitmaps(body, rows)]
    return np.concatenate(found)


def _rows_of_bitmaps(body: bytes, rows: int) -> Iterator[NDArray[np.int64]]:
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
    if at != len(body):
        raise DamagedVectorError("a deletion vector has other bytes behind its bitmaps, or too many bitmaps")
