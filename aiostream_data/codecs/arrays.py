"""Decode arrays in the format of ``numpy.save``."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data.codecs.encoded_bytes import encoded_bytes
from aiostream_data.codecs.npy_header import parse_header
from aiostream_data.errors import DecodeError


def decode_npy(data: bytes | bytearray | memoryview) -> NDArray[Any]:
    """Decode a ``.npy`` file, as ``numpy.save`` writes it. Return a new, writable array.

    Raises:
        DecodeError: The file is damaged or truncated, or contains Python objects, which are pickles.
    """
    content = encoded_bytes(data, "a .npy file")
    try:
        header = parse_header(content)
    except ValueError as error:
        raise DecodeError(f"the .npy file cannot be decoded: {error}") from error
    shape, dtype, nbytes = header.shape, header.dtype, len(content) - header.nbytes
    if header.data_nbytes != nbytes:
        raise DecodeError(f"an array of shape {shape} and {dtype} does not match the {nbytes} bytes of data")
    try:
        array: NDArray[Any] = np.ndarray(shape, dtype, content, header.nbytes, order="F" if header.is_fortran else "C")
    except ValueError as error:  # such as the shape (0, 2**62)
        raise DecodeError(f"NumPy cannot make an array of shape {shape} and {dtype}: {error}") from error
    return array.copy("K")
