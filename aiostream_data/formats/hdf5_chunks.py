"""Check the stored sizes of the chunks of an HDF5 dataset.

The HDF5 library does not compare the size of a decoded chunk with the size that the dataset needs. It delivers other
bytes of the memory of the process in place of the missing ones, or crashes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

_SHUFFLE: Final = 2
_FLETCHER32: Final = 3
_CHECKSUM_NBYTES: Final = 4


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

    def fit(self, chunk: Any) -> bool:
        """Return True if a chunk can have its stored size. The size of compressed chunks is only compared with 0."""
        used = [code for number, code in enumerate(self.filters) if not chunk.filter_mask >> number & 1]
        checksums = used.count(_FLETCHER32) * _CHECKSUM_NBYTES
        if set(used) <= {_SHUFFLE, _FLETCHER32}:
            return chunk.size == self.nbytes + checksums or (chunk.size == self.nbytes and self._is_at_an_end(chunk))
        return bool(chunk.size > checksums)

    def _is_at_an_end(self, chunk: Any) -> bool:
        """Return True if a chunk is larger than the rest of the dataset. An option excludes it from filters."""
        parts = zip(chunk.chunk_offset, self.chunk_shape, self.shape, strict=True)
        return any(start + length > axis for start, length, axis in parts)
