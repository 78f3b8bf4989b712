"""File format of one piece: a header that identifies the piece, a checksum for every block, and the data.

A piece file consists of:

- a header of fixed size: magic bytes, checksum algorithm, block size, start, stop and cache key
- a checksum of each block of data, 4 bytes each
- a checksum of the header and of the block checksums, 4 bytes
- the data.

Reading part of a piece reads and verifies only the blocks of this part.
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
"""Unit of disk space in bytes: the size of a file is rounded up to a multiple of this unit."""

_HEAD = struct.Struct("<8sIIQQ20s")
_MAGIC = b"asdpiece"
_CHECKSUMS: dict[int, Callable[[memoryview], int]] = {1: _native.crc32c, 2: zlib.crc32}
_KIND = 1 if _native.HAVE_NATIVE else 2
"""Checksum algorithm for new pieces: CRC-32C if the native core is built, else zlib's CRC-32, which is faster."""


class DamagedPieceError(Exception):
    """Error for a piece file that is truncated, corrupt, or belongs to another object. The cache handles this error."""


def disk_nbytes(span: ByteSpan) -> int:
    """Return the disk space of a piece file in bytes, rounded up to ``GRAIN_NBYTES``."""
    return -(-(_head_nbytes(span) + span.nbytes) // GRAIN_NBYTES) * GRAIN_NBYTES


def head_of(key: str, span: ByteSpan, data: memoryview) -> bytes:
    """Build the header of a piece file that stores the byte range ``span`` of an object."""
    checksum = _CHECKSUMS[_KIND]
    fixed = _HEAD.pack(_MAGIC, _KIND, BLOCK_NBYTES, span.start, span.stop, bytes.fromhex(key))
    blocks = (checksum(data[at : at + BLOCK_NBYTES]) for at in range(0, len(data), BLOCK_NBYTES))
    said = fixed + b"".join(value.to_bytes(4, "little") for value in blocks)
    return said + checksum(memoryview(said)).to_bytes(4, "little")


def read_piece(file: int, key: str, piece: ByteSpan, wanted: ByteSpan, into: memoryview) -> None:
    """Copy the byte range ``wanted`` from an open piece file to the buffer ``into``, and verify the checksums.

    Raises:
        DamagedPieceError: The header, length or a checksum is wrong. After this error, the content of ``into`` is
            undefined.
        OSError: Reading failed.
    """
    size = _head_nbytes(piece)
    if os.fstat(file).st_size != size + piece.nbytes:
        raise DamagedPieceError("truncated")
    checksum, table = _checked_head(os.pread(file, size, 0), key, piece)
    first = (wanted.start - piece.start) // BLOCK_NBYTES
    left = first * BLOCK_NBYTES
    right = min(-(-(wanted.stop - piece.start) // BLOCK_NBYTES) * BLOCK_NBYTES, piece.nbytes)
    exact = (left, right) == (wanted.start - piece.start, wanted.stop - piece.start)
    blocks = into if exact else memoryview(bytearray(right - left))
    _read_fully(file, size + left, blocks)
    for number, at in enumerate(range(0, len(blocks), BLOCK_NBYTES), first):
        if checksum(blocks[at : at + BLOCK_NBYTES]) != int.from_bytes(table[4 * number : 4 * number + 4], "little"):
            raise DamagedPieceError(f"wrong checksum of block {number}")
    if not exact:
        skipped = wanted.start - piece.start - left
        into[:] = blocks[skipped : skipped + wanted.nbytes]


def _head_nbytes(span: ByteSpan) -> int:
    return _HEAD.size + 4 * -(-span.nbytes // BLOCK_NBYTES) + 4


def _checked_head(head: bytes, key: str, piece: ByteSpan) -> tuple[Callable[[memoryview], int], bytes]:
    if len(head) < _HEAD.size:
        raise DamagedPieceError("truncated")
    magic, kind, block, *rest = _HEAD.unpack_from(head)
    checksum = _CHECKSUMS.get(kind)
    if magic != _MAGIC or checksum is None or block != BLOCK_NBYTES:
        raise DamagedPieceError("no piece header")
    if checksum(memoryview(head)[:-4]) != int.from_bytes(head[-4:], "little"):
        raise DamagedPieceError("wrong checksum of the header")
    if rest != [piece.start, piece.stop, bytes.fromhex(key)]:
        raise DamagedPieceError("header of another piece")
    return checksum, head[_HEAD.size : -4]


def _read_fully(file: int, at: int, into: memoryview) -> None:
    done = 0
    while done < len(into):
        count = os.preadv(file, [into[done:]], at + done)
        if count == 0:
            raise DamagedPieceError("truncated")
        done += count
