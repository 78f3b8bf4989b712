"""Sources whose data is in memory or in the user's Python: what they give, as tf.data defines it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

import aiostream_data as asd
from aiostream_data.errors import PlanError, SignatureError


class Point(NamedTuple):
    x: Any
    y: Any


@dataclass(frozen=True)
class Pair:
    image: Any
    label: Any


def test_from_tensors_gives_the_whole_structure_as_one_element() -> None:
    element: dict[str, Any] = {"a": np.arange(3), "b": (1, b"two", [3, 4])}
    (given,) = asd.Dataset.from_tensors(element)
    assert given["a"].tolist() == [0, 1, 2]
    assert given["b"] == (1, b"two", [3, 4])


def test_from_tensor_slices_turns_a_list_into_an_array_and_slices_it() -> None:
    assert list(asd.Dataset.from_tensor_slices([1, 2, 3])) == [1, 2, 3]
    rows = list(asd.Dataset.from_tensor_slices([[1, 2], [3, 4]]))
    assert [row.tolist() for row in rows] == [[1, 2], [3, 4]]


def test_from_tensor_slices_takes_a_tuple_as_structure() -> None:
    dataset = asd.Dataset.from_tensor_slices(([1, 2], [3, 4], [5, 6]))
    assert list(dataset) == [(1, 3, 5), (2, 4, 6)]


def test_from_tensor_slices_keeps_dict_namedtuple_and_dataclass() -> None:
    assert list(asd.Dataset.from_tensor_slices({"a": [1, 2], "b": [3, 4]})) == [{"a": 1, "b": 3}, {"a": 2, "b": 4}]
    assert list(asd.Dataset.from_tensor_slices(Point([1, 2], [3, 4]))) == [Point(1, 3), Point(2, 4)]
    assert list(asd.Dataset.from_tensor_slices(Pair([1, 2], [3, 4]))) == [Pair(1, 3), Pair(2, 4)]


def test_from_tensor_slices_keeps_nested_structure() -> None:
    dataset = asd.Dataset.from_tensor_slices({"in": ([1, 2], {"deep": [3, 4]}), "out": [5, 6]})
    assert list(dataset) == [{"in": (1, {"deep": 3}), "out": 5}, {"in": (2, {"deep": 4}), "out": 6}]


@pytest.mark.parametrize("values", [["a", "b\u00e9", ""], [b"a", b"b\x00", b""]])
def test_from_tensor_slices_gives_strings_and_bytes_back_unchanged(values: list[Any]) -> None:
    assert list(asd.Dataset.from_tensor_slices(values)) == values
    assert list(asd.Dataset.from_tensor_slices({"text": values})) == [{"text": value} for value in values]


def test_from_tensor_slices_gives_numpy_strings_as_python_strings() -> None:
    assert list(asd.Dataset.from_tensor_slices(np.array(["ab", "c"]))) == ["ab", "c"]
    assert list(asd.Dataset.from_tensor_slices(np.array([b"ab", b"c"]))) == [b"ab", b"c"]


def test_from_tensor_slices_refuses_axes_of_different_length_and_names_both() -> None:
    with pytest.raises(PlanError, match=r"a has 2 rows, b has 3"):
        asd.Dataset.from_tensor_slices({"a": [1, 2], "b": [1, 2, 3]})


def test_from_tensor_slices_refuses_a_scalar() -> None:
    with pytest.raises(PlanError, match="y is a scalar"):
        asd.Dataset.from_tensor_slices({"x": [1], "y": 3})


def test_elements_of_from_tensor_slices_cannot_change_the_array_behind_them() -> None:
    array = np.zeros((2, 2))
    for row in asd.Dataset.from_tensor_slices(array):
        with pytest.raises(ValueError, match="read-only"):
            row[:] = 1
    assert array.flags.writeable


def test_from_tensor_slices_of_nothing_is_empty() -> None:
    assert list(asd.Dataset.from_tensor_slices([])) == []
    assert list(asd.Dataset.from_tensor_slices(np.zeros((0, 3)))) == []


@pytest.mark.parametrize("arguments", [(5,), (2, 5), (2, 11, 3), (5, 0, -2), (0,), (5, 2), (-3, 3), (1000, 0, -1)])
def test_range_counts_as_python_does(arguments: tuple[int, ...]) -> None:
    assert list(asd.Dataset.range(*arguments)) == list(range(*arguments))


def test_range_gives_the_asked_dtype() -> None:
    (batch,) = asd.Dataset.range(3, dtype=np.float32).batch(3)
    assert batch.dtype == np.float32
    assert list(asd.Dataset.range(2, dtype=np.uint8)) == [np.uint8(0), np.uint8(1)]
    (batch,) = asd.Dataset.range(3).batch(3)
    assert batch.dtype == np.int64


def test_from_generator_is_called_anew_with_its_arguments_for_every_epoch() -> None:
    calls: list[tuple[int, int]] = []

    def count(start: int, stop: int) -> Iterator[int]:
        calls.append((start, stop))
        yield from range(start, stop)

    dataset = asd.Dataset.from_generator(count, args=(2, 5))
    assert list(dataset.repeat(3)) == [2, 3, 4] * 3
    assert calls == [(2, 5)] * 3
    assert list(dataset) == [2, 3, 4]
    assert len(calls) == 4


def test_from_generator_takes_any_function_that_returns_an_iterable() -> None:
    assert list(asd.Dataset.from_generator(lambda: [1, 2])) == [1, 2]
    assert list(asd.Dataset.from_generator(lambda: "ab")) == ["a", "b"]


def test_from_generator_takes_an_async_generator_function() -> None:
    async def count(stop: int) -> AsyncIterator[int]:
        for number in range(stop):
            await asyncio.sleep(0)
            yield number

    assert list(asd.Dataset.from_generator(count, args=(3,)).repeat(2)) == [0, 1, 2, 0, 1, 2]


def test_a_generator_is_finalised_when_the_consumer_stops_early() -> None:
    finalised = threading.Event()

    def endless() -> Iterator[int]:
        try:
            number = 0
            while True:
                yield number
                number += 1
        finally:
            finalised.set()

    for number in asd.Dataset.from_generator(endless):
        if number == 2:
            break
    assert finalised.is_set()


def test_an_async_generator_is_finalised_when_the_chain_has_enough() -> None:
    finalised = threading.Event()

    async def endless() -> AsyncIterator[int]:
        try:
            while True:
                yield 1
        finally:
            await asyncio.sleep(0)
            finalised.set()

    assert list(asd.Dataset.from_generator(endless).take(3)) == [1, 1, 1]
    assert finalised.is_set()


def test_items_of_a_generator_are_held_against_its_signature() -> None:
    signature = (asd.ArraySpec((), np.dtype(np.int64)), asd.ArraySpec((None, 2), np.dtype(np.float32)))

    def good() -> Iterator[Any]:
        yield 1, np.zeros((3, 2), np.float32)

    assert next(iter(asd.Dataset.from_generator(good, signature=signature)))[0] == 1

    for wrong, message in (
        ((1, np.zeros((3, 3), np.float32)), r"item 1 .*\[1\] must be float32 of shape \(None, 2\), got .*\(3, 3\)"),
        ((1, np.zeros((3, 2), np.float64)), r"got float64"),
        (np.zeros((3, 2), np.float32), r"expected structure"),
    ):

        def bad(wrong: Any = wrong) -> Iterator[Any]:
            yield 1, np.zeros((3, 2), np.float32)
            yield wrong

        with pytest.raises(SignatureError, match=message):
            list(asd.Dataset.from_generator(bad, signature=signature))


def test_from_iterable_reads_a_sequence_as_often_as_asked() -> None:
    dataset = asd.Dataset.from_iterable([1, "two", None, 3.5])
    assert list(dataset.repeat(2)) == [1, "two", None, 3.5] * 2
    assert list(dataset) == list(dataset)


class AsyncCount:
    """An async iterable that may be iterated again."""

    async def __aiter__(self) -> AsyncIterator[int]:
        for number in range(3):
            await asyncio.sleep(0)
            yield number


def test_from_iterable_takes_an_async_iterable() -> None:
    assert list(asd.Dataset.from_iterable(AsyncCount()).repeat(2)) == [0, 1, 2, 0, 1, 2]


def test_from_iterable_keeps_lists_and_odd_objects_as_they_are() -> None:
    odd = object()
    assert list(asd.Dataset.from_iterable([[1, 2], [3], {"a": [None]}, odd])) == [[1, 2], [3], {"a": [None]}, odd]


def test_numbers_of_a_mixed_iterable_keep_their_types() -> None:
    given = list(asd.Dataset.from_iterable([1, 2.5, True, 2**70]))
    assert given == [1, 2.5, True, 2**70]
    assert [type(value) for value in given] == [int, float, bool, int]


def test_from_iterable_refuses_what_cannot_be_iterated() -> None:
    with pytest.raises(PlanError, match="got int"):
        asd.Dataset.from_iterable(3)  # type: ignore[arg-type]
