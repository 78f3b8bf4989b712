"""Element specs from annotations of user functions."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Iterator
from functools import lru_cache, partial
from typing import Annotated, Any, NamedTuple, NotRequired, TypedDict

import numpy as np
import pytest
from numpy.typing import NDArray

from aiostream_data import ArraySpec, ColumnError, Dataset, RaggedArray

INT = ArraySpec((), np.dtype(np.int64))
FLOAT = ArraySpec((), np.dtype(np.float64))
TEXT = ArraySpec((), np.dtype(object))
FLOATS = ArraySpec(None, np.dtype(np.float32))
UNKNOWN = ArraySpec(None, None)
TEN = Dataset.range(10)


class Point(NamedTuple):
    x: int
    y: NDArray[np.float32]


class Named(TypedDict):
    name: str
    image: Annotated[NDArray[np.uint8], "pixels", ArraySpec((2, 3), np.dtype(np.uint8))]


class Partial(TypedDict):
    name: NotRequired[str]


@dataclasses.dataclass
class Nested:
    data: bytes
    point: Point


@dataclasses.dataclass
class Linked:
    following: Linked


class Called:
    def __call__(self, number: Any) -> float:
        return 1.0

    def method(self, number: Any) -> bool:
        return True


class Kept:
    def add(self, number: Any) -> list[int]:
        return []

    def flush(self) -> list[int]:
        return []


def an_int(number: Any) -> int:
    return 1


async def later(number: Any) -> int:
    return 1


@lru_cache
def wrapped(number: Any) -> int:
    return 1


def pair(number: Any) -> tuple[int, str]:
    return 1, ""


def point(number: Any) -> Point:
    return Point(1, np.zeros(1, np.float32))


def named(number: Any) -> Named:
    return {"name": "", "image": np.zeros((2, 3), np.uint8)}


def nested(number: Any) -> Nested:
    return Nested(b"", point(1))


def matrix(number: Any) -> np.ndarray[tuple[int, int], np.dtype[np.int16]]:
    return np.zeros((1, 1), np.int16)


def array(number: Any) -> np.ndarray[Any, Any]:
    return np.zeros(1)


def scalar(number: Any) -> np.float32:
    return np.float32(1)


def words(number: Any) -> list[str]:
    return []


def ragged(number: Any) -> RaggedArray:
    raise NotImplementedError


def unknown_name(number: Any) -> Missing:  # type: ignore[name-defined]  # noqa: F821
    return None


def no_fields(number: Any) -> Partial:
    return {}


def of_itself(number: Any) -> Linked:
    raise NotImplementedError


def any_tuple(number: Any) -> tuple[int, ...]:
    return ()


def maybe(number: Any) -> int | None:
    return None


def mapping(number: Any) -> dict[str, int]:
    return {}


def any_float(number: Any) -> np.floating[Any]:
    return np.float32(1)


def generated(number: Any) -> Iterator[tuple[int, float]]:
    yield 1, 1.0


async def generated_later(number: Any) -> AsyncIterator[Point]:
    yield point(1)


def inner(number: Any) -> Dataset[int]:
    return TEN


def rows(number: Any) -> np.ndarray[tuple[int, int], np.dtype[np.int16]]:
    return np.zeros((1, 1), np.int16)


def scanned(state: int, number: Any) -> tuple[int, np.float32]:
    return 1, np.float32(1)


@pytest.mark.parametrize(
    ("function", "spec"),
    [
        (an_int, INT),
        (later, INT),
        (wrapped, INT),
        (partial(partial(an_int)), INT),
        (Called(), FLOAT),
        (Called().method, ArraySpec((), np.dtype(np.bool_))),
        (pair, (INT, TEXT)),
        (point, Point(INT, FLOATS)),  # type: ignore[arg-type]
        (Point, Point(INT, FLOATS)),  # type: ignore[arg-type]
        (named, {"name": TEXT, "image": ArraySpec((2, 3), np.dtype(np.uint8))}),
        (nested, Nested(TEXT, Point(INT, FLOATS))),  # type: ignore[arg-type]
        (matrix, ArraySpec((None, None), np.dtype(np.int16))),
        (scalar, ArraySpec((), np.dtype(np.float32))),
        (ragged, ArraySpec(None, None, ragged=True)),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_an_annotated_result_is_known(function: Any, spec: Any) -> None:
    assert TEN.map(function).element_spec == spec


@pytest.mark.parametrize(
    "function",
    [array, words, unknown_name, no_fields, of_itself, any_tuple, maybe, mapping, any_float, len, lambda number: 1],
    ids=lambda function: function.__name__,
)
def test_other_results_are_unknown(function: Any) -> None:
    assert TEN.map(function).element_spec == UNKNOWN


def test_the_items_of_an_annotated_iterable_are_known() -> None:
    assert TEN.flat_map(generated).element_spec == (INT, FLOAT)
    assert TEN.interleave(generated_later).element_spec == Point(INT, FLOATS)  # type: ignore[arg-type]
    assert TEN.flat_map(inner).element_spec == INT
    assert TEN.flat_map(words).element_spec == TEXT
    assert TEN.flat_map(rows).element_spec == ArraySpec((None,), np.dtype(np.int16))
    assert TEN.flat_map(mapping).element_spec == UNKNOWN
    assert TEN.flat_map(pair).element_spec == UNKNOWN


def test_outputs_of_functions_with_a_state_are_known() -> None:
    assert TEN.scan(scanned, 0).batch(2).element_spec == ArraySpec((None,), np.dtype(np.float32))
    assert TEN.aggregate(Kept).element_spec == INT
    assert TEN.map(matrix, batched=True).element_spec == ArraySpec(None, np.dtype(np.int16))


def test_a_declared_spec_precedes_an_annotation() -> None:
    assert TEN.map(an_int, spec=FLOAT).element_spec == FLOAT


def test_checks_of_a_plan_do_not_use_annotations() -> None:
    assert len(list(TEN.map(an_int).concatenate(Dataset.from_tensor_slices(["a"])))) == 11
    wrong = TEN.map(named).select("other")
    with pytest.raises(ColumnError, match="no such column"):
        _ = wrong.element_spec
