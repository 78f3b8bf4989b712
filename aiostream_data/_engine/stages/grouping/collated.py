"""Run ``batch(collate=...)``: call a user function with the elements of each batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.calls.return_check import finished
from aiostream_data._engine.calls.user_code import UserFunction, call_rows
from aiostream_data._engine.failures.carried_error import PartlyDone, as_raisable
from aiostream_data._engine.stages.grouping.windows import BatchStepBase
from aiostream_data.plan.collated import CollatedBatch
from aiostream_data.rows.columns import Column, VarColumn
from aiostream_data.rows.records import Chunk, Columns, Items
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.transforms.collate import read_back_items
from aiostream_data.transforms.grouping import made_of, rows_of_groups
from aiostream_data.transforms.held_rows import HeldRows

Numbers = NDArray[np.int64]


@dataclass
class CollatedBatchStep(BatchStepBase):
    """Step of a ``CollatedBatch`` plan node: makes batches by a user function."""

    def __post_init__(self) -> None:
        super().__post_init__()
        node: CollatedBatch = self.node
        self._user = UserFunction(node.collate, self.context.services.origins.describe)

    def made(self, windows: Sequence[Numbers]) -> Chunk | None:
        """Call the function once for each batch, also if it fails on one of them."""
        return self._elements(self._rows, windows)

    def _elements(self, rows: HeldRows, windows: Sequence[Numbers]) -> Items | None:
        """Return the batches.

        Raises:
            PartlyDone: The function failed. The ``done`` attribute contains the batches before the failure.
        """
        if not windows:
            return None
        lists = _as_lists(list(rows_of_groups(rows, windows)))
        results = call_rows(self._user, lists)
        done = results.rows
        self._stacked += sum(map(len, windows[:done]))
        given = lists.slice(0, done)
        made = replace(read_back_items(results.values, given.ids), made_of=given.made_of) if done else None
        if results.failure is not None:
            raise PartlyDone(made, as_raisable(results.failure))
        assert made is not None
        for row in range(done):
            self._check_is_value(made, row)
        return made

    def _check_is_value(self, made: Items, row: int) -> None:
        try:
            finished(self._user, made.slice(row, row + 1))
        except Exception as error:
            raise PartlyDone(made.slice(0, row) if row else None, error) from error


def _as_lists(groups: Sequence[Chunk]) -> Items:
    """Return one row per group of rows: the list of its elements."""
    ids = RowIds.firsts([rows.ids for rows in groups])
    return Items([_own(rows).elements() for rows in groups], ids, None, [made_of(rows) for rows in groups])


def _own(rows: Chunk) -> Chunk:
    """Copy the rows that share memory with other rows, so that a batch keeps no larger block of memory."""
    if not isinstance(rows, Columns):
        return Items(list(rows.values), rows.ids)
    return replace(rows, leaves=tuple(map(_own_column, rows.leaves)))


def _own_column(column: Column) -> Column:
    return column.compact() if isinstance(column, VarColumn) and column.kind == "array" else column
