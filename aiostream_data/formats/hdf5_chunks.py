"""Check the stored sizes of the chunks of an HDF5 dataset.

The HDF5 library does not compare the size of a decoded chunk with the size that the dataset needs. It delivers other
bytes of the memory of the process in place of the missing ones, or crashes. :mod:`.hdf5_rows` checks compressed chunks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

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


Numbers = NDArray[np.uint64]


class ChunkTable:
    """All chunks of a dataset, in the order of their first rows.

    Args:
        starts, sizes: Ranges of the stored bytes of the chunks.
        offsets: Index of the first item of each chunk on each axis; shape (chunks, axes).
        masks: Filter masks of the chunks; see :class:`StoredChunk`.
    """

    def __init__(self, starts: Numbers, sizes: Numbers, offsets: Numbers, masks: Numbers) -> None:
        order = np.argsort(offsets[:, 0], kind="stable")
        self._starts, self._stops = starts[order], (starts + sizes)[order]
        self._offsets, self._masks = offsets[order], masks[order]

    def count(self, first: int, stop: int) -> int:
        """Return the number of chunks whose first row is ``first`` or later, and before ``stop``."""
        start, end = self._slice(first, stop)
        return end - start

    def of(self, first: int, stop: int) -> list[StoredChunk]:
        """Return the chunks whose first row is ``first`` or later, and before ``stop``."""
        found = slice(*self._slice(first, stop))
        fields = (each[found].tolist() for each in (self._starts, self._stops, self._offsets, self._masks))
        return [
            StoredChunk(ByteRange(start, end), tuple(offset), mask)
            for start, end, offset, mask in zip(*fields, strict=True)
        ]

    def runs(self, first: int, stop: int) -> list[ByteRange]:
        """Return the ranges of the same chunks in order. Chunks that are stored behind each other share a range."""
        found = slice(*self._slice(first, stop))
        starts, stops = self._starts[found], self._stops[found]
        cuts = np.flatnonzero(starts[1:] != stops[:-1]) + 1
        return [
            ByteRange(int(some[0]), int(end[-1]))
            for some, end in zip(np.split(starts, cuts), np.split(stops, cuts), strict=True)
            if len(some)
        ]

    def _slice(self, first: int, stop: int) -> tuple[int, int]:
        start, end = np.searchsorted(self._offsets[:, 0], np.array([first, stop], np.uint64)).tolist()
        return start, end


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

    def bad_chunk(self, starts: Numbers, sizes: Numbers, offsets: Numbers, masks: Numbers, file_nbytes: int) -> int:
        """Return the number of the first chunk that cannot have its place or stored size; -1 without one.

        Compressed chunks may have any size but 0. For the other arguments, see :class:`ChunkTable`.

        Args:
            file_nbytes: Size of the file in bytes.
        """
        limit, shape, lengths = (np.array(each, np.uint64) for each in (file_nbytes, self.shape, self.chunk_shape))
        is_good = (starts <= limit) & (sizes <= limit - np.minimum(starts, limit))
        is_good &= ((offsets % lengths == 0) & (offsets < shape)).all(axis=1)
        reaches_beyond = (offsets > shape - np.minimum(lengths, shape)).any(axis=1)
        for mask in np.unique(masks).tolist():
            used = self.used_by(mask)
            checksums = used.count(FLETCHER32) * CHECKSUM_NBYTES
            if set(used) <= {SHUFFLE, FLETCHER32}:
                fits = (sizes == self.nbytes + checksums) | (reaches_beyond & (sizes == self.nbytes))
            else:
                fits = sizes > checksums
            is_good &= fits | (masks != mask)
        is_good &= self._are_first(offsets)
        return int(np.argmin(is_good)) if not is_good.all() else -1

    def _are_first(self, offsets: Numbers) -> NDArray[np.bool_]:
        """Return True for each chunk that has its place alone, or as the first one."""
        firsts = np.unique(offsets, axis=0, return_index=True)[1]
        are_first = np.zeros(len(offsets), np.bool_)
        are_first[firsts] = True
        return are_first

    def used_by(self, filter_mask: int) -> list[int]:
        """Return the codes of the filters that were applied to a chunk, in their order."""
        return [code for number, code in enumerate(self.filters) if not filter_mask >> number & 1]

    def may_be_stored_as_is(self, chunk: StoredChunk) -> bool:
        """Return True if a chunk may have no filters: an option excludes those that reach beyond the dataset."""
        parts = zip(chunk.offset, self.chunk_shape, self.shape, strict=True)
        return chunk.place.nbytes == self.nbytes and any(start + length > axis for start, length, axis in parts)
