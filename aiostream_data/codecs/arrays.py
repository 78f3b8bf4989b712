"""Decode arrays in the format of ``numpy.save``."""

from __future__ import annotations

import math
from io import BytesIO
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import DecodeError
from aiostream_data.safe_url import shorten

_MAX_HEADER_NBYTES: Final = 10_000


def decode_npy(data: bytes | bytearray | memoryview) -> NDArray[Any]:
    """Decode a ``.npy`` file, as ``numpy.save`` writes it. Return a new, writable array.

    Raises:
        DecodeError: The file is damaged or truncated, or contains Python objects, which are pickles.
    """
    content = bytes(data)
    try:
        shape, is_fortran, dtype, start = _header(content)
    except DecodeError:
        raise
    except Exception as error:  # hostile headers make NumPy raise errors of many classes
        raise DecodeError(f"the header of the .npy file is damaged: {shorten(str(error))}") from error
    if dtype.hasobject:
        raise DecodeError("the array contains Python objects, which are pickles. Store numbers or text instead.")
    nbytes = len(content) - start
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != nbytes:
        raise DecodeError(f"an array of shape {shape} and {dtype} does not match the {nbytes} bytes of data")
    try:
        array: NDArray[Any] = np.ndarray(shape, dtype, content, start, order="F" if is_fortran else "C")
    except ValueError as error:  # such as the shape (0, 2**62)
        raise DecodeError(f"NumPy cannot make an array of shape {shape} and {dtype}: {error}") from error
    return array.copy("K")


def _header(data: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Return shape, order, dtype and the start of the data."""
    file = BytesIO(data)
    version = np.lib.format.read_magic(file)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in readers:
        raise DecodeError(f"version {version} of the .npy format is not supported")
    shape, is_fortran, dtype = readers[version](file, max_header_size=_MAX_HEADER_NBYTES)
    return shape, is_fortran, dtype, file.tell()
