"""Elements are the same when types, structure and bits are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

from aiostream_data import RaggedArray
from aiostream_data.testing.comparing import difference, multiset_difference, same, sequence_difference


class Point(NamedTuple):
    x: int
    y: int


@dataclass
class Box:
    corner: Any


class Opaque:
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: int) -> None:
        self.value = value


def ragged(*lengths: int) -> RaggedArray:
    return RaggedArray(np.arange(sum(lengths)), np.cumsum([0, *lengths]))


MAKERS: list[Any] = [
    lambda: 1,
    lambda: True,
    lambda: 1.0,
    lambda: float("nan"),
    lambda: -0.0,
    lambda: 0.0,
    lambda: None,
    lambda: "1",
    lambda: b"1",
    lambda: np.int64(1),
    lambda: np.int32(1),
    lambda: np.array(1),
    lambda: np.array([1]),
    lambda: np.array([1], np.int32),
    lambda: np.array([[1]]),
    lambda: np.array([1.0, np.nan]),
    lambda: np.array([b"1", None], object),
    lambda: np.array([b"1", "1"], object),
    lambda: np.array([[1, 2]])[:, ::-1],
    lambda: np.array(["2020-01-01"], "M8[D]"),
    lambda: (1, 2),
    lambda: [1, 2],
    lambda: Point(1, 2),
    lambda: Box(np.arange(2)),
    lambda: Box(np.arange(3)),
    lambda: {"a": 1, "b": np.zeros(2)},
    lambda: {"b": np.zeros(2), "a": 1},
    lambda: {"a": 1, "b": -np.zeros(2)},
    lambda: ragged(1, 2),
    lambda: ragged(2, 1),
    lambda: Opaque(1),
    lambda: Opaque(2),
    lambda: Opaque,
]


@pytest.mark.parametrize("number", range(len(MAKERS)))
def test_a_value_is_the_same_as_itself_made_again_and_as_no_other(number: int) -> None:
    value = MAKERS[number]()
    assert [same(value, make()) for make in MAKERS] == [other == number for other in range(len(MAKERS))]


@pytest.mark.parametrize(
    ("expected", "found", "sentence"),
    [
        (1, 2, "element: expected 1, found 2"),
        (1, 1.0, "element: expected int 1, found float 1.0"),
        (np.zeros(2), np.zeros(3), "element: expected an array of float64 (2,), found an array of float64 (3,)"),
        (
            np.arange(4).reshape(2, 2),
            np.array([[0, 1], [5, 3]]),
            "element[1, 0]: expected 2, found 5",
        ),
        (np.array([b"a"], object), np.array([b"b"], object), "element[0]: expected b'a', found b'b'"),
        ({"a": (1, [2])}, {"a": (1, [3])}, "element['a'][1][0]: expected 2, found 3"),
        ({"a": 1}, {"b": 1}, "element: expected the keys ['a'], found the keys ['b']"),
        ((1, 2), (1, 2, 3), "element: expected 2 parts, found 3 parts"),
        (ragged(1, 2), ragged(2, 1), "element['row_splits'][1]: expected 1, found 2"),
    ],
)
def test_the_first_place_that_differs_is_named(expected: Any, found: Any, sentence: str) -> None:
    assert difference(expected, found) == sentence


def test_what_is_shown_is_short() -> None:
    assert len(difference("x" * 10_000, "y" * 10_000)) < 400


def test_runs_of_elements_differ_at_a_place_or_in_length() -> None:
    assert sequence_difference([1, 2], [1, 2], same) is None
    assert sequence_difference([1, 2], [1, 3], same) == "element 1 of the rest differs: element: expected 2, found 3"
    assert sequence_difference([1, 2], [1], same) == "the rest ends after 1 elements; 2 should follow"
    assert sequence_difference([1], [1, 2], same) == "the rest has 2 elements; 2 should not follow"


def test_multisets_differ_by_what_is_lost_or_given_too_often() -> None:
    assert multiset_difference([1, 2, 2], [2, 1, 2]) is None
    assert multiset_difference([1, 2, 2], [2, 1]) == "1 of 3 elements were lost, such as 2"
    assert multiset_difference([1, 2], [2, 1, 2]) == "1 of 2 elements were given too often, such as 2"
