"""Put the rows of groups together, each group into one element."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data.rows.lineage import MadeOf
from aiostream_data.rows.records import Chunk, Columns, Items, lineage_of
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.transforms.batching import SHARED_NBYTES, Describe, batch_leaf
from aiostream_data.transforms.collate import DescribeRow, as_stackable, stack
from aiostream_data.transforms.held_rows import HeldRows

Numbers = NDArray[np.int64]
Make = Callable[[Chunk, DescribeRow], Any]
"""Makes an element of rows that nobody else has; the second argument names a row."""


def rows_of_groups(held: HeldRows, groups: Sequence[Numbers]) -> Iterator[Chunk]:
    """Yield the rows of every group, in order, as :meth:`HeldRows.take` gives them.

    Small groups are taken together, since what a native call costs is paid once for them; they then lie in
    one block of memory, of about ``SHARED_NBYTES`` at most.
    """
    start, together = 0, 1
    while start < len(groups):
        run = groups[start : start + together]
        rows = held.take(np.concatenate(run))
        if start == 0 and len(groups) > 1:
            together = max(1, SHARED_NBYTES // max(1, rows.nbytes)) if isinstance(rows, Columns) else len(groups)
        start += len(run)
        first = 0
        for group in run:
            yield rows.slice(first, first + len(group))
            first += len(group)


def stack_rows(rows: Chunk, describe: DescribeRow) -> Any:
    """Return an element whose leaves have a row per row, as ``batch`` makes them; uses the memory of the rows.

    Raises:
        BatchShapeError: Rows do not stack.
    """
    rows = as_stackable(rows)
    if isinstance(rows, Items):
        return stack(rows.values, describe)
    return rows.structure.unflatten([batch_leaf(leaf, copy=False) for leaf in rows.leaves])


def made_of(rows: Chunk) -> MadeOf:
    """Return which rows an element was made of."""
    return lineage_of(rows).as_made_of()


def as_elements(groups: Sequence[tuple[Chunk, Make]], describe: Describe) -> Items | None:
    """Return an element per group of rows, or None for no group; each has the id of its first row."""
    if not groups:
        return None
    elements = [make(rows, _describe_in(rows.ids, describe)) for rows, make in groups]
    first = RowIds.firsts([rows.ids for rows, _ in groups])
    return Items(elements, first, None, [made_of(rows) for rows, _ in groups])


def _describe_in(ids: RowIds, describe: Describe) -> DescribeRow:
    return lambda row: describe(ids, row)
