"""Packing columns of row ids and writing states as JSON: the kernels and their twins."""

from __future__ import annotations

import json
from enum import IntEnum
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiostream_data._native import states_py

states = pytest.importorskip("aiostream_data._native.states")
both = pytest.mark.parametrize("kernels", [states, states_py], ids=["native", "python"])

INT64 = np.iinfo(np.int64)
values = st.lists(st.one_of(st.integers(INT64.min, INT64.max), st.integers(-3, 300)), max_size=40)
data = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda part: st.lists(part, max_size=4) | st.dictionaries(st.text(max_size=4), part, max_size=4),
    max_leaves=20,
)


class Color(IntEnum):
    """Integers of a class, which JSON writes as numbers."""

    RED = 1


class Word(str):
    """Text of a class, which JSON writes as text."""

    __slots__ = ()


@given(values)
def test_offsets_from_the_lowest_value_are_those_of_the_twin(numbers: list[int]) -> None:
    column = np.array(numbers, np.int64)
    low, offsets, largest = states.above_lowest(column)
    expected = states_py.above_lowest(column)
    assert (low, offsets.tolist(), largest) == (expected[0], expected[1].tolist(), expected[2])
    assert offsets.tolist() == [number - low for number in numbers]
    assert largest == max(offsets.tolist(), default=0)


@given(values, st.integers(1, 5), st.randoms())
def test_offsets_in_groups_are_those_of_the_twin(numbers: list[int], count: int, random: Any) -> None:
    column = np.array(numbers, np.int64)
    groups = np.array([random.randrange(count) for _ in numbers], np.uint64)
    lows, offsets, largest = states.above_lowest_of_groups(column, groups, count)
    expected = states_py.above_lowest_of_groups(column, groups, count)
    assert lows.tolist() == expected[0].tolist()
    assert offsets.tolist() == expected[1].tolist()
    assert largest == expected[2]
    low_of_row = lows[groups.astype(np.intp)].tolist()
    assert [low + offset for low, offset in zip(low_of_row, offsets.tolist(), strict=True)] == numbers


@both
@pytest.mark.parametrize("groups", [[0, 2], [0], [0, 0, 0], [0, 2**63]])
def test_groups_that_do_not_fit_the_rows_are_refused(kernels: Any, groups: list[int]) -> None:
    with pytest.raises(ValueError, match=r"each of 2 rows needs the number of one of 2 groups"):
        kernels.above_lowest_of_groups(np.array([1, 2], np.int64), np.array(groups, np.uint64), 2)


@given(st.lists(st.integers(0, 2**64 - 1), max_size=20), st.integers(0, 8))
def test_planes_are_those_of_the_twin(numbers: list[int], width: int) -> None:
    offsets = np.array(numbers, np.uint64)
    planes = states.planes_of(offsets, width)
    assert planes == states_py.planes_of(offsets, width)
    assert len(planes) == width * len(numbers)


@both
def test_planes_with_the_low_bytes_come_first(kernels: Any) -> None:
    offsets = np.array([0x0504030201, 0x0A09080706], np.uint64)
    assert kernels.planes_of(offsets, 5) == bytes([1, 2, 3, 4, 6, 7, 8, 9, 5, 10])


@both
@pytest.mark.parametrize("width", [-1, 9])
def test_other_widths_are_refused(kernels: Any, width: int) -> None:
    with pytest.raises(ValueError, match=r"width must be from 0 to 8"):
        kernels.planes_of(np.zeros(1, np.uint64), width)


@given(data)
def test_json_is_that_of_the_standard_library(value: Any) -> None:
    assert states.json_bytes(value) == json.dumps(value, sort_keys=True).encode()


@both
@pytest.mark.parametrize(
    "value",
    [
        {"b": [1, -1, 0, INT64.min, INT64.max, 2**64], "a": (True, False, None)},
        {"": "", "quotes": '"', "a\\b": "tab\t", "é": "日本"},
        {"numbers": [1.5, -0.0, 1e300, float("inf")]},
        {3: "a number as a key"},
        [Color.RED, Word("word"), {Word("key"): Color.RED}],
        ["~" * 5000, {str(number): number for number in range(300)}],
        json.loads("[" * 300 + "]" * 300),
    ],
)
def test_json_of_any_data_is_that_of_the_standard_library(kernels: Any, value: Any) -> None:
    assert kernels.json_bytes(value) == json.dumps(value, sort_keys=True).encode()


@both
def test_data_that_json_cannot_write_raises_the_error_of_the_standard_library(kernels: Any) -> None:
    circular: list[Any] = []
    circular.append(circular)
    with pytest.raises(ValueError, match="Circular reference"):
        kernels.json_bytes(circular)
    with pytest.raises(TypeError, match="not JSON serializable"):
        kernels.json_bytes({"array": np.zeros(1)})
    with pytest.raises(TypeError, match="not supported between"):
        kernels.json_bytes({"a": 1, 2: 1})
