"""Headers of ``.npy`` files: dtype, shape and memory order, without pickles and with bounded sizes."""

from __future__ import annotations

import ast
import math
import re
from typing import Any, Final, NamedTuple

import numpy as np

MAGIC: Final = b"\x93NUMPY"
PREFIX_NBYTES: Final = 12
"""Maximum number of bytes in front of the text of a header."""

MAX_HEADER_NBYTES: Final = 1 << 16
"""Maximum size of the text of a header. Only dtypes with hundreds of fields need more than a few hundred bytes."""

_SIZES: Final = {1: 2, 2: 4, 3: 4}
"""Number of bytes of the size of the text, by version."""

_KEYS: Final = {"descr", "fortran_order", "shape"}
_LONG: Final = re.compile(r"(?<=\d)L\b")
"""Suffix of numbers in files that Python 2 wrote."""

_ITEM: Final = re.compile(r"[<>=|]?[?bBiufcmMSUV][0-9]{0,9}(\[[0-9]{0,9}[a-zA-Z]{1,2}\])?")
"""Type as headers describe it, such as ``<f4``."""

_OBJECT: Final = re.compile(r"[<>=|]?O[0-9]*")


class NpyHeader(NamedTuple):
    """Header of an array.

    Attributes:
        shape: Shape of the array.
        is_fortran: True if the first index varies fastest.
        dtype: Type of the items.
        nbytes: Size of the header. The items follow.
    """

    shape: tuple[int, ...]
    is_fortran: bool
    dtype: np.dtype[Any]
    nbytes: int

    @property
    def data_nbytes(self) -> int:
        """Size of all items."""
        return math.prod(self.shape) * self.dtype.itemsize


def header_nbytes(start: bytes) -> int:
    """Return the size of a header, from at least ``PREFIX_NBYTES`` bytes at the start of a file.

    Raises:
        ValueError: The bytes are not the start of a ``.npy`` file, or the header is too large.
    """
    if start[: len(MAGIC)] != MAGIC:
        raise ValueError("this is not a .npy file")
    if len(start) < PREFIX_NBYTES:
        raise ValueError("the header is cut short")
    version = start[6]
    if version not in _SIZES or start[7] != 0:
        raise ValueError(f"version {version}.{start[7]} of the .npy format is not supported")
    first = len(MAGIC) + 2 + _SIZES[version]
    text_nbytes = int.from_bytes(start[len(MAGIC) + 2 : first], "little")
    if text_nbytes > MAX_HEADER_NBYTES:
        raise ValueError(f"the header has {text_nbytes} bytes, more than {MAX_HEADER_NBYTES}")
    return first + text_nbytes


def parse_header(data: bytes) -> NpyHeader:
    """Parse the header at the start of a ``.npy`` file. Nothing is executed.

    Raises:
        ValueError: The header is damaged, or the array contains Python objects.
    """
    stop = header_nbytes(data)
    if stop > len(data):
        raise ValueError("the header is cut short")
    version = data[6]
    text = data[len(MAGIC) + 2 + _SIZES[version] : stop].decode("utf-8" if version >= 3 else "latin-1")
    found = _literal(text)
    if not isinstance(found, dict) or found.keys() != _KEYS:
        raise ValueError("the header is not a dict with descr, fortran_order and shape")
    shape, is_fortran = found["shape"], found["fortran_order"]
    if not isinstance(shape, tuple) or not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError(f"the shape {str(shape)[:100]} is not a tuple of lengths")
    if not isinstance(is_fortran, bool):
        raise ValueError("fortran_order is neither True nor False")
    return NpyHeader(shape, is_fortran, _dtype(found["descr"]), stop)


def _literal(text: str) -> Any:
    try:
        try:
            return ast.literal_eval(text.strip())
        except SyntaxError:
            return ast.literal_eval(_LONG.sub("", text.strip()))
    except (SyntaxError, TypeError, ValueError, MemoryError, RecursionError) as error:
        raise ValueError(f"the header cannot be parsed: {type(error).__name__}") from error


def _dtype(descr: Any) -> np.dtype[Any]:
    _check_items(descr)
    try:
        return np.lib.format.descr_to_dtype(descr)
    except (TypeError, ValueError, KeyError, IndexError, OverflowError, AttributeError, RecursionError) as error:
        raise ValueError(f"the dtype {str(descr)[:100]} is invalid: {error}") from error


def _check_items(descr: Any) -> None:
    """Check the names of types, since NumPy parses lists of types and Python literals in them."""
    if isinstance(descr, str) and _OBJECT.fullmatch(descr):
        raise ValueError("the array contains Python objects, which are pickles; store numbers or text instead")
    if isinstance(descr, tuple) and len(descr) == 2:
        _check_items(descr[0])
    elif isinstance(descr, list) and all(isinstance(field, tuple) and len(field) in (2, 3) for field in descr):
        for field in descr:
            _check_items(field[1])
    elif not isinstance(descr, str) or not _ITEM.fullmatch(descr):
        raise ValueError(f"the dtype {str(descr)[:100]} is invalid")
