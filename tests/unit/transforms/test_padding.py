"""Rows of differing shape become one array per leaf, short ones filled up."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import aiostream_data as asd
from aiostream_data.errors import BatchShapeError, PlanError
from aiostream_data.rows.columns import VarColumn
from aiostream_data.rows.records import Columns, Items
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.rows.structure import LEAF, structure_of
from aiostream_data.transforms.filling import LONG_ARRAY_NBYTES
from aiostream_data.transforms.padding import PaddingRule, pad_rows


def items(*elements: Any) -> Items:
    return Items(list(elements), RowIds.run(0, 0, len(elements)))


def ragged(*rows: Any, dtype: Any = np.int64) -> VarColumn:
    lengths = np.array(list(map(len, rows)), np.int64)
    values = np.concatenate([np.array(row, dtype) for row in rows])
    return VarColumn(values, np.cumsum(lengths) - lengths, lengths, "array")


def columns(leaf: Any) -> Columns:
    return Columns(LEAF, (leaf,), RowIds.run(0, 0, len(leaf)))


def padded(rows: Any, shapes: Any = None, values: Any = None, longest: int | None = None) -> Any:
    return pad_rows(rows, PaddingRule(shapes, values), lambda row: f"row {row}", longest)


def test_rows_are_padded_to_the_longest_of_the_batch() -> None:
    expected = [[1, 2, 3], [4, 0, 0], [0, 0, 0]]
    for rows in (items([1, 2, 3], [4], []), columns(ragged([1, 2, 3], [4], []))):
        if isinstance(rows, Items):
            rows = items(*(np.array(row, np.int64) for row in rows.values))
        batch = padded(rows)
        assert batch.tolist() == expected
        assert batch.dtype == np.int64
        assert batch.flags.owndata or batch.base.flags.owndata


def test_a_fixed_length_pads_further_and_refuses_what_is_longer() -> None:
    rows = columns(ragged([1, 2, 3], [4]))
    assert padded(rows, (5,)).tolist() == [[1, 2, 3, 0, 0], [4, 0, 0, 0, 0]]
    assert padded(rows, [-1]).tolist() == [[1, 2, 3], [4, 0, 0]]
    with pytest.raises(BatchShapeError, match=r"leaf 'element' to \(2,\): its shape is \(3,\) in row 0"):
        padded(rows, (2,))


def test_axes_without_a_length_can_be_padded_to_a_bound() -> None:
    rows = items({"x": np.ones(2), "y": np.ones((1, 3))}, {"x": np.ones(1), "y": np.ones((2, 3))})
    batch = padded(rows, {"x": (None,), "y": (None, 3)}, longest=4)
    assert batch["x"].shape == (2, 4)
    assert batch["y"].shape == (2, 4, 3)
    assert batch["x"].tolist() == [[1, 1, 0, 0], [1, 0, 0, 0]]


def test_the_first_row_that_is_too_long_is_named() -> None:
    words = [[1], [1, 2, 3], [1, 2, 3, 4]]
    for rows in (columns(ragged(*words)), items(*map(np.array, words))):
        with pytest.raises(BatchShapeError, match=r"its shape is \(3,\) in row 1"):
            padded(rows, (2,))


@pytest.mark.parametrize("axes", [(), (3,)])
@pytest.mark.parametrize("scale", [1, LONG_ARRAY_NBYTES])
def test_short_and_long_arrays_are_padded_alike(scale: int, axes: tuple[int, ...]) -> None:
    lengths = [scale, 0, 2 * scale, 1]
    sizes = [length * math.prod(axes) for length in lengths]
    arrays = [
        np.arange(size, dtype=np.int32).reshape(length, *axes) for size, length in zip(sizes, lengths, strict=True)
    ]
    expected = np.full((4, 2 * scale + 5, *axes), -7, np.int32)
    for row, array in zip(expected, arrays, strict=True):
        row[: len(array)] = array
    given = padded(items(*arrays), (2 * scale + 5, *axes), -7)
    assert given.dtype == np.int32
    np.testing.assert_array_equal(given, expected)
    views = [np.repeat(array, 2, axis=0)[::2] for array in arrays]
    np.testing.assert_array_equal(padded(items(*views), (2 * scale + 5, *axes), -7), expected)


def test_every_axis_is_padded() -> None:
    batch = padded(items(np.ones((1, 3)), np.ones((2, 1))))
    assert batch.tolist() == [[[1, 1, 1], [0, 0, 0]], [[1, 0, 0], [1, 0, 0]]]


def test_dense_rows_are_padded_where_a_larger_shape_is_asked_for() -> None:
    rows = columns(np.arange(4).reshape(2, 2))
    assert padded(rows, (None,)).tolist() == [[0, 1], [2, 3]]
    assert padded(rows, (3,), -1).tolist() == [[0, 1, -1], [2, 3, -1]]


def test_steps_of_a_shape_keep_it() -> None:
    column = VarColumn(np.arange(6).reshape(3, 2), np.array([0, 1]), np.array([1, 2]), "array")
    assert padded(columns(column)).tolist() == [[[0, 1], [0, 0]], [[2, 3], [4, 5]]]
    assert padded(columns(column), (None, 3)).shape == (2, 2, 3)


def test_scalars_and_text_are_stacked_as_batch_does() -> None:
    batch = padded(items((1, "a"), (2, "bc")))
    assert batch[0].tolist() == [1, 2]
    assert (batch[1].dtype, batch[1].tolist()) == (np.dtype(object), ["a", "bc"])
    text = columns(VarColumn(np.frombuffer(b"abc", np.uint8), np.array([0, 1]), np.array([1, 2]), "bytes"))
    assert padded(text, ()).tolist() == [b"a", b"bc"]
    with pytest.raises(BatchShapeError, match=r"its shape is \(\)"):
        padded(text, (None,))


def test_lists_count_as_arrays() -> None:
    assert padded(items([1, 2], [3])).tolist() == [[1, 2], [3, 0]]
    assert padded(items([[1], [2]], [[3, 4]])).tolist() == [[[1, 0], [2, 0]], [[3, 4], [0, 0]]]


def test_an_empty_list_takes_the_dtype_of_the_others() -> None:
    batch = padded(items([], [1, 2], []))
    assert (batch.tolist(), batch.dtype) == ([[0, 0], [1, 2], [0, 0]], np.int64)
    assert padded(items([], [])).shape == (2, 0)


def test_one_value_fills_all_leaves_and_a_structure_each_its_own() -> None:
    rows = items((np.ones(2, np.int32), np.ones(1)), (np.ones(1, np.int32), np.ones(2)))
    both = padded(rows, None, -1)
    assert (both[0].tolist(), both[1].tolist()) == ([[1, 1], [1, -1]], [[1, -1], [1, 1]])
    assert both[0].dtype == np.int32
    each = padded(rows, None, (7, 0.5))
    assert (each[0].tolist(), each[1].tolist()) == ([[1, 1], [1, 7]], [[1, 0.5], [1, 1]])


def test_text_arrays_are_filled_up_with_empty_text_of_their_kind() -> None:
    assert padded(columns(ragged([b"a", b"b"], [b"c"], dtype=object))).tolist() == [[b"a", b"b"], [b"c", b""]]
    assert padded(columns(ragged([], ["c"], dtype=object))).tolist() == [[""], ["c"]]
    assert padded(columns(ragged([], ["c"], dtype=object)), None, "-").tolist() == [["-"], ["c"]]


@pytest.mark.parametrize(
    ("dtype", "value"),
    [(np.uint8, -1), (np.uint8, 256), (np.int64, 0.5), (np.float32, "x"), (np.float64, 1j), (object, 0), (np.bool_, 2)],
)
def test_a_value_that_the_dtype_cannot_hold_is_refused(dtype: Any, value: Any) -> None:
    with pytest.raises(PlanError, match=r"cannot pad leaf 'element' with .*: the leaf is "):
        padded(columns(ragged([1], [], dtype=dtype)), None, value)


def test_rounding_to_a_floating_type_is_fine() -> None:
    assert padded(columns(ragged([1], [], dtype=np.float16)), None, 0.1).dtype == np.float16
    assert np.isnan(padded(columns(ragged([1], [], dtype=np.float32)), None, float("nan"))[1, 0])


def test_shapes_and_values_of_another_structure_are_refused() -> None:
    structure = structure_of({"a": 0, "b": 0})
    with pytest.raises(PlanError, match=r"padded_shapes must have the structure of the elements.*\{a: \*, b: \*\}"):
        PaddingRule({"a": (None,)}).leaves(structure)
    with pytest.raises(PlanError, match="padding_values must have the structure"):
        PaddingRule(None, {"a": 1}).leaves(structure)
    for shape in (-2, True, "3", (-2,)):
        with pytest.raises(PlanError, match="padded_shapes of 'a' must be a length, or a sequence"):
            PaddingRule({"a": shape, "b": ()}).leaves(structure)


@pytest.mark.parametrize(("shape", "width"), [(5, 5), (-1, 3), (np.int64(5), 5)])
def test_a_length_is_the_shape_of_a_leaf_with_one_axis(shape: Any, width: int) -> None:
    [batch] = asd.Dataset.range(1, 4).map(np.arange).padded_batch(3, padded_shapes=shape)
    assert batch.shape == (3, width)
    known = asd.Dataset.from_tensor_slices(np.zeros((4, 3))).padded_batch(2, padded_shapes=shape, drop_remainder=True)
    assert known.element_spec.shape == next(iter(known)).shape == (2, width)


def test_rows_that_differ_in_axes_or_dtype_name_both() -> None:
    with pytest.raises(BatchShapeError, match=r"row 0.*row 1"):
        padded(items(np.ones(2), np.ones((1, 1))))
    with pytest.raises(BatchShapeError, match=r"row 0.*row 1"):
        padded(items(np.ones(2), np.ones(1, np.int64)))
    with pytest.raises(BatchShapeError, match=r"row 0.*row 1"):
        padded(items({"a": 1}, {"b": 1}))


@pytest.mark.parametrize(("word", "fill"), [("a", ""), (b"a", b"")])
def test_lists_of_words_are_filled_with_empty_text(word: Any, fill: Any) -> None:
    rows = asd.Dataset.range(4).map(lambda number: {"words": [word] * int(number), "n": number})
    [batch] = rows.padded_batch(4)
    assert batch["words"].tolist() == [[word] * number + [fill] * (3 - number) for number in range(4)]
    [alone] = rows.map(lambda row: row["words"]).skip(1).padded_batch(3, padding_values=word)
    assert alone.tolist() == [[word] * 3] * 3


def test_lists_of_words_and_numbers_are_refused() -> None:
    with pytest.raises(BatchShapeError, match="it mixes int and str"):
        list(asd.Dataset.range(1, 3).map(lambda number: ["a", number] * int(number)).padded_batch(2))
