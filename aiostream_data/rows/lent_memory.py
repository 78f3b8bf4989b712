"""Memory that a pool lends for large arrays and ``bytes`` objects, and reuses when nobody refers to it any more."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from aiostream_data import _native

LARGE_ARRAY_NBYTES: Final = 4 << 20
"""Minimum size of an array in bytes for which new memory can take longer than filling the array.

The operating system clears new memory. ``malloc`` often returns memory of this size to the operating system when the
array is deleted.
"""


LARGE_BLOCK_NBYTES: Final = 1 << 20
"""Minimum size in bytes of a block for several arrays, or for rows of variable length, that is taken from a pool."""

LINE_NBYTES: Final = 64
"""Each array in a block begins at a multiple of this number of bytes: a line of the CPU's cache."""


class LendsMemory(Protocol):
    """Pool of memory, such as :class:`.BlockPool`."""

    def lend(self, nbytes: int) -> NDArray[np.uint8]:
        """Return an uninitialized array of ``nbytes`` bytes."""

    def lend_objects(self, sizes: Iterable[int]) -> list[_native.BytesMemory]:
        """Return uninitialized memory for ``bytes`` objects of these sizes."""


def empty_block(shape: Sequence[int], dtype: np.dtype[Any], pool: LendsMemory | None) -> NDArray[Any]:
    """Return an uninitialized array that several batches may share.

    Args:
        pool: Pool of memory for large blocks. It reuses the memory after the last view of the array is deleted.
    """
    return _empty(shape, dtype, pool, LARGE_BLOCK_NBYTES)


def empty_array(shape: Sequence[int], dtype: np.dtype[Any], pool: LendsMemory | None) -> NDArray[Any]:
    """Return an uninitialized array.

    Args:
        pool: Pool of memory for large arrays. It reuses the memory after the last view of the array is deleted.
    """
    return _empty(shape, dtype, pool, LARGE_ARRAY_NBYTES)


def _empty(shape: Sequence[int], dtype: np.dtype[Any], pool: LendsMemory | None, least_nbytes: int) -> NDArray[Any]:
    nbytes = dtype.itemsize * math.prod(shape)
    if pool is None or not nbytes or nbytes < least_nbytes or dtype.hasobject:
        return np.empty(shape, dtype)
    return pool.lend(nbytes).view(dtype).reshape(shape)


class Shape(NamedTuple):
    """Shape and type of an array."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        return self.dtype.itemsize * math.prod(self.shape)


def empty_arrays(shapes: Sequence[Shape], pool: LendsMemory | None) -> list[NDArray[Any]]:
    """Return uninitialized arrays without Python objects. Large arrays have memory of their own; others share a block.

    Args:
        pool: Pool of memory for large arrays and large blocks. It reuses the memory after the last array in it is
            deleted.
    """
    small = [each for each in shapes if each.nbytes < LARGE_ARRAY_NBYTES]
    in_block = iter(in_one_block(small, pool))
    return [
        next(in_block) if each.nbytes < LARGE_ARRAY_NBYTES else empty_array(each.shape, each.dtype, pool)
        for each in shapes
    ]


def in_one_block(shapes: Sequence[Shape], pool: LendsMemory | None) -> list[NDArray[Any]]:
    """Return uninitialized arrays in one block of memory. See :func:`empty_arrays`."""
    starts = [0]
    for each in shapes:
        starts.append(starts[-1] + -(-each.nbytes // LINE_NBYTES) * LINE_NBYTES)
    block = empty_block((starts[-1],), np.dtype(np.uint8), pool)
    return [
        block[start : start + each.nbytes].view(each.dtype).reshape(each.shape)
        for start, each in zip(starts, shapes, strict=False)
    ]


def copied_to_one_block(arrays: Sequence[NDArray[Any]], pool: LendsMemory | None) -> list[NDArray[Any]]:
    """Copy contiguous arrays to one block of memory, at once: each copy alone would wait for the GIL.

    Args:
        arrays: Arrays without Python objects.
        pool: Pool of memory for large blocks. It reuses a block after the last array in it is deleted.
    """
    return joined_in_one_block([[array] for array in arrays], pool)


def joined_in_one_block(columns: Sequence[Sequence[NDArray[Any]]], pool: LendsMemory | None) -> list[NDArray[Any]]:
    """Concatenate the arrays of each column, with one copy of all columns to one block of memory.

    Args:
        columns: For each column, contiguous arrays of one type without Python objects, with rows of one shape.
        pool: Pool of memory for large blocks. It reuses a block after the last array in it is deleted.
    """
    shapes = [Shape((sum(map(len, arrays)), *arrays[0].shape[1:]), arrays[0].dtype) for arrays in columns]
    found = in_one_block(shapes, pool)
    targets: list[NDArray[Any]] = []
    for of_column, arrays in zip(found, columns, strict=True):
        row = 0
        for array in arrays:
            targets.append(of_column[row : row + len(array)])
            row += len(array)
    _native.copy_arrays(targets, [array for arrays in columns for array in arrays])
    return found
