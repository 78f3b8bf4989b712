"""Read Arrow sources in tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from aiostream_data.rows.arrow.imported_columns import ArrowLeaf
from aiostream_data.rows.arrow.importing import ArrowChunk, read_arrow
from aiostream_data.rows.columns import column_elements


def only_chunk(source: Any) -> ArrowChunk:
    """The only chunk of a source."""
    [chunk] = read_arrow(source)
    return chunk


def only_leaf(source: Any) -> ArrowLeaf:
    """The only leaf of a source of one chunk."""
    [leaf] = only_chunk(source).leaves
    return leaf


def rows_of(leaf: ArrowLeaf) -> list[Any]:
    """The rows of a leaf; None for those that are missing."""
    rows = [row.tolist() if isinstance(row, np.ndarray) else row for row in column_elements(leaf.column)]
    return rows if leaf.valid is None else [row if valid else None for row, valid in zip(rows, leaf.valid, strict=True)]


def address(array: pa.Array, buffer: int) -> int:
    """The address of a buffer of an array."""
    found: int = array.buffers()[buffer].address
    return found
