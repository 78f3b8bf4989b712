"""Map shared memory without keeping a file descriptor open.

A ``mmap.mmap`` object keeps a copy of the file descriptor open while the mapping exists. Before Python 3.13, this
cannot be disabled. With ``mmap.mmap``, a consumer that keeps a few thousand batches would run out of file descriptors.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import SharedMemoryError

_libc = ctypes.CDLL(None, use_errno=True)
_map, _unmap = _libc.mmap, _libc.munmap
_map.restype = ctypes.c_void_p
_map.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *([ctypes.c_int] * 3), ctypes.c_long]
_unmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_FAILED = ctypes.c_void_p(-1).value


class Mapping:
    """A shared memory mapping of the first ``nbytes`` bytes of a file descriptor.

    The memory is unmapped when no array refers to it.

    Attributes:
        retired: True if no process will write into the mapping again. The owner of the mapping sets this attribute.

    Raises:
        OSError: The system could not map the memory.
    """

    def __init__(self, descriptor: int, nbytes: int) -> None:
        self.nbytes = nbytes
        self.retired = False
        self._address: int | None = None
        address = _map(None, nbytes, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, descriptor, 0)
        if address == _FAILED:
            number = ctypes.get_errno()
            raise SharedMemoryError(
                f"{nbytes:,} bytes of shared memory cannot be mapped: {os.strerror(number)}", number
            )
        self._address = address

    def view(self, start: int, stop: int) -> NDArray[np.uint8]:
        """Return bytes ``start`` to ``stop`` of the mapping as a new array.

        The array and its views keep the mapping alive.
        """
        assert self._address is not None
        return np.asarray(_Window(self, self._address + start, stop - start))

    def __del__(self, unmap: object = _unmap) -> None:
        if self._address is not None:
            unmap(self._address, self.nbytes)  # type: ignore[operator]


class _Window:
    """Array interface for one part of a memory mapping.

    NumPy arrays made from this interface keep the mapping alive.
    """

    def __init__(self, mapping: Mapping, address: int, nbytes: int) -> None:
        self.mapping = mapping
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": (nbytes,), "data": (address, False)}


def mapping_of(array: NDArray[Any]) -> Mapping | None:
    """Return the memory mapping that an array refers to, directly or through views and casts, or None."""
    below: Any = array
    while isinstance(below, (np.ndarray, memoryview)):
        below = below.base if isinstance(below, np.ndarray) else below.obj
    return below.mapping if isinstance(below, _Window) else None
