"""Lists and dictionaries are read from PyArrow: in which form, and what is shared."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from arrow_reading import address, only_leaf, rows_of

from aiostream_data import ArrowDataError
from aiostream_data.rows.columns import VarColumn, column_elements

pytestmark = pytest.mark.usefixtures("kernels")


# -- lists -------------------------------------------------------------------------------------------------------------

LISTS = [[1, 2], None, [], [3], [4, 5, 6], [7]]


@pytest.mark.parametrize("make", [pa.list_, pa.large_list, pa.list_view, pa.large_list_view])
@pytest.mark.parametrize("item", [pa.int64(), pa.int8(), pa.duration("s")], ids=str)
def test_lists_of_numbers_share_their_items(make: Any, item: pa.DataType) -> None:
    source = pa.array(LISTS, make(item if item != pa.duration("s") else pa.int64()))
    for start in range(len(LISTS)):
        leaf = only_leaf(source.slice(start, 3))
        assert rows_of(leaf) == LISTS[start : start + 3]
        assert isinstance(leaf.column, VarColumn)
        assert leaf.column.kind == "array"
        first, values = address(source.values, 1), leaf.column.values
        assert values.size == 0 or first <= values.ctypes.data < first + source.values.nbytes


def test_list_offsets_of_64_bits_are_shared() -> None:
    source = pa.array(LISTS, pa.large_list(pa.int64()))
    assert only_leaf(source).column.starts.ctypes.data == address(source, 1)  # type: ignore[union-attr]


def test_list_views_can_overlap_and_be_out_of_order() -> None:
    offsets, sizes = pa.array([2, 0, 1], pa.int32()), pa.array([2, 3, 0], pa.int32())
    source = pa.ListViewArray.from_arrays(offsets, sizes, pa.array([1, 2, 3, 4]))
    assert rows_of(only_leaf(source)) == [[3, 4], [1, 2, 3], []]


def test_lists_of_fixed_size_become_axes_that_share_their_memory() -> None:
    numbers = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
    inner = pa.FixedSizeListArray.from_arrays(pa.array(numbers.reshape(-1)), 3)
    source = pa.FixedSizeListArray.from_arrays(inner, 2)
    column, valid = only_leaf(source.slice(1))
    assert isinstance(column, np.ndarray)
    assert (column.tolist(), valid) == (numbers[1:].tolist(), None)
    assert column.ctypes.data == address(source.flatten().flatten(), 1) + 24


def test_missing_lists_of_fixed_size() -> None:
    given = [[1, 2], None, [3, 4]]
    assert rows_of(only_leaf(pa.array(given, pa.list_(pa.int32(), 2)))) == given


def test_lists_of_lists_of_fixed_size_have_items_with_axes() -> None:
    given = [[[1, 2], [3, 4]], [], [[5, 6]]]
    assert rows_of(only_leaf(pa.array(given, pa.list_(pa.list_(pa.int32(), 2))).slice(1))) == given[1:]


@pytest.mark.parametrize("item", [pa.bool_(), pa.date32()], ids=str)
def test_only_the_items_of_the_rows_are_converted(item: pa.DataType) -> None:
    given = [[1] * 50, [1, 0], []]
    source = pa.array(given, pa.list_(pa.int32())).cast(pa.list_(pa.int32()))
    values = source.values.cast(pa.bool_()) if item == pa.bool_() else source.values.cast(pa.date32())
    source = pa.ListArray.from_arrays(source.offsets, values)
    leaf = only_leaf(source.slice(1))
    assert [len(row) for row in rows_of(leaf)] == [2, 0]
    assert leaf.column.values.shape == (2,)  # type: ignore[union-attr]


def test_empty_lists_can_have_items_of_the_null_type() -> None:
    assert rows_of(only_leaf(pa.array([[], None, []]))) == [[], None, []]


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ([[1], [2, None]], pa.list_(pa.int32())),
        ([[1], [2, None]], pa.large_list_view(pa.int32())),
        ([[1, 2], [2, None]], pa.list_(pa.int32(), 2)),
        ([[], [None]], pa.list_(pa.null())),
    ],
)
def test_a_missing_item_is_refused_with_its_row(given: list[Any], kind: pa.DataType) -> None:
    with pytest.raises(ArrowDataError, match=r"row 1: the list contains a missing item. Fill missing items") as caught:
        only_leaf(pa.array(given, kind))
    assert caught.value.row == 1
    assert rows_of(only_leaf(pa.array(given, kind).slice(0, 1))) == given[:1]


@pytest.mark.parametrize("kind", [pa.list_(pa.date32()), pa.list_(pa.date32(), 2), pa.large_list_view(pa.date64())])
def test_missing_dates_in_lists_are_nat(kind: pa.DataType) -> None:
    leaf = only_leaf(pa.array([[dt.date(2020, 1, 1), None], [None, None]], kind))
    assert np.isnat(np.concatenate(column_elements(leaf.column))).tolist() == [False, True, True, True]
    assert leaf.valid is None


def test_missing_times_in_lists_of_lists_are_nat() -> None:
    kind = pa.list_(pa.list_(pa.timestamp("us"), 1), 2)
    leaf = only_leaf(pa.array([[[dt.datetime(2020, 1, 1)], [None]]], kind))
    assert np.isnat(np.asarray(leaf.column)).tolist() == [[[False], [True]]]
    assert leaf.valid is None


def test_missing_lists_in_lists_of_times_are_refused() -> None:
    kind = pa.list_(pa.list_(pa.timestamp("us"), 1), 2)
    with pytest.raises(ArrowDataError, match="row 0: the list contains a missing item"):
        only_leaf(pa.array([[[None], None]], kind))


def test_items_of_missing_lists_may_be_missing() -> None:
    items = pa.array([1, 2, None, 4, 5, 6])
    given = pa.FixedSizeListArray.from_arrays(items, 2, mask=pa.array([False, True, False]))
    assert rows_of(only_leaf(given)) == [[1, 2], None, [5, 6]]


# -- dictionaries ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", [pa.int8(), pa.uint8(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64()], ids=str)
def test_dictionaries_are_decoded(index: pa.DataType) -> None:
    given = ["b", None, "a", "b", "größe"]
    source = pa.array(given).dictionary_encode().cast(pa.dictionary(index, pa.string()))
    assert rows_of(only_leaf(source.slice(1))) == given[1:]


@pytest.mark.parametrize("values", [[10, 20], [[1], [2, 3]], [True, False], [b"x" * 20, b""]])
def test_dictionaries_have_values_of_any_column(values: list[Any]) -> None:
    source = pa.DictionaryArray.from_arrays(pa.array([1, None, 0, 1]), pa.array(values))
    assert rows_of(only_leaf(source)) == [values[1], None, values[0], values[1]]


def test_missing_entries_of_a_dictionary_are_missing_rows() -> None:
    source = pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.array(["a", None]))
    assert rows_of(only_leaf(source)) == ["a", None, None]


@pytest.mark.parametrize("kind", [pa.string(), pa.float32(), pa.list_(pa.int32(), 2)], ids=str)
def test_an_empty_dictionary_has_only_missing_rows(kind: pa.DataType) -> None:
    source = pa.DictionaryArray.from_arrays(pa.array([None, None], pa.int8()), pa.array([], kind))
    assert rows_of(only_leaf(source)) == [None, None]


def test_lists_of_encoded_numbers_are_decoded() -> None:
    items = pa.array([7, 8, 7]).dictionary_encode()
    assert rows_of(only_leaf(pa.ListArray.from_arrays(pa.array([0, 1, 3]), items))) == [[7], [8, 7]]
