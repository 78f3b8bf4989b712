"""Check the stored sizes of the chunks of an HDF5 dataset.

The HDF5 library does not compare the size of a decoded chunk with the size that the dataset needs. It delivers other
bytes of the memory of the process in place of the missing ones, or crashes. :mod:`.hdf5_rows` checks compressed chunks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from aiostream_data.rows.records import ByteRange

GZIP: Final = 1
SHUFFLE: Final = 2
FLETCHER32: Final = 3
"""Codes of filters."""

CHECKSUM_NBYTES: Final = 4


class StoredChunk(NamedTuple):
    """A chunk in the file.

    Attributes:
        place: Range of its stored bytes.
        offset: Index of its first item on each axis of the dataset.
        filter_mask: Bit ``n`` is set if the filter number ``n`` was not applied.
    """

    place: ByteRange
    offset: tuple[int, ...]
    filter_mask: int


@dataclass(frozen=True)
class ChunkSizes:
    """Sizes that the chunks of a dataset may have.

    Attributes:
        shape: Length of each axis of the dataset.
        chunk_shape: Shape of a chunk.
        nbytes: Size of a decoded chunk in bytes.
        filters: Codes of the filters in their order.
    """

    shape: tuple[int, ...]
    chunk_shape: tuple[int, ...]
    nbytes: int
    filters: tuple[int, ...]

    @classmethod
    def of(cls, dataset: Any, item_nbytes: int) -> ChunkSizes:
        """Return the sizes of an open dataset with chunks.

        Args:
            item_nbytes: Size of a stored item in bytes.
        """
        properties = dataset.id.get_create_plist()
        filters = tuple(properties.get_filter(number)[0] for number in range(properties.get_nfilters()))
        return cls(dataset.shape, dataset.chunks, math.prod(dataset.chunks) * item_nbytes, filters)

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of chunks along each axis."""
        return tuple(-(-axis // length) for axis, length in zip(self.shape, self.chunk_shape, strict=True))

    def fit(self, chunk: StoredChunk) -> bool:
        """Return True if a chunk can have its place and stored size. Compressed chunks may have any size but 0."""
        places = zip(chunk.offset, self.chunk_shape, self.shape, strict=True)
        if any(start % length or start >= axis for start, length, axis in places):
            return False
        used = self.used_by(chunk.filter_mask)
        checksums = used.count(FLETCHER32) * CHECKSUM_NBYTES
        if set(used) <= {SHUFFLE, FLETCHER32}:
            return chunk.place.nbytes == self.nbytes + checksums or self.may_be_stored_as_is(chunk)
        return chunk.place.nbytes > checksums

    def used_by(self, filter_mask: int) -> list[int]:
        """Return the codes of the filters that were applied to a chunk, in their order."""
        return [code for number, code in enumerate(self.filters) if not filter_mask >> number & 1]

    def may_be_stored_as_is(self, chunk: StoredChunk) -> bool:
        """Return True if a chunk may have no filters: an option excludes those that reach beyond the dataset."""
        parts = zip(chunk.offset, self.chunk_shape, self.shape, strict=True)
        return chunk.place.nbytes == self.nbytes and any(start + length > axis for start, length, axis in parts)
