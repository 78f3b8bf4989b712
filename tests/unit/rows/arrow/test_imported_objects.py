"""Decimals, maps, and lists of structs, of lists and of text become the objects that JSON would give."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from arrow_producers import Made, numbers
from arrow_reading import only_chunk, only_leaf, rows_of

from aiostream_data import ArrowDataError
from aiostream_data.rows.columns import VarColumn

pytestmark = pytest.mark.usefixtures("kernels")

TURN = pa.struct({"role": pa.string(), "text": pa.string(), "tokens": pa.list_(pa.int32())})
TURNS = [
    [{"role": "user", "text": "hello", "tokens": [1, 2]}, {"role": "system", "text": None, "tokens": []}],
    None,
    [],
    [None, {"role": "user", "text": "größe", "tokens": None}],
]
INNER = pa.struct({"b": pa.int8()})
BIG = Decimal("-1234567890123456789012345678901234567890.123456789")


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(TURN),
        pa.large_list(TURN),
        pa.list_view(TURN),
        pa.list_(
            pa.struct({"role": pa.dictionary(pa.int8(), pa.string()), **{f.name: f.type for f in list(TURN)[1:]}})
        ),
    ],
    ids=str,
)
def test_lists_of_structs_are_lists_of_dicts(kind: pa.DataType) -> None:
    assert rows_of(only_leaf(pa.array(TURNS, kind))) == TURNS
    assert rows_of(only_leaf(pa.array(TURNS, kind).slice(1))) == TURNS[1:]


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        ([[[1, 2], []], [], None, [None, [3]]], pa.list_(pa.list_(pa.int16()))),
        ([[["a"], ["b", None]], [[]]], pa.list_(pa.list_(pa.string()))),
        ([[["a", "b"]], [None]], pa.list_(pa.list_(pa.string(), 2))),
        ([[[True], [None]], None], pa.list_(pa.list_(pa.bool_()))),
        ([[[b"a"], []], [[b"b", None]]], pa.list_(pa.list_(pa.binary(1)))),
        ([[[{"a": [{"b": 1}]}]], [[{"a": None}, None]]], pa.list_(pa.list_(pa.struct({"a": pa.list_(INNER)})))),
        ([[{}, None], []], pa.list_(pa.struct([]))),
        ([[None, None], []], pa.list_(pa.list_(pa.null()))),
    ],
)  # fmt: skip
def test_lists_of_lists_are_nested_lists(rows: list[Any], kind: pa.DataType) -> None:
    array = pa.array(rows, kind)
    assert rows_of(only_leaf(array)) == array.to_pylist()
    assert rows_of(only_leaf(array.slice(1))) == array.to_pylist()[1:]


def test_dates_in_nested_lists_are_those_of_numpy() -> None:
    rows = [[[dt.date(2020, 2, 3), None]], [[]]]
    assert rows_of(only_leaf(pa.array(rows, pa.list_(pa.list_(pa.date32()))))) == [
        [[np.datetime64("2020-02-03"), None]],
        [[]],
    ]


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.string()), pa.large_list(pa.string_view()), pa.list_view(pa.string())], ids=str
)
def test_lists_of_text_are_arrays_that_share_one_buffer_of_objects(kind: pa.DataType) -> None:
    rows = [["a", None], [], None, ["größe", "", "more than twelve bytes"]]
    leaf = only_leaf(pa.array(rows, kind))
    assert rows_of(leaf) == rows
    assert isinstance(leaf.column, VarColumn)
    assert (leaf.column.kind, leaf.column.dtype) == ("array", np.dtype(object))


def test_lists_of_bytes_and_of_fixed_size_are_read() -> None:
    assert rows_of(only_leaf(pa.array([[b"a", b"\xff"], []], pa.list_(pa.binary())))) == [[b"a", b"\xff"], []]
    assert rows_of(only_leaf(pa.array([["a", "b"], None], pa.list_(pa.string(), 2)))) == [["a", "b"], None]
    words = pa.DictionaryArray.from_arrays(pa.array([1, 0, None]), pa.array([["a"], ["b", "c"]]))
    assert rows_of(only_leaf(words)) == [["b", "c"], ["a"], None]


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        (pa.decimal128(5, 2), ["1.25", None, "-999.99", "0.00"]),
        (pa.decimal128(38, 0), ["99999999999999999999999999999999999999", "-1", None]),
        (pa.decimal128(38, 20), ["-123456789012345678.12345678901234567890"]),
        (pa.decimal128(5, -2), ["12300"]),
        (pa.decimal256(76, 9), [f"{BIG}", None, f"{-BIG}"]),
    ],
    ids=str,
)
def test_decimals_are_exact(kind: pa.DataType, rows: list[str | None]) -> None:
    expected = [None if row is None else Decimal(row) for row in rows]
    array = pa.array(expected, kind)
    found = rows_of(only_leaf(array))
    assert found == expected
    assert [str(row) for row in found] == [str(row) for row in array.to_pylist()]
    assert rows_of(only_leaf(pa.array([expected, None], pa.list_(kind)))) == [expected, None]


@pytest.mark.parametrize(("bits", "dtype"), [(32, np.int32), (64, np.int64)])
def test_narrow_decimals_are_read(bits: int, dtype: Any) -> None:
    made = Made(f"d:9,2,{bits}", 3, [None, np.array([125, -7, 0], dtype)])
    assert rows_of(only_leaf(made)) == [Decimal("1.25"), Decimal("-0.07"), Decimal("0.00")]


def test_maps_are_dicts_in_which_the_last_value_of_a_key_counts() -> None:
    pairs = [[("a", 1), ("b", None)], None, [], [("a", 1), ("a", 2)]]
    assert rows_of(only_leaf(pa.array(pairs, pa.map_(pa.string(), pa.int8())))) == [
        {"a": 1, "b": None},
        None,
        {},
        {"a": 2},
    ]
    keys = [[(dt.date(2020, 1, 1), ["x"])]]
    assert rows_of(only_leaf(pa.array(keys, pa.map_(pa.date32(), pa.list_(pa.string()))))) == [
        {np.datetime64("2020-01-01"): ["x"]}
    ]


def test_a_missing_struct_hides_the_objects_inside() -> None:
    fields = [pa.array([[["a"]], [["b"]]]), pa.array([Decimal(1), Decimal(2)])]
    source = pa.StructArray.from_arrays(fields, ["lists", "price"], mask=pa.array([True, False]))
    lists, price = only_chunk(source).leaves
    assert (rows_of(lists), rows_of(price)) == ([None, [["b"]]], [None, Decimal(2)])


def made_lists(kind: str, *buffers: Any) -> Made:
    items = Made("+s", 3, [None], [Made("i", 3, [None, numbers(7, 8, 9)], name="n")])
    return Made(kind, 2, [None, *buffers], [items])


def test_damaged_lists_of_structs_are_refused() -> None:
    assert rows_of(only_leaf(made_lists("+l", numbers(0, 1, 3)))) == [[{"n": 7}], [{"n": 8}, {"n": 9}]]
    for offsets in ((0, 2, 1), (-1, 0, 1), (0, 1, 4)):
        with pytest.raises(ArrowDataError):
            only_chunk(made_lists("+l", numbers(*offsets)))


def test_lists_that_share_many_objects_are_refused() -> None:
    """A hostile file could need any amount of memory: each row can refer to all items."""
    assert rows_of(only_leaf(made_lists("+vl", numbers(2, 0), numbers(1, 2)))) == [[{"n": 9}], [{"n": 7}, {"n": 8}]]
    with pytest.raises(ArrowDataError, match=r"the lists share items\. Cast the column"):
        only_chunk(made_lists("+vl", numbers(0, 0), numbers(3, 3)))


def test_a_map_without_pairs_is_refused() -> None:
    entries = Made("+s", 1, [None], [Made("i", 1, [None, numbers(1)], name="key")])
    with pytest.raises(ArrowDataError, match="the entries of a map are not structs of a key and a value"):
        only_chunk(Made("+m", 1, [None, numbers(0, 1)], [entries]))


def test_a_dictionary_of_lists_without_items_is_refused() -> None:
    made = Made("c", 1, [None, np.zeros(1, np.int8)], dictionary=Made("+l", 1, [None, numbers(0, 0)]))
    with pytest.raises(ArrowDataError, match="needs 1 children, but has 0"):
        only_chunk(made)


def test_text_in_objects_must_be_utf8() -> None:
    binary = pa.array([[[b"ok"], [b"\xff"]]], pa.list_(pa.list_(pa.binary())))
    with pytest.raises(ArrowDataError, match="is not valid UTF-8"):
        only_chunk(binary.view(pa.list_(pa.list_(pa.string()))))
