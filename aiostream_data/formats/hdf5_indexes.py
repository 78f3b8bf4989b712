"""Check the headers of indexes in an HDF5 file: B-trees of version 2, extensible arrays and fixed arrays.

The HDF5 library checks the checksum of a header, but not its numbers. It divides by some of them, and loops over
others, so damaged ones end the process or keep it busy for years.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

MOST_CHUNKS: Final = 1 << 24
"""Maximum number of chunks of a dataset."""

_MASK: Final = (1 << 32) - 1
_NODE_NBYTES: Final = 10
"""Bytes of a node of a B-tree in addition to its records."""

_MOST_DEPTH: Final = 32
_CHUNK_TYPES: Final = (10, 11)
"""Types of B-trees of chunks. The library takes the records of any other one for chunks."""


class _Kind(NamedTuple):
    """A kind of header.

    Attributes:
        fields: Layout of the fields behind the signature.
        nbytes: Place of the checksum.
    """

    fields: struct.Struct
    nbytes: int


_HEAP: Final = b"GCOL"
_BTREE: Final = b"BTHD"
_EXTENSIBLE: Final = b"EAHD"
_FIXED: Final = b"FAHD"
_KINDS: Final = {
    _BTREE: _Kind(struct.Struct("<BBIHHBBQHQ"), 34),
    _EXTENSIBLE: _Kind(struct.Struct("<BBBBBBBB6QQ"), 68),
    _FIXED: _Kind(struct.Struct("<BBBBQQ"), 24),
}


def damaged_index(block: bytes | memoryview, file_nbytes: int, chunks: int | None) -> str | None:
    """Return the reason why the library must not see a block. None if it may, or if the block is no header.

    Args:
        file_nbytes: Size of the file in bytes.
        chunks: Largest number of chunks of the dataset that the library reads; None while it opens datasets.
    """
    name = bytes(block[:4])
    if name == _HEAP and block[4:5] == b"\1" and any(block[5:8]):  # hdf5_heaps would not find it
        return "a heap of strings is damaged"
    kind = _KINDS.get(name)
    if kind is None or len(block) < kind.nbytes + 4:
        return None
    found = kind.fields.unpack_from(block, 4)
    if _is_sound(name, found, file_nbytes) and (chunks is None or _is_of_chunks(name, found, chunks)):
        return None
    checksum = int.from_bytes(block[kind.nbytes : kind.nbytes + 4], "little")
    if lookup3(bytes(block[: kind.nbytes])) != checksum:
        return None  # other bytes, or damage that the library finds
    return f"the header {name.decode()} of an index is damaged"


def _is_sound(name: bytes, found: tuple[int, ...], file_nbytes: int) -> bool:
    if name == _BTREE:
        _, _, node_nbytes, record_nbytes, depth, _, _, _, records, _ = found
        room = node_nbytes - _NODE_NBYTES
        is_small = 0 < record_nbytes <= room < file_nbytes
        return is_small and records * record_nbytes <= room and depth <= _MOST_DEPTH
    if name == _FIXED:
        _, _, entry_nbytes, _, entries, _ = found
        return entry_nbytes > 0 and entries <= max(MOST_CHUNKS, file_nbytes)
    _, _, entry_nbytes, bits, in_index, in_block, pointers, page_bits = found[:8]
    largest = found[12]  # number of entries, with unused ones
    is_power = in_block & (in_block - 1) == 0 and pointers & (pointers - 1) == 0
    counts = min(entry_nbytes, in_index, in_block, pointers) > 0
    return counts and is_power and in_block.bit_length() <= bits <= 64 and page_bits <= bits and largest <= 1 << bits


def _is_of_chunks(name: bytes, found: tuple[int, ...], chunks: int) -> bool:
    """Return True if an index can be that of a dataset with so many chunks. The library does not compare them."""
    if name == _BTREE:
        return found[1] in _CHUNK_TYPES
    return name != _FIXED or found[4] >= chunks


def lookup3(data: bytes) -> int:
    """Return the checksum of a block of metadata: the hash ``lookup3`` of Bob Jenkins."""
    first = second = third = (0xDEADBEEF + len(data)) & _MASK
    at = 0
    while len(data) - at > 12:
        first, second, third = _mixed(*_added(data, at, first, second, third))
        at += 12
    if at == len(data):
        return third
    return _ended(*_added(data, at, first, second, third))


def _added(data: bytes, at: int, first: int, second: int, third: int) -> tuple[int, int, int]:
    parts = struct.unpack("<3I", data[at : at + 12].ljust(12, b"\0"))
    return (first + parts[0]) & _MASK, (second + parts[1]) & _MASK, (third + parts[2]) & _MASK


def _mixed(first: int, second: int, third: int) -> tuple[int, int, int]:
    for one, two, three in ((4, 6, 8), (16, 19, 4)):
        first = ((first - third) & _MASK) ^ _turned(third, one)
        third = (third + second) & _MASK
        second = ((second - first) & _MASK) ^ _turned(first, two)
        first = (first + third) & _MASK
        third = ((third - second) & _MASK) ^ _turned(second, three)
        second = (second + first) & _MASK
    return first, second, third


def _ended(first: int, second: int, third: int) -> int:
    target, last, after = third, second, first
    for bits in (14, 11, 25, 16, 4, 14, 24):
        target = ((target ^ last) - _turned(last, bits)) & _MASK
        target, last, after = after, target, last
    return last


def _turned(number: int, bits: int) -> int:
    return (number << bits | number >> 32 - bits) & _MASK
