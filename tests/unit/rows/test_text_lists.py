"""Conversion of lists and fixed-width arrays of bytes and text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aiostream_data.rows.array_likes import NoNumpyFormError
from aiostream_data.rows.columns import VarColumn
from aiostream_data.rows.text_lists import is_text_list, nested_text, of_equal_widths, python_text, variable_rows


@pytest.mark.parametrize("value", [["a"], (b"a", None), [None, "a"], ["a", b"b"], [np.str_("a")]])
def test_lists_of_text_are_found(value: Any) -> None:
    assert is_text_list(value)


@pytest.mark.parametrize("value", [[], [None], ["a", 1], [["a"]], "a", np.array(["a"]), None])
def test_other_values_are_no_lists_of_text(value: Any) -> None:
    assert not is_text_list(value)


def test_nested_lists_keep_their_shape_and_their_nuls() -> None:
    found = nested_text([[["a\0", None], ["c", "d"]]])
    assert found is not None
    assert found.shape == (1, 2, 2)
    assert found.tolist() == [[["a\0", None], ["c", "d"]]]


@pytest.mark.parametrize("value", [[[1, 2], [3]], [[]], [[None]], [1, "a"], 7, ["a", ["b"]], [{"a": 1}]])
def test_other_nested_values_are_left_alone(value: Any) -> None:
    assert nested_text(value) is None


def test_a_list_that_contains_itself_is_left_alone() -> None:
    value: list[Any] = []
    value.append(value)
    assert nested_text(value) is None


def test_nested_lists_of_different_lengths_have_no_array() -> None:
    with pytest.raises(NoNumpyFormError, match="its parts differ in length"):
        nested_text([["a"], ["b", "c"]])


ARRAYS = [
    np.array([b"a\0b", b"", b"\xff"]),
    np.array(["a\0b", "", "abc"]),
    np.array(["\u00e4", "", "\U0001f600x"]),
    np.array(["a", "bc", "\u00e4"], ">U5"),
    np.array(["a", "bc", "d"] * 2)[::2],
    np.array([b"a", b"bc", b"d"] * 2)[::2],
    np.array([], "S3"),
    np.array([], "U3"),
    np.zeros(2, np.dtype([("x", "S0")]))["x"],
    np.zeros(2, np.dtype([("x", "U0")]))["x"],
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype}-{len(array)}")
def test_fixed_width_arrays_become_columns_of_variable_length(array: Any) -> None:
    column = variable_rows(array)
    assert isinstance(column, VarColumn)
    assert column.kind == ("bytes" if array.dtype.kind == "S" else "str")
    assert column.elements() == array.tolist()
    assert column.compact().elements() == array.tolist()


def test_text_that_utf_8_cannot_represent_becomes_objects() -> None:
    found = variable_rows(np.array(["a", "\udc80"]))
    assert isinstance(found, np.ndarray)
    assert found.tolist() == ["a", "\udc80"]


def test_numpy_text_becomes_python_text() -> None:
    given = [np.str_("a\0"), np.bytes_(b"b\0"), np.array("c"), None, "d", np.float32(1)]
    found = python_text(given)
    assert list(found) == ["a\0", b"b\0", "c", None, "d", np.float32(1)]
    assert [type(value) for value in found] == [str, bytes, str, type(None), str, np.float32]


@pytest.mark.parametrize("kind", ["<U", ">U", "S"])
def test_columns_of_different_widths_are_widened_unless_that_takes_much_memory(kind: str) -> None:
    narrow, wide = np.array(["a"] * 10, f"{kind}1"), np.array(["abcd"] * 10, f"{kind}4")
    found: list[Any] = list(of_equal_widths([narrow, wide]))
    assert {column.dtype for column in found} == {np.result_type(narrow, wide)}
    assert [column.tolist() for column in found] == [narrow.tolist(), wide.tolist()]
    one_long = np.array(["x" * 10_000], f"{kind}10000")
    assert of_equal_widths([narrow, one_long])[0] is narrow


def test_columns_of_bytes_and_text_and_other_columns_are_not_widened() -> None:
    for columns in ([np.array([b"a"]), np.array(["ab"])], [np.array(["a"]), np.arange(1)], [np.arange(1)] * 2):
        assert of_equal_widths(columns) is columns
