"""Map shared memory without keeping its descriptor.

``mmap.mmap`` keeps a copy of the descriptor for as long as the mapping lives (before Python 3.13, always). A
consumer that keeps a few thousand batches would have no descriptors left.
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
    """``nbytes`` of a descriptor, shared with whoever else maps it. Unmapped when nothing looks into it any more.

    Attributes:
        retired: Set by its user when nobody will write into it again.

    Raises:
        OSError: The system does not map it.
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
        """Return an array of its own over these bytes; it and all that is cut out of it keep the mapping."""
        assert self._address is not None
        return np.asarray(_Window(self, self._address + start, stop - start))

    def __del__(self, unmap: object = _unmap) -> None:
        if self._address is not None:
            unmap(self._address, self.nbytes)  # type: ignore[operator]


class _Window:
    """What NumPy asks for the place of an array's bytes, and keeps."""

    def __init__(self, mapping: Mapping, address: int, nbytes: int) -> None:
        self.mapping = mapping
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": (nbytes,), "data": (address, False)}


def mapping_of(array: NDArray[Any]) -> Mapping | None:
    """Return the mapping that an array looks into, however often it was cut and cast; None where it is in none."""
    below: Any = array
    while isinstance(below, (np.ndarray, memoryview)):
        below = below.base if isinstance(below, np.ndarray) else below.obj
    return below.mapping if isinstance(below, _Window) else None
