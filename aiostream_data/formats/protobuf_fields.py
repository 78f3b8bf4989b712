"""Read the fields of small messages of protocol buffers. All lengths are checked before use."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from aiostream_data.formats.varints import DAMAGED, Numbers, varints_at

_VARINT: Final = 0
_BYTES: Final = 2
_FIXED_NBYTES: Final = {1: 8, 5: 4}


def fields_of(message: bytes) -> dict[int, int | bytes] | None:
    """Return the last value of each field by its number: integers and bytes. Fields of fixed size are left out.

    Return None for a damaged message.
    """
    values = np.frombuffer(message, np.uint8)
    found: dict[int, int | bytes] = {}
    at = 0
    while at < len(message):
        tag, at = _varint(values, at)
        kind = tag & 7
        if tag == DAMAGED:
            return None
        if kind in _FIXED_NBYTES:
            at += _FIXED_NBYTES[kind]
        elif kind in (_VARINT, _BYTES):
            number, at = _varint(values, at)
            stop = at + number if kind == _BYTES else at
            if number == DAMAGED or stop > len(message):
                return None
            found[tag >> 3] = message[at:stop] if kind == _BYTES else number
            at = stop
        else:
            return None
    return found if at == len(message) else None


def _varint(values: NDArray[np.uint8], at: int) -> tuple[int, int]:
    numbers, ends = varints_at(values, np.array([at]), np.array([len(values)]))
    return int(numbers[0]), int(ends[0])


def integer_fields(values: NDArray[np.uint8], starts: Numbers, lengths: Numbers, count: int) -> Numbers | None:
    """Return the integers of many messages whose fields 1 to ``count`` are integers, each at most once.

    Args:
        values: Bytes with the messages.
        starts, lengths: Place of each message, int64.
        count: Maximum number of fields; at most 15.

    Returns:
        One row per message and one column per field, int64, with 0 for absent fields. None if a message is damaged.
    """
    found = np.zeros((len(starts), count), np.int64)
    stops = starts + lengths
    at = starts.copy()
    for _ in range(count):
        rows = np.flatnonzero(at < stops)
        if not len(rows):
            break
        tags = values[at[rows]]
        fields = (tags >> 3).astype(np.int64)
        numbers, at[rows] = varints_at(values, at[rows] + 1, stops[rows])
        if bool(((tags & 7 != _VARINT) | (fields < 1) | (fields > count) | (numbers == DAMAGED)).any()):
            return None
        found[rows, fields - 1] = numbers
    return found if bool((at == stops).all()) else None
