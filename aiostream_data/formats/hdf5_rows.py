"""Decode rows of plain numbers of an HDF5 dataset without the HDF5 library, and check the sizes of gzip chunks.

The library reads and decompresses one chunk at a time in the whole process, and copies contiguous rows twice. So this
module decodes plain numbers itself: contiguous rows without a copy, and chunks without the lock of the library.

The library does not compare the size of a decompressed chunk with the size that the dataset needs. It delivers other
bytes of the memory of the process in place of the missing ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import starmap
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from aiostream_data.codecs.deflate import deflate_library
from aiostream_data.errors import CorruptRecordError
from aiostream_data.formats.hdf5_arrays import STRING_NBYTES, Hdf5Array
from aiostream_data.formats.hdf5_chunks import CHECKSUM_NBYTES, FLETCHER32, GZIP, SHUFFLE, ChunkSizes, StoredChunk
from aiostream_data.formats.hdf5_heaps import check_lengths
from aiostream_data.rows.records import ByteRange

_PLAIN: Final = {(), (GZIP,), (SHUFFLE, GZIP)}
"""Chains of filters, in the order in which they are applied, whose chunks of numbers this module decodes."""

_CHECKED: Final = {(GZIP,), (SHUFFLE, GZIP), (GZIP, FLETCHER32), (SHUFFLE, GZIP, FLETCHER32)}
"""Chains of filters whose chunks this module checks if the library decodes them."""

Bytes = NDArray[np.uint8]
Content = Callable[[ByteRange], memoryview]
"""Function that returns the bytes of a range of the file."""


def plain_rows(array: Hdf5Array, first: int, stop: int, content: Content) -> NDArray[Any] | None:
    """Decode the rows ``first`` to ``stop`` of a dataset. Return None if the library must decode them.

    Contiguous rows refer to the memory of ``content``. The sizes of gzip chunks are also checked if None is returned.
    Chunks with other filters than :data:`_CHECKED` are not checked.

    Raises:
        CorruptRecordError: A chunk cannot be decompressed, or has a wrong size.
    """
    sizes = array.chunk_sizes
    if sizes is None:
        return _stored_rows(array, first, stop, content) if array.has_plain_numbers else None
    is_decoded = array.has_plain_numbers and sizes.filters in _PLAIN and array.has_all_chunks(first, stop)
    if is_decoded and array.has_chunks_of_rows:
        return _stored_rows(array, first, stop, content)
    if not is_decoded and sizes.filters not in _CHECKED:
        return None
    rows = np.zeros((stop - first, *array.shape[1:]), array.dtype) if is_decoded else None
    for chunk in array.chunks_of(first, stop):
        if not _decode(array, sizes, chunk, content(chunk.place), rows, first):
            rows = None
    return rows


def _stored_rows(array: Hdf5Array, first: int, stop: int, content: Content) -> NDArray[Any] | None:
    """Return rows that are stored one after the other, without a copy if they are aligned and in one range.

    Return None for rows without bytes, and for rows that were never written. The directory has checked that all rows
    lie inside of the file.
    """
    parts = [np.frombuffer(content(place), np.uint8) for place in array.ranges(first, stop) if place.nbytes]
    if not parts:
        return None
    stored = parts[0] if len(parts) == 1 else np.concatenate(parts)
    start = first % array.chunk_rows  # the first chunk can begin with earlier rows
    rows = stored.view(array.dtype).reshape(-1, *array.shape[1:])[start : start + stop - first]
    return rows if rows.flags.aligned else rows.copy()


def _decode(
    array: Hdf5Array, sizes: ChunkSizes, chunk: StoredChunk, stored: memoryview, rows: NDArray[Any] | None, first: int
) -> bool:
    """Check a chunk, and copy its items to ``rows`` if they are given. Return False if only the library can read it."""
    data = _inflated(array, sizes, chunk, stored)
    if data is None:
        return False
    if rows is not None:
        items = _unshuffled(data, sizes, chunk, array.dtype.itemsize).view(array.dtype).reshape(sizes.chunk_shape)
        _copy(items, chunk.offset, rows, first)
    elif array.is_indirect:
        lengths = _unshuffled(data, sizes, chunk, STRING_NBYTES)
        check_lengths(array.url, chunk.place.start, lengths, array.file_nbytes)
    return True


def _inflated(array: Hdf5Array, sizes: ChunkSizes, chunk: StoredChunk, stored: memoryview) -> Bytes | None:
    """Return the bytes of a chunk after decompression, still shuffled. Return None if it may not be compressed.

    A chunk that was stored without compression is no zlib stream, except by a chance of about one in four billion.
    """
    used = sizes.used_by(chunk.filter_mask)
    if FLETCHER32 in used:
        stored = stored[: max(0, len(stored) - CHECKSUM_NBYTES)]
    if GZIP not in used:
        found: bytes | memoryview = stored
    else:
        library = deflate_library()
        stream = library.decompressobj()
        may_be_plain = sizes.may_be_stored_as_is(chunk)
        try:
            found = stream.decompress(stored, sizes.nbytes + 1)
        except library.error as error:
            if may_be_plain:
                return None
            raise _damaged(array, chunk, str(error)) from None
        if not stream.eof:
            if may_be_plain and len(found) <= sizes.nbytes:
                return None
            raise _damaged(array, chunk, "it is incomplete or too long")
    if len(found) != sizes.nbytes:
        raise _damaged(array, chunk, f"it has {len(found)} instead of {sizes.nbytes} bytes")
    return np.frombuffer(found, np.uint8)


def _unshuffled(data: Bytes, sizes: ChunkSizes, chunk: StoredChunk, item_nbytes: int) -> Bytes:
    if SHUFFLE not in sizes.used_by(chunk.filter_mask) or item_nbytes == 1:
        return data
    return np.ascontiguousarray(data.reshape(item_nbytes, -1).T).ravel()


def _damaged(array: Hdf5Array, chunk: StoredChunk, reason: str) -> CorruptRecordError:
    return CorruptRecordError(array.url, chunk.place.start, f"a gzip chunk of {array.name!r} is damaged: {reason}")


def _copy(items: NDArray[Any], offset: Sequence[int], rows: NDArray[Any], first: int) -> None:
    """Copy the items of a chunk to their place in ``rows``, which begin with the row ``first`` of the dataset."""
    starts = (offset[0] - first, *offset[1:])
    wanted = tuple(starmap(_overlap, zip(starts, items.shape, rows.shape, strict=True)))
    target = tuple(slice(start + part.start, start + part.stop) for start, part in zip(starts, wanted, strict=True))
    rows[target] = items[wanted]


def _overlap(start: int, length: int, total: int) -> slice:
    """Return the part of an axis of a chunk that lies within an axis of ``total`` items. It begins at ``start``."""
    return slice(max(0, -start), max(0, min(length, total - start)))
