"""The file of one piece: what it is a piece of, a checksum for every block, and the bytes.

::

    magic, kind of checksum, block size, start, stop, key      fixed size
    checksum of each block                                     4 bytes each
    checksum of all of that                                    4 bytes
    the bytes

A read checks the blocks it touches, so that a part of a piece costs no reading of the rest.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable
from typing import Final

from aiostream_data import _native
from aiostream_data.storage.cache.spans import ByteSpan

BLOCK_NBYTES: Final = 256 << 10
GRAIN_NBYTES: Final = 4096
"""Files take room in multiples of this."""

_HEAD = struct.Struct("<8sIIQQ20s")
_MAGIC = b"asdpiece"
_CHECKSUMS: dict[int, Callable[[memoryview], int]] = {1: _native.crc32c, 2: zlib.crc32}
_KIND = 1 if _native.HAVE_NATIVE else 2
"""CRC-32C is the quicker one where the CPU computes it, and much the slower where Python does."""


class DamagedPieceError(Exception):
    """A piece is not what was written: cut short, of another object, or with other bytes. Never leaves the cache."""


def disk_nbytes(span: ByteSpan) -> int:
    """Return the room that the file of a piece takes."""
    return -(-(_head_nbytes(span) + span.nbytes) // GRAIN_NBYTES) * GRAIN_NBYTES


def head_of(key: str, span: ByteSpan, data: memoryview) -> bytes:
    """Return what stands in the file before ``data``, which are the bytes of ``span``."""
    checksum = _CHECKSUMS[_KIND]
    fixed = _HEAD.pack(_MAGIC, _KIND, BLOCK_NBYTES, span.start, span.stop, bytes.fromhex(key))
    blocks = (checksum(data[at : at + BLOCK_NBYTES]) for at in range(0, len(data), BLOCK_NBYTES))
    said = fixed + b"".join(value.to_bytes(4, "little") for value in blocks)
    return said + checksum(memoryview(said)).to_bytes(4, "little")


def read_piece(file: int, key: str, piece: ByteSpan, wanted: ByteSpan, into: memoryview) -> None:
    """Fill ``into`` with the bytes ``wanted`` of the object from the open file of a piece that holds them.

    Raises:
        DamagedPieceError: Something does not fit; what is in ``into`` then means nothing.
        OSError: Reading failed.
    """
    size = _head_nbytes(piece)
    if os.fstat(file).st_size != size + piece.nbytes:
        raise DamagedPieceError("cut short")
    checksum, table = _checked_head(os.pread(file, size, 0), key, piece)
    first = (wanted.start - piece.start) // BLOCK_NBYTES
    left = first * BLOCK_NBYTES
    right = min(-(-(wanted.stop - piece.start) // BLOCK_NBYTES) * BLOCK_NBYTES, piece.nbytes)
    exact = (left, right) == (wanted.start - piece.start, wanted.stop - piece.start)
    blocks = into if exact else memoryview(bytearray(right - left))
    _read_fully(file, size + left, blocks)
    for number, at in enumerate(range(0, len(blocks), BLOCK_NBYTES), first):
        if checksum(blocks[at : at + BLOCK_NBYTES]) != int.from_bytes(table[4 * number : 4 * number + 4], "little"):
            raise DamagedPieceError(f"block {number} is damaged")
    if not exact:
        skipped = wanted.start - piece.start - left
        into[:] = blocks[skipped : skipped + wanted.nbytes]


def _head_nbytes(span: ByteSpan) -> int:
    return _HEAD.size + 4 * -(-span.nbytes // BLOCK_NBYTES) + 4


def _checked_head(head: bytes, key: str, piece: ByteSpan) -> tuple[Callable[[memoryview], int], bytes]:
    if len(head) < _HEAD.size:
        raise DamagedPieceError("cut short")
    magic, kind, block, *rest = _HEAD.unpack_from(head)
    checksum = _CHECKSUMS.get(kind)
    if magic != _MAGIC or checksum is None or block != BLOCK_NBYTES:
        raise DamagedPieceError("not a piece")
    if checksum(memoryview(head)[:-4]) != int.from_bytes(head[-4:], "little"):
        raise DamagedPieceError("its head is damaged")
    if rest != [piece.start, piece.stop, bytes.fromhex(key)]:
        raise DamagedPieceError("a piece of something else")
    return checksum, head[_HEAD.size : -4]


def _read_fully(file: int, at: int, into: memoryview) -> None:
    done = 0
    while done < len(into):
        count = os.preadv(file, [into[done:]], at + done)
        if count == 0:
            raise DamagedPieceError("cut short")
        done += count
