"""Tests of elements without leaves, and of the cause named for leaves with None."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aiostream_data import AiostreamError, BatchShapeError, Dataset, PlanError


class _Name(str):
    """A str of a class of its own."""


@pytest.mark.parametrize("result", [{}, (), {"a": {}}], ids=str)
def test_a_batched_function_must_return_an_array(result: Any) -> None:
    with pytest.raises(PlanError, match=r"has no arrays\. Return at least one array"):
        list(Dataset.range(2).map(lambda x: result, batched=True))


@pytest.mark.parametrize("element", [{}, (), {"a": {}}], ids=str)
@pytest.mark.parametrize(
    "combine",
    [lambda rows: rows.pack(4), lambda rows: rows.batch(max_cost=10), lambda rows: rows.pack(4, fields=["b"])],
)
def test_elements_without_leaves_cannot_be_packed(element: Any, combine: Callable[[Any], Any]) -> None:
    with pytest.raises(AiostreamError, match="elements have no leaves"):
        list(combine(Dataset.range(2).map(lambda x: element)))


@pytest.mark.parametrize("element", [{}, (), {"a": {}}], ids=str)
def test_elements_without_leaves_are_batched_and_padded_without_leaves(element: Any) -> None:
    rows = Dataset.range(2).map(lambda x: element)
    assert list(rows.batch(2)) == list(rows.padded_batch(2)) == [element]


@pytest.mark.parametrize(
    ("rows", "first", "other"),
    [
        (["a", None, b"q"], "a str in from_iterable() record 0", "a bytes in from_iterable() record 2"),
        ([None, "a", b"q"], "a str in from_iterable() record 1", "a bytes in from_iterable() record 2"),
        ([None, "a", 1], "a str in from_iterable() record 1", "shape () of int64 in from_iterable() record 2"),
        ([_Name("n"), "a", b"q"], "a str in from_iterable() record 0", "a bytes in from_iterable() record 2"),
        ([1, None], "shape () of int64 in from_iterable() record 0", "a NoneType in from_iterable() record 1"),
        (
            ["a", None, np.ones(2)],
            "a str in from_iterable() record 0",
            "shape (2,) of float64 in from_iterable() record 2",
        ),
    ],
)
def test_the_error_names_the_rows_that_do_not_belong_together(rows: list[Any], first: str, other: str) -> None:
    with pytest.raises(BatchShapeError) as raised:
        list(Dataset.from_iterable(rows).batch(3))
    assert f"cannot batch leaf 'element': {first} but {other}. " in str(raised.value)
