"""Estimate the size of the largest row of a chunk."""

from __future__ import annotations

import math

import numpy as np

from aiostream_data.rows.columns import VarColumn
from aiostream_data.rows.records import Chunk, Items


def largest_row_nbytes(chunk: Chunk) -> int:
    """Estimate the size in bytes of the chunk's largest row."""
    if isinstance(chunk, Items):
        return int(chunk.known_sizes.max(initial=0))
    each = np.zeros(len(chunk), np.int64)
    for leaf in chunk.leaves:
        if isinstance(leaf, VarColumn):
            each += leaf.lengths * (leaf.dtype.itemsize * math.prod(leaf.item_shape))
        else:
            each += leaf.itemsize * math.prod(leaf.shape[1:])
    return int(each.max(initial=0))
