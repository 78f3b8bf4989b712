"""Tests of lists, masks and slices with a step as indexes of arrays whose rows differ in length."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aiostream_data import AiostreamError, BytesArray, RaggedArray, RowIndexError, TextArray

ROWS = ["a", "", None, "déf", "gh"]


def _arrays() -> list[Any]:
    ragged = RaggedArray(np.arange(22).reshape(11, 2), np.array([1, 3, 3, 4, 8, 10]))
    texts = TextArray.from_list(["before", *ROWS])[1:]
    return [texts, BytesArray.from_list([None if row is None else row.encode() for row in ROWS]), ragged]


@pytest.mark.parametrize(
    "rows",
    [
        [0, 2],
        [-1, 0, -1],
        [],
        np.array([3, 1], np.uint8),
        np.array([True, False, True, False, True]),
        [False, True, False, False, True],
        slice(None, None, 2),
        slice(None, None, -1),
        slice(4, 0, -2),
        slice(9, 20, 3),
    ],
    ids=str,
)
def test_rows_are_selected_as_numpy_selects_them(rows: Any) -> None:
    numbers = np.arange(5)[np.array(rows, int) if isinstance(rows, list) and not rows else rows]
    for array in _arrays():
        found = array[rows]
        whole = array.to_list()
        assert type(found) is type(array)
        assert found.to_list() == [whole[number] for number in numbers.tolist()]
        assert found.row_splits[0] == 0
        assert found.row_splits[-1] == len(found.values)


@pytest.mark.parametrize("row", [np.int64(3), np.array(3), -2], ids=repr)
def test_an_integer_of_any_type_returns_one_row(row: Any) -> None:
    assert _arrays()[0][row] == "déf"


@pytest.mark.parametrize(
    "rows",
    [
        (0, 1),
        (),
        None,
        ...,
        "a",
        1.5,
        True,
        [1.5],
        ["a"],
        [None],
        [1 << 70],
        [[0], [1, 2]],
        np.zeros((2, 2), int),
        np.zeros(3),
        slice(None, None, 0),
        slice("a"),
        slice("a", None, 2),
    ],
    ids=str,
)
def test_any_other_index_is_refused_with_a_typed_error(rows: Any) -> None:
    for array in _arrays():
        with pytest.raises(AiostreamError, match=r"cannot index a \w+Array|slice of a \w+Array"):
            array[rows]


@pytest.mark.parametrize("rows", [[5], [0, -6], np.zeros(3, bool), 5], ids=str)
def test_rows_that_do_not_exist_are_an_index_error(rows: Any) -> None:
    for array in _arrays():
        with pytest.raises(RowIndexError, match=r"out of range|one entry per row \(5\)"):
            array[rows]
