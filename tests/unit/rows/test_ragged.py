"""A RaggedArray gives its rows, and the padded and sparse forms that other libraries want."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from aiostream_data.rows.ragged import RaggedArray
from aiostream_data.rows.structure import structure_of


def ragged(*rows: list[int]) -> RaggedArray:
    return RaggedArray(np.array([x for row in rows for x in row], np.int32), np.cumsum([0, *map(len, rows)]))


ROWS = ragged([1, 2], [], [3, 4, 5])


def test_rows_are_views_of_the_values() -> None:
    assert [row.tolist() for row in (ROWS[0], ROWS[1], ROWS[-1])] == [[1, 2], [], [3, 4, 5]]
    assert np.shares_memory(ROWS[0], ROWS.values)
    assert len(ROWS) == 3
    assert ROWS.to_list() == [[1, 2], [], [3, 4, 5]]


@pytest.mark.parametrize("row", [3, -4])
def test_a_row_that_does_not_exist_raises(row: int) -> None:
    with pytest.raises(IndexError, match=f"row {row} is out of range: the RaggedArray has 3 rows"):
        ROWS[row]


def test_iteration_ends_after_the_last_row() -> None:
    assert [len(row) for row in ROWS] == [2, 0, 3]


def test_a_slice_starts_counting_at_its_first_row() -> None:
    tail = ROWS[1:]
    assert tail.to_list() == [[], [3, 4, 5]]
    assert tail.row_splits.tolist() == [0, 0, 3]
    assert ROWS[2:1].to_list() == []
    assert ROWS[::-2].to_list() == [ROWS[2].tolist(), ROWS[0].tolist()]


def test_padding_fills_short_rows() -> None:
    padded = ROWS.to_padded(-1)
    assert padded.tolist() == [[1, 2, -1], [-1, -1, -1], [3, 4, 5]]
    assert padded.dtype == np.int32


def test_padding_keeps_the_further_axes() -> None:
    rows = RaggedArray(np.arange(6.0).reshape(3, 2), np.array([0, 1, 3]))
    assert rows.to_padded().tolist() == [[[0, 1], [0, 0]], [[2, 3], [4, 5]]]


def test_the_sparse_form_lists_row_and_position() -> None:
    indices, values, shape = ROWS.to_sparse()
    assert indices.tolist() == [[0, 0], [0, 1], [2, 0], [2, 1], [2, 2]]
    assert (values.tolist(), shape) == ([1, 2, 3, 4, 5], (3, 3))


def test_splits_that_do_not_start_at_zero_are_honoured() -> None:
    rows = RaggedArray(np.arange(10), np.array([2, 4, 7]))
    assert rows.to_list() == [[2, 3], [4, 5, 6]]
    assert rows.to_padded().tolist() == [[2, 3, 0], [4, 5, 6]]
    assert rows.to_sparse()[0].tolist() == [[0, 0], [0, 1], [1, 0], [1, 1], [1, 2]]


def test_no_rows_pad_to_an_empty_array() -> None:
    empty = RaggedArray(np.empty((0, 4)), np.zeros(1, np.int64))
    assert empty.to_padded().shape == (0, 0, 4)
    assert empty.to_sparse()[2] == (0, 0, 4)


def test_it_is_a_leaf_of_an_element_and_pickles() -> None:
    assert structure_of({"a": ROWS}).paths() == ["a"]
    assert pickle.loads(pickle.dumps(ROWS)).to_list() == ROWS.to_list()
    assert ROWS.nbytes == 5 * 4 + 4 * 8


def test_as_an_array_it_is_an_array_of_rows() -> None:
    rows = np.asarray(ROWS)
    assert rows.dtype == object
    assert [row.tolist() for row in rows] == ROWS.to_list()
    assert np.asarray(ragged([1], [2])).shape == (2,)
    with pytest.raises(TypeError, match="to_padded"):
        np.asarray(ROWS, np.float32)


def test_splits_of_no_rows_at_all_are_refused() -> None:
    with pytest.raises(ValueError, match="row_splits"):
        RaggedArray(np.zeros(3), np.zeros(0, np.int64))
