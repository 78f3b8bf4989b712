"""Nested dicts and tuples are split into columns at once, as one after another."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiostream_data.rows.row_ids import RowIds
from aiostream_data.rows.structure import structure_of
from aiostream_data.transforms.collate import collate, read_back_items


class Point(NamedTuple):
    x: int
    y: int


@dataclass
class Pair:
    x: int
    y: int


LEAVES = st.integers() | st.text(max_size=2) | st.lists(st.integers(), max_size=2) | st.none() | st.floats(0, 1)
ELEMENTS = st.recursive(
    LEAVES,
    lambda parts: st.tuples(parts, parts) | st.dictionaries(st.sampled_from("abc"), parts, max_size=3),
    max_leaves=6,
)


@given(ELEMENTS, st.integers(1, 4))
def test_columns_of_equal_structures_are_those_of_each_element(element: Any, count: int) -> None:
    structure = structure_of(element)
    rows = [element] * count
    expected = [list(column) for column in zip(*map(structure.flatten, rows), strict=True)]
    assert structure.plain_columns(rows) == structure.columns(rows) == expected


@given(ELEMENTS, ELEMENTS)
def test_elements_of_other_structures_have_no_columns(element: Any, other: Any) -> None:
    structure = structure_of(element)
    found = structure.plain_columns([element, other])
    if found is not None:
        assert found == [
            list(column) for column in zip(structure.flatten(element), structure.flatten(other), strict=True)
        ]


@pytest.mark.parametrize("part", [OrderedDict(x=1), Point(1, 2), Pair(3, 4)])
def test_subclasses_have_no_plain_columns(part: Any) -> None:
    element = {"a": part, "b": 1}
    assert structure_of(element).plain_columns([element]) is None
    assert len(structure_of(element).columns([element])) == structure_of(element).leaf_count


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"a": [1], "b": (np.float64(0.5), "x")}, {"a": [1], "b": (0.5, "x")}),
        ({"a": [1], "b": {"c": np.int64(3)}}, {"a": [1], "b": {"c": 3}}),
        ({"a": [1], "b": {"c": None}}, {"a": [1], "b": {"c": None}}),
    ],
)
def test_values_are_read_back_as_columns_would_return_them(given: Any, expected: Any) -> None:
    for rows in ([given] * 3, [expected, given]):
        found = read_back_items(rows, RowIds.run(0, 0, len(rows))).elements()
        assert found == [expected] * len(rows)
        assert [[type(leaf) for leaf in structure_of(row).flatten(row)] for row in found] == [
            [type(leaf) for leaf in structure_of(expected).flatten(expected)]
        ] * len(rows)


def test_nested_results_become_columns() -> None:
    rows = [{"a": {"b": row, "c": (row / 2, str(row))}} for row in range(5)]
    chunk = collate(rows, RowIds.run(0, 0, 5))
    assert chunk.elements() == rows
    assert [type(leaf).__name__ for leaf in chunk.leaves] == ["ndarray", "ndarray", "VarColumn"]  # type: ignore[union-attr]
