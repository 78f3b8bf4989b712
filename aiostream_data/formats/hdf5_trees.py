"""Find the nodes of a B-tree of version 1, which lists the chunks of a dataset in most HDF5 files.

The library asks for one node after the other, which would take a request per node. So all nodes below the known ones
are found here, and requested together.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np

from aiostream_data.rows.records import ByteRange

_HEAD: Final = struct.Struct("<4sBBHQQ")
"""Signature, type, level, number of children, and the places of the nodes beside it."""

_SIGNATURE: Final = b"TREE"
_OF_CHUNKS: Final = 1
_ADDRESS_NBYTES: Final = 8


class TreeNode(NamedTuple):
    """A node of a tree of chunks. All nodes of a tree have the same size.

    Attributes:
        place: Its range in the file.
        axes: Number of axes of the dataset.
    """

    place: ByteRange
    axes: int


def is_node(block: bytes | memoryview) -> bool:
    """Return True if a block can be a node of a tree of chunks."""
    return len(block) >= _HEAD.size and bytes(block[:4]) == _SIGNATURE and block[4] == _OF_CHUNKS


def unknown_nodes(
    known: Iterable[TreeNode], content: Callable[[ByteRange], memoryview], file_nbytes: int
) -> dict[int, ByteRange]:
    """Return the nodes below known nodes that are not known themselves, by their first byte.

    Args:
        content: Function that returns the bytes of a range; empty if they are not known.
        file_nbytes: Size of the file in bytes. Places outside of it, in damaged nodes, are left out.
    """
    left, seen, unknown = list(known), set[int](), dict[int, ByteRange]()
    while left:
        place, axes = left.pop()
        for start in _children(content(place), axes):
            below = ByteRange(start, start + place.nbytes)
            if start in seen or below.stop > file_nbytes:
                continue
            seen.add(start)
            if content(below):
                left.append(TreeNode(below, axes))
            else:
                unknown[start] = below
    return unknown


def _children(node: memoryview, axes: int) -> Iterator[int]:
    """Yield the places of the nodes below a node. A node of the lowest level has chunks in place of nodes."""
    if not is_node(node):
        return
    _, _, level, count, _, _ = _HEAD.unpack_from(node)
    key_nbytes = 8 + 8 * (axes + 1)  # size and filters of a chunk, and the index of its first byte
    entry_nbytes = key_nbytes + _ADDRESS_NBYTES
    if level == 0 or _HEAD.size + count * entry_nbytes > len(node):
        return
    entries = np.frombuffer(node, np.uint8, count * entry_nbytes, _HEAD.size).reshape(count, entry_nbytes)
    yield from np.ascontiguousarray(entries[:, key_nbytes:]).view("<u8").ravel().tolist()
