"""Puffin files of Iceberg tables, which contain the deletion vectors of data files.

The library pyiceberg reads the list of the vectors. This module checks their places; see :mod:`.deletion_vectors`.
"""

from __future__ import annotations

from typing import Any, Final

from aiostream_data.dataset.deletion_vectors import DamagedVectorError

_TYPE: Final = "deletion-vector-v1"
_FILE: Final = "referenced-data-file"


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
