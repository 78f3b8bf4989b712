"""Estimate the memory that a plan will probably use. The module :mod:`.element_nbytes` computes the worst case."""

from __future__ import annotations

from typing import Final

from aiostream_data.plan import operators as op
from aiostream_data.plan.base import Node, Operator, walk
from aiostream_data.plan.element_nbytes import most_nbytes, most_rows, rows_stacked
from aiostream_data.plan.sources import ReadFiles
from aiostream_data.plan.windows import Bucket, Pack

ASSUMED_NBYTES: Final = 16 << 10
"""Assumed size of a row in bytes, if the row size is unknown before reading."""

STAGE_NBYTES: Final = 2 << 20
"""Typical size in bytes of the rows in the queue after a stage, from measurements. Large elements need more."""

READING_NBYTES: Final = 128 << 20
"""Typical size in bytes of the data read ahead from files, from measurements. With a small memory limit, less data is
read ahead."""

READING_SHARE: Final = 0.75
"""Maximum fraction of the memory limit used for data read ahead from files."""


def likely_nbytes(plan: Node, memory_limit: int) -> int:
    """Estimate the peak memory of all rows, in bytes."""
    held = sum(_waiting_nbytes(node) + _held_nbytes(node, memory_limit) for node in walk(plan))
    reads = any(isinstance(node, ReadFiles) for node in walk(plan))
    reading = min(READING_NBYTES, int(memory_limit * READING_SHARE)) if reads else 0
    return min(memory_limit, held + reading)


def is_assumed(plan: Node) -> bool:
    """Return True if the memory estimate uses an assumed row size."""
    return any(most_nbytes(node) is None for node in walk(plan))


def _element_nbytes(node: Node) -> int:
    """Estimate the size in bytes of an element that a node emits.

    If the size is unknown, use the size of the node's input elements, because most functions preserve it.
    """
    known = most_nbytes(node)
    if known is not None:
        return known
    if not isinstance(node, Operator):
        return ASSUMED_NBYTES
    return _element_nbytes(node.input) * (rows_stacked(node) or 1)


def _waiting_nbytes(node: Node) -> int:
    element, rows = _element_nbytes(node), most_rows(node)
    ahead = node.buffer_size if isinstance(node, op.Prefetch) and isinstance(node.buffer_size, int) else 2
    waiting = max(STAGE_NBYTES, ahead * element)
    return waiting if rows is None else min(waiting, rows * (element + _IDS_NBYTES))


_IDS_NBYTES: Final = 32


def _held_nbytes(node: Node, memory_limit: int) -> int:
    if isinstance(node, op.Cache):
        rows = most_rows(node)
        return memory_limit if rows is None else rows * (_element_nbytes(node) + _IDS_NBYTES)
    if isinstance(node, op.Shuffle):
        return _shuffled_nbytes(node, memory_limit)
    if isinstance(node, Bucket):
        return node.rows_held * _element_nbytes(node.input)
    return node.open_bins * _element_nbytes(node.input) if isinstance(node, Pack) else 0


def _shuffled_nbytes(node: op.Shuffle, memory_limit: int) -> int:
    rows = most_rows(node)
    held = node.buffer_rows if rows is None else min(rows, node.buffer_rows)
    nbytes = held * (_element_nbytes(node) + _IDS_NBYTES)
    nbytes = min(nbytes, op.AUTO_BUFFER_NBYTES) if node.growing else nbytes
    return min(nbytes, memory_limit // 8) if node.spill else nbytes
