"""Decompress many complete small objects into one array.

Only sound objects of limited size are decompressed here. All others are left to a :class:`.RecordStream`, which names
the damage, and which decompresses a long stream in steps. So a small object that decompresses to gigabytes takes no
more memory than any other object.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from aiostream_data.codecs.compression import Compression, Decompressors
from aiostream_data.codecs.deflate import WINDOW_BITS, sound_stream
from aiostream_data.errors import CorruptRecordError, MissingExtraError
from aiostream_data.formats.small_objects import Bytes, Indices, Mask, ObjectKinds

_GZIP_SIZE_NBYTES = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class UnpackLimits:
    """Limits of one call of :func:`unpack`.

    Attributes:
        nbytes: Number of bytes after which no further object is added.
        object_nbytes: Maximum decompressed size of an object, in bytes. Larger objects are left out.
        window_nbytes: Maximum memory of a decompressor, in bytes. Objects that need more are left out.
    """

    nbytes: int
    object_nbytes: int
    window_nbytes: int


class Unpacked(NamedTuple):
    """Uncompressed bytes of the first objects of a group.

    Attributes:
        values: Bytes of all objects, uint8.
        bounds: Object i is ``values[bounds[i]:bounds[i + 1]]``; int64.
        is_ready: Mask of the objects that are in ``values``. The other objects take no bytes.
    """

    values: Bytes
    bounds: Indices
    is_ready: Mask


def unpack(
    values: Bytes, bounds: Indices, kinds: ObjectKinds, limits: UnpackLimits, lend: Callable[[int], Bytes]
) -> Unpacked:
    """Decompress the objects ``values[bounds[i]:bounds[i + 1]]`` in order, and copy uncompressed objects.

    Args:
        lend: Function that returns a memory buffer of the given size.

    Returns:
        The first objects, at least one: all objects, or as many as reach ``limits.nbytes``. At most, they take this
        number of bytes and one object more.
    """
    streams = Decompressors()
    parts: list[bytes | memoryview | None] = []
    nbytes = 0
    for number in range(len(bounds) - 1):
        if parts and nbytes >= limits.nbytes:
            break
        part: bytes | memoryview | None = None
        data = values[bounds[number] : bounds[number + 1]].data
        if number in kinds.compressed:
            part = _decompressed(streams, kinds.compressed[number], data, limits)
        elif kinds.is_plain[number]:
            part = data
        parts.append(part)
        nbytes += 0 if part is None else len(part)
    return _joined(parts, lend)


def _joined(parts: list[bytes | memoryview | None], lend: Callable[[int], Bytes]) -> Unpacked:
    lengths = [0 if part is None else len(part) for part in parts]
    bounds = np.cumsum([0, *lengths], dtype=np.int64)
    values = lend(int(bounds[-1]))
    target = values.data
    for start, part in zip(bounds.tolist(), parts, strict=False):
        if part:
            target[start : start + len(part)] = part
    return Unpacked(values, bounds, np.array([part is not None for part in parts]))


def _decompressed(
    streams: Decompressors, compression: Compression, data: memoryview, limits: UnpackLimits
) -> bytes | None:
    """Return the decompressed bytes of an object; None if it is damaged, or needs more memory than the limits allow."""
    if compression == "gzip" and int.from_bytes(data[-_GZIP_SIZE_NBYTES:], "little") > limits.object_nbytes:
        return None  # decompressing such an object up to the limit would be wasted
    if compression in WINDOW_BITS and (found := sound_stream(compression, data, limits.object_nbytes)) is not None:
        return found
    pieces: list[bytes] = []
    nbytes = 0
    try:
        stream = streams.begin(compression, "")
        for piece in stream.feed(data):
            nbytes += len(piece)
            if nbytes > limits.object_nbytes or stream.held_nbytes > limits.window_nbytes:
                return None
            pieces.append(piece)
        stream.finish()
    except (CorruptRecordError, MissingExtraError):
        return None
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
