"""Collating changes nothing that can be seen; stacking makes a batch or names what does not fit."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from typing import Any

import numpy as np
import pytest

from aiostream_data.errors import BatchShapeError
from aiostream_data.rows.columns import VarColumn
from aiostream_data.rows.ragged import RaggedArray
from aiostream_data.rows.records import Columns, Items
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.rows.structure import flatten
from aiostream_data.transforms.batching import Batcher, BatchOrder
from aiostream_data.transforms.collate import LARGE_RESULT_NBYTES, collate, collate_results, stack

Box = namedtuple("Box", ["x", "y"])


def columns_of(elements: list[Any]) -> Columns:
    chunk = collate(elements, RowIds.run(0, 0, len(elements)))
    assert isinstance(chunk, Columns)
    return chunk


def name(row: int) -> str:
    return f"s3://b/x record {row + 10}"


@pytest.mark.parametrize(
    ("elements", "dtype"),
    [
        ([1, -(2**63), 2**63 - 1], "int64"),
        ([1.5, float("inf")], "float64"),
        ([True, False], "bool"),
        ([np.float32(1.5), np.float32(2)], "float32"),
        ([np.datetime64("2020-01-01")] * 2, "datetime64[D]"),
    ],
)
def test_scalars_of_one_type_become_a_column(elements: list[Any], dtype: str) -> None:
    chunk = columns_of(elements)
    assert isinstance(chunk.leaves[0], np.ndarray)
    assert chunk.leaves[0].dtype == dtype
    assert chunk.elements() == elements


@pytest.mark.parametrize("elements", [[b"a", b"", b"\0b"], ["a", "", "äö\0"]])
def test_bytes_and_str_become_variable_columns(elements: list[Any]) -> None:
    chunk = columns_of(elements)
    assert isinstance(chunk.leaves[0], VarColumn)
    assert chunk.elements() == elements


def test_arrays_of_one_shape_are_stacked_and_copied() -> None:
    arrays = [np.full((2, 3), i, np.uint8) for i in range(4)]
    leaf = columns_of(arrays).leaves[0]
    assert isinstance(leaf, np.ndarray)
    arrays[0][:] = 9
    assert leaf.shape == (4, 2, 3)
    assert leaf[:, 0, 0].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "element", [{"a": 1, "b": (b"x", Box(1.5, "y"))}, (1, {"k": np.zeros(2)}), Box(True, (2, 3.5))]
)
def test_nested_elements_come_back_as_they_were(element: Any) -> None:
    assert repr(columns_of([element, element]).elements()) == repr([element, element])


@pytest.mark.parametrize(
    "elements",
    [
        [1, 2.5],
        [1, True],
        [2**63, 1],
        [1, None],
        [None, None],
        [b"a", "a"],
        ["\ud800", "a"],
        [[1, 2], [3, 4]],
        [np.zeros(2), np.zeros(3)],
        [np.zeros(2), np.zeros(2, np.float32)],
        [np.array([None]), np.array([None])],
        [{"a": 1}, {"b": 1}],
        [{"a": 1}, 1],
        [1, {"a": 1}],
        [(1, 2), (1, 2, 3)],
        [{}, {}],
        [],
        [1j, 2j],
        [RaggedArray(np.zeros(1), np.array([0, 1]))] * 2,
    ],
    ids=repr,
)
def test_what_would_come_back_as_something_else_stays_a_list(elements: list[Any]) -> None:
    ids = RowIds.run(0, 0, len(elements))
    chunk = collate(elements, ids)
    assert isinstance(chunk, Items)
    assert chunk.values is elements
    assert chunk.ids is ids


@pytest.mark.parametrize(
    "value",
    [
        np.int64(3),
        np.float64(0.5),
        np.bool_(True),
        np.int16(3),
        np.array(3),
        np.array(3, np.int16),
        np.arange(3, dtype=">i4"),
        np.datetime64("2026-01-01", "s"),
        {"a": np.int64(3), "b": (np.array(1.5), OrderedDict(c=np.arange(2)))},
        OrderedDict(a=1),
        Box(np.int64(1), "y"),
    ],
    ids=repr,
)
def test_what_a_value_comes_back_as_does_not_depend_on_what_comes_with_it(value: Any) -> None:
    ids = RowIds.run(0, 0, 2)
    alike, beside = collate([value, value], ids), collate([value, None], ids)
    assert isinstance(alike, Columns)
    assert isinstance(beside, Items)
    one, other = alike.elements()[0], beside.elements()[0]
    assert (repr(one), *map(dtypes, (one,))) == (repr(other), *map(dtypes, (other,)))


def dtypes(value: Any) -> list[Any]:
    return [getattr(leaf, "dtype", type(leaf)) for leaf in flatten(value)[1]]


@pytest.mark.parametrize(
    ("elements", "dtype"),
    [
        ([1, 2], "int64"),
        ([1, 2.5], "float64"),
        ([True, 2], "int64"),
        ([1, 2**63], "uint64"),
        ([1j, 2], "complex128"),
        ([np.int64(1), 2], "int64"),
        ([np.float32(1), np.float32(2)], "float32"),
        ([[1, 2], [3, 4]], "int64"),
        ([np.zeros((2, 2), np.int8)] * 2, "int8"),
    ],
    ids=repr,
)
def test_numbers_stack_to_numbers(elements: list[Any], dtype: str) -> None:
    batch = stack(elements, name)
    assert batch.dtype == dtype
    assert batch.tolist() == [e.tolist() if isinstance(e, np.ndarray) else e for e in elements]


@pytest.mark.parametrize(
    "elements",
    [[b"a", b"bc"], ["a", "bc"], [np.str_("a"), "b"], [None, {1}], [["a", ["b"]]] * 2, [Ellipsis], [range(2)] * 2],
    ids=repr,
)
def test_other_objects_stack_to_an_array_of_references(elements: list[Any]) -> None:
    batch = stack(elements, name)
    assert (batch.dtype, batch.shape) == (object, (len(elements),))
    assert all(ours is theirs for ours, theirs in zip(batch, elements, strict=True))


def test_a_batch_of_ragged_batches_holds_the_ragged_arrays() -> None:
    rows = RaggedArray(np.arange(3), np.array([0, 1, 3]))
    batch = stack([{"r": rows}, {"r": rows}], name)["r"]
    assert batch.shape == (2,)
    assert batch[1] is rows


def test_structure_and_leaves_are_kept() -> None:
    batch = stack([Box(1, {"k": b"a"}), Box(2, {"k": b"b"})], name)
    assert isinstance(batch, Box)
    assert (batch.x.tolist(), batch.y["k"].tolist()) == ([1, 2], [b"a", b"b"])


@pytest.mark.parametrize(
    ("elements", "parts"),
    [
        (
            [{"a": {"b": np.zeros((3,))}}, {"a": {"b": np.zeros((3,))}}, {"a": {"b": np.zeros((4, 1))}}],
            ["'a.b'", "shape (3,) of float64 in s3://b/x record 10", "shape (4, 1) of float64 in s3://b/x record 12"],
        ),
        ([np.zeros(2, np.int8), np.zeros(2)], ["shape (2,) of int8", "shape (2,) of float64"]),
        ([1, np.float32(2)], ["of int64", "of float32 in s3://b/x record 11"]),
        ([[1], [1, 2]], ["shape (1,)", "shape (2,)"]),
        ([[1, 2], [1, [2]]], ["list in s3://b/x record 11", "differ in length"]),
        ([1, None], ["of int64", "a NoneType in s3://b/x record 11"]),
        ([None, 1], ["a NoneType in s3://b/x record 10", "of int64 in s3://b/x record 11"]),
        ([b"a", "a"], ["a bytes", "a str"]),
        ([-1, 2**63], ["of int64 in s3://b/x record 10", "of uint64 in s3://b/x record 11"]),
        ([1, 2**64], ["an int beyond 64 bits in s3://b/x record 11"]),
        ([2**64, 2**65], ["an int beyond 64 bits in s3://b/x record 10"]),
        ([{"a": 1}, {"a": 1, "b": 2}], ["{a: *} in s3://b/x record 10", "{a: *, b: *} in s3://b/x record 11"]),
        ([(1, 2), [1, 2]], ["(*, *)", "*"]),
    ],
    ids=repr,
)
def test_what_does_not_stack_is_named_with_both_records(elements: list[Any], parts: list[str]) -> None:
    with pytest.raises(BatchShapeError) as caught:
        stack(elements, name)
    for part in parts:
        assert part in str(caught.value)


def test_large_results_are_handed_on_by_reference_and_small_ones_as_columns() -> None:
    large = [{"image": np.zeros(LARGE_RESULT_NBYTES, np.uint8), "label": row} for row in range(2)]
    small = [{"image": np.zeros(LARGE_RESULT_NBYTES - 1, np.uint8), "label": row} for row in range(2)]
    ids = RowIds.run(0, 0, 2)
    kept = collate_results(large, ids)
    assert isinstance(kept, Items)
    assert all(given is value for given, value in zip(large, kept.values, strict=True))
    assert isinstance(collate_results(small, ids), Columns)


def test_batches_of_large_results_are_those_of_columns() -> None:
    elements = [{"image": np.full((100, 200), row, np.uint8), "label": row, "name": b"x" * row} for row in range(5)]
    ids = RowIds.run(0, 0, len(elements))
    by_reference, in_columns = (
        Batcher(BatchOrder(5), lambda ids, row: "").push(made(elements, ids))[0].element
        for made in (collate_results, collate)
    )
    assert list(by_reference) == list(in_columns)
    for name, column in in_columns.items():
        assert by_reference[name].dtype == column.dtype
        np.testing.assert_array_equal(by_reference[name], column)
