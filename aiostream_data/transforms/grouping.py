"""Combine each group of rows into one element."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from aiostream_data.rows.columns import Column, VarColumn
from aiostream_data.rows.lineage import MadeOf
from aiostream_data.rows.records import Chunk, Columns, Items, lineage_of
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.rows.text_arrays import Strings
from aiostream_data.transforms.batch_cuts import SHARED_NBYTES
from aiostream_data.transforms.batch_leaves import batch_element
from aiostream_data.transforms.batching import Describe
from aiostream_data.transforms.collate import DescribeRow, as_stackable, stack
from aiostream_data.transforms.held_rows import HeldRows
from aiostream_data.transforms.padded_room import check_padded_strings

Numbers = NDArray[np.int64]
Make = Callable[[Chunk, DescribeRow], Any]
"""Function ``(rows, describe)`` that makes an element from rows.

The function owns the rows' memory. ``describe(row)`` returns the name of a row for error messages.
"""


def rows_of_groups(held: HeldRows, groups: Sequence[Numbers]) -> Iterator[Chunk]:
    """Yield the rows of each group, in the order of the groups, as returned by :meth:`HeldRows.take`.

    One native call gathers the rows of several small groups to reduce overhead. Groups gathered in one call share one
    memory block of about ``SHARED_NBYTES`` at most.
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


def stack_rows(rows: Chunk, describe: DescribeRow, strings: Strings = "objects", limit: int | None = None) -> Any:
    """Stack rows into one batch element, as the operator ``batch`` does.

    The batch element may share the memory of dense columns with the rows.

    Args:
        strings: Form of leaves whose rows are bytes or text.
        limit: Memory limit in bytes for the padded leaves of an element with ``strings="padded"``; None for no limit.

    Raises:
        BatchShapeError: The rows cannot be stacked.
        MemoryBudgetError: The padded leaves would exceed the limit.
    """
    rows = as_stackable(rows)
    if strings == "padded" and limit is not None:
        check_padded_strings([rows], limit, describe)
    if isinstance(rows, Items):
        return stack(rows.values, describe, strings=strings)
    if any(_would_share(leaf, strings) for leaf in rows.leaves):
        rows = replace(rows, leaves=tuple(_with_own_values(leaf, strings) for leaf in rows.leaves))
    return batch_element(rows, describe, copy=False, strings=strings)


def _would_share(column: Column, strings: Strings) -> TypeGuard[VarColumn]:
    """Return True for variable-length rows whose values a leaf would share with a chunk. Other rows are copied."""
    return isinstance(column, VarColumn) and (strings != "objects" or column.kind == "array") and column.is_packed


def _with_own_values(column: Column, strings: Strings) -> Column:
    return column.compact() if _would_share(column, strings) else column


def made_of(rows: Chunk) -> MadeOf:
    """Return the ``made_of`` (lineage) entry of an element made from these rows."""
    return lineage_of(rows).as_made_of()


def as_elements(groups: Sequence[tuple[Chunk, Make]], describe: Describe) -> Items | None:
    """Return one element per group of rows, with the id of the group's first row.

    Return None if ``groups`` is empty.
    """
    if not groups:
        return None
    elements = [make(rows, _describe_in(rows.ids, describe)) for rows, make in groups]
    first = RowIds.firsts([rows.ids for rows, _ in groups])
    return Items(elements, first, None, [made_of(rows) for rows, _ in groups])


def _describe_in(ids: RowIds, describe: Describe) -> DescribeRow:
    return lambda row: describe(ids, row)
