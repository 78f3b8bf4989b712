"""Conversion of the results of ``map(batched=True)`` to columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aiostream_data import BytesArray, PlanError, TextArray
from aiostream_data._engine.calls.batched_results import result_columns
from aiostream_data.rows.columns import VarColumn
from aiostream_data.rows.records import Columns
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.rows.structure import LEAF, NULLABLE

TEXTS = ["a\0", "", "\u00e4"]


def columns_of(result: Any, rows: int = 3) -> Columns:
    return result_columns(result, RowIds.run(0, 0, rows), lambda rows: rows)


@pytest.mark.parametrize("result", [TextArray.from_list(TEXTS), BytesArray.from_list([b"a\0", b"", b"\xff"])])
def test_a_column_stays_a_column_without_a_copy(result: Any) -> None:
    chunk = columns_of(result)
    [column] = chunk.leaves
    assert isinstance(column, VarColumn)
    assert np.shares_memory(column.values, result.values)
    assert chunk.structure == LEAF
    assert chunk.elements() == result.to_list()


def test_a_column_with_missing_values_gets_marks() -> None:
    texts = TextArray.from_list(["a", None, "b"])
    chunk = columns_of({"text": texts, "pair": (np.arange(3), texts[::-1])})
    assert chunk.structure.children[0] == NULLABLE
    assert chunk.structure.nullable_leaves() == [True, False, True]
    assert chunk.elements() == [
        {"text": "a", "pair": (0, "b")},
        {"text": None, "pair": (1, None)},
        {"text": "b", "pair": (2, "a")},
    ]


def test_a_part_of_a_column_stays_a_column() -> None:
    texts = TextArray.from_list([*TEXTS, None, *TEXTS])
    assert columns_of(texts[4:]).elements() == TEXTS
    assert columns_of(texts[2:5]).elements() == ["\u00e4", None, "a\0"]


def test_a_column_with_another_number_of_rows_is_refused() -> None:
    with pytest.raises(PlanError, match=r"as many rows as it received \(2\), but text has shape \(3,\)"):
        columns_of({"text": TextArray.from_list(["a", None, "b"])}, rows=2)
