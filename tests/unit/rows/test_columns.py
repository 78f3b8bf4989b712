"""A column of separate bytes objects gives what a column with one array gives, without copies. Columns have sizes."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiostream_data._engine.memory.buffers import BlockPool
from aiostream_data.rows.columns import (
    LARGE_ROW_NBYTES,
    SeparateBytes,
    VarColumn,
    column_nbytes,
    concat_column,
    gather_column,
)
from aiostream_data.rows.largest_row import largest_row_nbytes
from aiostream_data.rows.records import Columns, concat, gather, records_chunk
from aiostream_data.rows.row_ids import RowIds

ROWS = [b"abc", b"", b"x" * 1000, b"abc", b"de"]


def in_one_array(rows: list[bytes]) -> VarColumn:
    lengths = np.array([len(row) for row in rows], np.int64)
    return VarColumn(np.frombuffer(b"".join(rows), np.uint8), np.cumsum(lengths) - lengths, lengths)


def chunk(column: VarColumn, first: int = 0) -> Columns:
    return records_chunk(
        column, RowIds.of_source(np.zeros(len(column), np.int64), np.arange(first, first + len(column)))
    )


SAME: list[Callable[[VarColumn], Any]] = [
    len,
    VarColumn.elements,
    lambda column: column.slice(1, 4).elements(),
    lambda column: column.slice(2, 2).elements(),
    lambda column: column.take(np.arange(len(column))[::-2]).elements(),
    lambda column: column.compact().elements(),
    lambda column: column.packed_values().tobytes(),
    lambda column: column.slice(1, 4).packed_values().tobytes(),
    lambda column: [column.element(row) for row in range(len(column))],
    lambda column: (column.nbytes, column.kind, column.dtype, column.item_shape),
    lambda column: (column.values.tobytes(), column.starts.tolist(), column.lengths.tolist()),
    lambda column: pickle.loads(pickle.dumps(column)).elements(),
    lambda column: largest_row_nbytes(chunk(column)),
]


@pytest.mark.parametrize("rows", [ROWS, ROWS[:1], []])
@pytest.mark.parametrize("of", SAME)
def test_every_method_gives_the_same(of: Callable[[VarColumn], Any], rows: list[bytes]) -> None:
    assert of(SeparateBytes(rows)) == of(in_one_array(rows))


def test_packed_values_are_copied_only_if_the_rows_are_not_packed() -> None:
    column = in_one_array(ROWS)
    assert np.shares_memory(column.slice(2, 5).packed_values(), column.values)
    for rows in ([0, 0, 2], [4, 2], [3, 2]):
        picked = column.take(np.array(rows))
        assert picked.packed_values().tobytes() == b"".join(ROWS[row] for row in rows)
        assert not np.shares_memory(picked.packed_values(), column.values)


def test_a_column_is_packed_if_its_values_are_its_rows_in_order() -> None:
    column = in_one_array(ROWS)
    assert column.is_packed
    assert in_one_array([]).is_packed
    for rows in ([0, 1], [1, 2, 3, 4], [0, 1, 2, 4, 3], []):
        assert not column.take(np.array(rows, np.int64)).is_packed


def test_joined_columns_are_packed() -> None:
    column = in_one_array(ROWS)
    parts = [column.take(np.array([3, 0])), SeparateBytes(ROWS[:3]), column.slice(4, 5), SeparateBytes([])]
    joined = concat_column(parts)
    assert isinstance(joined, VarColumn)
    assert joined.is_packed
    assert joined.values.tobytes() == b"".join([ROWS[3], ROWS[0], *ROWS[:3], ROWS[4]])


def test_slices_and_selections_contain_the_same_objects() -> None:
    column = SeparateBytes(ROWS)
    assert column.elements() is ROWS
    assert column.slice(2, 3).elements()[0] is ROWS[2]
    assert column.take(np.array([2])).elements()[0] is ROWS[2]
    both = concat([chunk(column), chunk(column.slice(2, 3), 5)])
    assert [row is ROWS[2] for row in both.elements()] == [False, False, True, False, False, True]
    picked = gather([chunk(column), chunk(column)], np.array([1, 0], np.int32), np.array([2, 0]))
    assert picked.elements()[0] is ROWS[2]


@pytest.mark.parametrize("first", [SeparateBytes, in_one_array])
@pytest.mark.parametrize("second", [SeparateBytes, in_one_array])
def test_columns_of_both_kinds_are_joined_and_gathered(first: Any, second: Any) -> None:
    columns = [first(ROWS), second(ROWS[::-1])]
    joined = concat_column(columns)
    assert isinstance(joined, VarColumn)
    assert joined.elements() == ROWS + ROWS[::-1]
    which, rows = np.array([0, 1, 1, 0], np.int32), np.array([2, 0, 2, 4])
    found = gather([chunk(column) for column in columns], which, rows)
    assert isinstance(found, Columns)
    assert found.elements() == [ROWS[2], ROWS[4], ROWS[2], ROWS[4]]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), min_size=1, max_size=12))
def test_large_rows_are_gathered_into_objects_of_their_own(choices: list[tuple[int, int]]) -> None:
    rows = [[bytes([10 * source + row]) * (LARGE_ROW_NBYTES + source + row) for row in range(4)] for source in range(3)]
    columns = [in_one_array(each) for each in rows]
    which = np.array([source for source, _ in choices], np.int32)
    wanted = np.array([row for _, row in choices], np.int64)
    found = gather_column(columns, which, wanted, BlockPool(0))
    assert isinstance(found, SeparateBytes)
    assert found.elements() == [rows[source][row] for source, row in choices]
    assert not isinstance(gather_column(columns, which, wanted), SeparateBytes)


def test_small_rows_are_gathered_into_one_block() -> None:
    column = in_one_array([b"small", b"row"])
    found = gather_column([column], np.zeros(2, np.int32), np.array([1, 0]), BlockPool(0))
    assert isinstance(found, VarColumn)
    assert not isinstance(found, SeparateBytes)
    assert found.elements() == [b"row", b"small"]


WORDS = np.array(["x" * 1000] * 300, object)


def test_the_size_of_a_column_of_objects_counts_the_objects() -> None:
    assert column_nbytes(WORDS) == 300 * (8 + 1000)
    some = np.array([None, {"a": ["x" * 500]}] * 50, object)
    assert column_nbytes(some) == pytest.approx(100 * 8 + 50 * (64 + 500), rel=0.2)
    assert column_nbytes(np.zeros(3, object)[:0]) == 0


def test_the_size_of_lists_of_text_counts_the_texts_of_the_rows() -> None:
    column = VarColumn(WORDS, np.array([0, 7, 7, 100]), np.array([7, 0, 3, 200]), "array")
    assert column_nbytes(column) == 210 * (8 + 1000) + 4 * 16
    assert column_nbytes(column.slice(1, 3)) == 3 * (8 + 1000) + 2 * 16
    assert column_nbytes(column.slice(1, 2)) == 16
