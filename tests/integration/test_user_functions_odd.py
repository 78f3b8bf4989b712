"""Odd functions and odd results: what is a value passes as it is, what is none is refused where it is seen first."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from threading import Event
from typing import Any, NamedTuple

import numpy as np
import pytest
from leaks import leaves_nothing

import aiostream_data as asd
from aiostream_data.errors import BatchShapeError, PlanError, StageBuildError

FOUR = asd.Dataset.range(4)


def lists(dataset: asd.Dataset[Any]) -> list[Any]:
    return [element.tolist() for element in dataset]


def constant(value: Any) -> Callable[[Any], Any]:
    return lambda _: value


# -- None is a value


def test_none_is_an_element_like_any_other() -> None:
    assert list(FOUR.map(lambda x: None)) == [None] * 4
    assert (
        list(FOUR.map(lambda x: None if x % 2 else int(x)).shuffle(2, seed=1).filter(lambda x: x is None)) == [None] * 2
    )


def test_a_batch_of_none_is_an_array_of_none() -> None:
    batches = list(FOUR.map(lambda x: {"a": x, "b": None}).batch(2))
    assert [batch["b"].tolist() for batch in batches] == [[None, None]] * 2
    assert [batch["a"].tolist() for batch in batches] == [[0, 1], [2, 3]]
    assert lists(FOUR.map(lambda x: None).padded_batch(3)) == [[None] * 3, [None]]


def test_none_beside_numbers_does_not_stack_and_says_so() -> None:
    message = r"cannot batch leaf 'b': shape \(\) of int64 in range record 0 but a NoneType in range record 1"
    with pytest.raises(BatchShapeError, match=message):
        list(FOUR.map(lambda x: {"b": None if x == 1 else x}).batch(2))


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        (FOUR.filter(constant(None)), "filter.* must return a scalar bool, but .* returned None"),
        (FOUR.flat_map(constant(None)), "flat_map.* must return a Dataset or an iterable, but .* returned None"),
        (FOUR.interleave(constant(7)), "interleave.* must return a Dataset or an iterable, but .* returned 7"),
    ],
)
def test_an_operator_that_needs_more_than_none_names_function_and_record(
    dataset: asd.Dataset[Any], message: str
) -> None:
    with pytest.raises(PlanError, match=message) as caught:
        list(dataset)
    assert "record: range record 0" in caught.value.__notes__


# -- structures


def test_elements_may_differ_in_structure_until_they_are_stacked() -> None:
    dataset = FOUR.map(lambda x: {"a": x} if x % 2 else (x,))
    assert list(dataset) == [(0,), {"a": 1}, (2,), {"a": 3}]
    with pytest.raises(
        BatchShapeError, match=r"structure \(\*,\) in range record 0 but structure {a: \*} in range record 1"
    ):
        list(dataset.batch(2))


class Point(NamedTuple):
    x: Any
    y: Any


@dataclasses.dataclass
class Pixel:
    x: Any
    y: Any = dataclasses.field(kw_only=True, default=1)


def test_named_tuples_and_dataclasses_are_kept() -> None:
    assert list(FOUR.map(lambda x: Point(x, 2 * x))) == [Point(n, 2 * n) for n in range(4)]
    [points] = FOUR.map(lambda x: Point(x, 2 * x)).batch(4)
    assert (type(points), points.x.tolist(), points.y.tolist()) == (Point, [0, 1, 2, 3], [0, 2, 4, 6])
    [pixels] = FOUR.map(lambda x: Pixel(x)).batch(4)
    assert (type(pixels), pixels.x.tolist(), pixels.y.tolist()) == (Pixel, [0, 1, 2, 3], [1, 1, 1, 1])


@dataclasses.dataclass
class Doubled:
    size: Any
    area: Any = dataclasses.field(init=False, default=0.0)

    def __post_init__(self) -> None:
        self.size *= 2


class Larger(Doubled):
    """Nothing of its own, but another class."""


class Made(Point):
    """A NamedTuple that is made of other arguments than its fields."""

    def __new__(cls, both: int) -> Made:
        return super().__new__(cls, both, both)


def _with_area(size: int) -> Doubled:
    made = Larger(size) if size % 2 else Doubled(size)
    made.area = float(size)
    return made


def _with_a_name(size: int) -> Doubled:
    made = Doubled(size)
    made.name = f"no {size}"  # type: ignore[attr-defined]
    return made


@pytest.mark.parametrize("executor", ["thread", "process"])
@pytest.mark.parametrize("function", [_with_area, _with_a_name, Made], ids=lambda function: function.__name__)
def test_values_are_not_made_anew_by_their_constructors(function: Callable[[int], Any], executor: Any) -> None:
    expected = [function(number) for number in range(4)]
    found = list(FOUR.map(function, executor=executor, concurrency=1))
    assert list(map(type, found)) == list(map(type, expected))
    assert list(map(_facts, found)) == list(map(_facts, expected))


def _facts(value: Any) -> Any:
    return value if isinstance(value, tuple) else (value.size, value.area, getattr(value, "name", None))


def test_batches_of_dataclasses_hold_the_fields_as_they_were() -> None:
    [batch] = asd.Dataset.range(4).map(lambda size: Doubled(size)).batch(4)
    assert (type(batch), batch.size.tolist(), batch.area.tolist()) == (Doubled, [0, 2, 4, 6], [0.0] * 4)


@pytest.mark.parametrize("kind", [OrderedDict, type("Mine", (dict,), {})])
def test_other_kinds_of_dict_become_plain_ones(kind: type[dict[str, Any]]) -> None:
    rows = list(FOUR.map(lambda x: kind(a=x)))
    assert [(type(row), row) for row in rows] == [(dict, {"a": n}) for n in range(4)]
    [batch] = FOUR.map(lambda x: kind(a=x)).batch(4)
    assert (type(batch), batch["a"].tolist()) == (dict, [0, 1, 2, 3])


class Shape(tuple[int, ...]):
    """A tuple that is one value, as torch.Size is."""

    __slots__ = ()


def test_other_kinds_of_tuple_are_values_and_not_structure() -> None:
    shapes = FOUR.map(lambda x: Shape((x, 2)))
    assert [(type(shape), tuple(shape)) for shape in shapes] == [(Shape, (n, 2)) for n in range(4)]
    assert list(shapes.map(lambda shape: len(shape))) == [2] * 4  # not unpacked
    assert lists(shapes.batch(2)) == [[[0, 2], [1, 2]], [[2, 2], [3, 2]]]
    [batch] = FOUR.map(lambda x: {"shape": Shape((x, 2)), "n": x}).batch(4)
    assert batch["shape"].tolist() == [[n, 2] for n in range(4)]


@pytest.mark.parametrize("empty", [{}, (), {"a": {}, "b": ()}])
def test_elements_without_leaves_pass(empty: Any) -> None:
    assert list(FOUR.map(lambda x: empty)) == [empty] * 4
    assert list(FOUR.map(lambda x: empty).batch(4)) == [empty]


# -- values


def test_integers_of_any_size_pass_and_stack_as_long_as_they_have_64_bits() -> None:
    assert list(FOUR.map(lambda x: 10**30 + int(x))) == [10**30 + n for n in range(4)]
    with pytest.raises(BatchShapeError, match="an int beyond 64 bits in range record 2"):
        list(FOUR.map(lambda x: 10**30 if x == 2 else int(x)).batch(4))
    [batch] = FOUR.map(lambda x: 2**63 + int(x)).batch(4)
    assert (batch.dtype.name, batch.tolist()) == ("uint64", [2**63 + n for n in range(4)])


def test_any_object_is_a_value() -> None:
    assert list(FOUR.map(lambda x: int if x else ...)) == [..., int, int, int]
    assert [str(error) for error in FOUR.map(lambda x: ValueError(int(x)))] == ["0", "1", "2", "3"]
    assert lists(FOUR.map(lambda x: {int(x)}).batch(2)) == [[{0}, {1}], [{2}, {3}]]


def test_masked_values_are_not_taken_for_real_ones() -> None:
    rows = FOUR.map(lambda x: np.ma.array([x, 7], mask=[False, True]))
    assert [row.sum() for row in rows] == [0, 1, 2, 3]
    with pytest.raises(BatchShapeError, match=r"range record 0 .* its mask would be lost\. Use \.filled\(\)"):
        list(rows.batch(4))


async def later(value: int) -> int:
    return value


def several(value: int) -> Iterator[int]:
    yield from range(value)


async def several_later(value: int) -> AsyncIterator[int]:
    for number in range(value):
        yield number


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: later(x), "returned a coroutine, which is not a value. Pass the coroutine function itself"),
        (lambda x: several(x), "returned a generator, which is not a value. Use flat_map"),
        (lambda x: several_later(x), "returned a async_generator, which is not a value. Use flat_map"),
        (lambda x: asd.Dataset.range(x), "returned a Dataset, which is not a value. Use flat_map"),
        (lambda x: x if x < 2 else several(x), "returned a generator, which is not a value"),
    ],
)
def test_what_is_no_value_yet_is_refused_with_the_cure(function: Callable[[Any], Any], message: str) -> None:
    with leaves_nothing(), pytest.raises(PlanError, match=message) as caught:
        list(FOUR.map(function))
    assert any(note.startswith("record: range record ") for note in caught.value.__notes__)


# -- generator functions


class Several:
    def __call__(self, value: int) -> Iterator[int]:
        yield from range(value)

    def method(self, value: int) -> Iterator[int]:
        yield from range(value)


GENERATORS: list[Any] = [several, several_later, functools.partial(several), Several(), Several().method]


@pytest.mark.parametrize("function", GENERATORS)
def test_a_generator_function_is_refused_where_one_value_is_needed(function: Any) -> None:
    for operator_name in ("map", "filter"):
        with pytest.raises(StageBuildError, match=rf"{operator_name}\(\) .* is a generator function\. Use flat_map"):
            getattr(FOUR, operator_name)(function)


@pytest.mark.parametrize("function", GENERATORS)
def test_a_generator_function_gives_the_elements_of_flat_map(function: Any) -> None:
    assert list(FOUR.flat_map(function)) == [0, 0, 1, 0, 1, 2]
    assert sorted(FOUR.interleave(function, cycle_length=2)) == [0, 0, 0, 1, 1, 2]


def test_flat_map_pulls_a_generator_no_further_than_it_must_and_closes_it() -> None:
    pulled: list[int] = []
    closed = Event()

    def endless(value: int) -> Iterator[int]:
        try:
            number = 0
            while True:
                pulled.append(number)
                yield number
                number += 1
        finally:
            closed.set()

    with leaves_nothing():
        assert list(FOUR.flat_map(endless).take(3)) == [0, 1, 2]
        assert closed.wait(2)
    assert len(pulled) < 100_000


def test_an_async_generator_is_closed_when_the_consumer_has_enough() -> None:
    closed = Event()

    async def endless(value: int) -> AsyncIterator[int]:
        try:
            while True:
                yield value
        finally:
            closed.set()

    with leaves_nothing():
        assert list(FOUR.flat_map(endless).take(3)) == [0, 0, 0]
        assert closed.wait(2)


# -- ways to write a function


class Adder:
    def __call__(self, value: int) -> int:
        return value + 2

    def method(self, value: int) -> int:
        return value + 3

    @staticmethod
    def static(value: int) -> int:
        return value + 4

    @classmethod
    def of_class(cls, value: int) -> int:
        return value + 5

    async def later(self, value: int) -> int:
        return value + 6


CALLABLES: list[tuple[Callable[..., Any], list[Any]]] = [
    (functools.partial(operator.add, 5), [5, 6, 7, 8]),
    (functools.partial(lambda x, *, y: x + y, y=7), [7, 8, 9, 10]),
    (Adder(), [2, 3, 4, 5]),
    (Adder().method, [3, 4, 5, 6]),
    (Adder.static, [4, 5, 6, 7]),
    (Adder.of_class, [5, 6, 7, 8]),
    (Adder().later, [6, 7, 8, 9]),
    (float, [0.0, 1.0, 2.0, 3.0]),
    (str, ["0", "1", "2", "3"]),
    (operator.neg, [0, -1, -2, -3]),
    (np.square, [0, 1, 4, 9]),
    ((5).__add__, [5, 6, 7, 8]),
    ("<{}>".format, ["<0>", "<1>", "<2>", "<3>"]),
    (Pixel, [Pixel(0), Pixel(1), Pixel(2), Pixel(3)]),
    (lambda x, y=3: x + y, [3, 4, 5, 6]),
    (lambda x, *, y=3: x + y, [3, 4, 5, 6]),
    (lambda *x: x, [(0,), (1,), (2,), (3,)]),
    (lambda x, **others: (x, len(others)), [(0, 0), (1, 0), (2, 0), (3, 0)]),
    (functools.lru_cache(lambda x: x + 1), [1, 2, 3, 4]),
    (functools.cache(lambda x: x + 1), [1, 2, 3, 4]),
]


@pytest.mark.parametrize(("function", "expected"), CALLABLES, ids=[str(number) for number in range(len(CALLABLES))])
def test_whatever_can_be_called_with_an_element_is_a_function(
    function: Callable[..., Any], expected: list[Any]
) -> None:
    assert list(FOUR.map(function)) == expected


def needs_more(value: int, *, scale: int) -> int:
    return value * scale


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (needs_more, "also needs scale=. Add a default value, or bind the argument with functools.partial"),
        (lambda: 1, "takes no positional argument"),
        (lambda *, value: value, "takes no positional argument"),
    ],
)
def test_a_function_that_no_element_suits_is_refused_where_it_is_written(
    function: Callable[..., Any], message: str
) -> None:
    chains: list[Any] = [FOUR.map, FOUR.filter, FOUR.flat_map, FOUR.interleave]
    for chain in chains:
        with pytest.raises(StageBuildError, match=rf"{chain.__name__}\(\) calls its function .*{message}"):
            chain(function)


def test_a_function_for_other_elements_fails_on_the_first_of_them() -> None:
    with pytest.raises(StageBuildError, match=r"takes 2 arguments \(x, y\), but is called with 1") as caught:
        list(FOUR.map(lambda x, y: x))
    assert "record: range record 0" in caught.value.__notes__
    assert list(FOUR.zip(FOUR).map(lambda x, y: x + y)) == [0, 2, 4, 6]


# -- functions that change what they are given, or keep it


def append_nine(values: list[int]) -> list[int]:
    values.append(9)
    return values


def relabel(row: dict[str, Any]) -> dict[str, Any]:
    row["label"] = 1
    row["list"].append(9)
    row.pop("none")
    return row


def overwrite(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    array[...] = 99
    return array


def test_a_cache_stays_as_it_was_whatever_is_done_to_its_elements() -> None:
    cached = FOUR.map(lambda x: [int(x)]).cache()
    for _ in range(2):
        assert list(cached.map(append_nine)) == [[n, 9] for n in range(4)]
    assert list(cached) == [[n] for n in range(4)]
    rows = FOUR.map(lambda x: {"n": int(x), "none": None, "list": [int(x)], "array": np.zeros(int(x))}).cache()
    for _ in range(2):
        changed = list(rows.map(relabel))
        assert [(row["n"], row["list"], row["label"]) for row in changed] == [(n, [n, 9], 1) for n in range(4)]
    assert [sorted(row) for row in rows] == [["array", "list", "n", "none"]] * 4
    varied = FOUR.map(lambda x: np.full(int(x), int(x))).cache()
    list(varied.map(lambda row: overwrite(row) if row.flags.writeable else row))
    assert [row.tolist() for row in varied] == [[n] * n for n in range(4)]


def test_two_readers_of_a_cache_do_not_see_what_the_other_does() -> None:
    cached = FOUR.map(lambda x: [int(x)]).cache()
    assert list(asd.Dataset.zip(cached.map(append_nine), cached)) == [([n, 9], [n]) for n in range(4)]


def test_what_was_given_to_from_tensors_stays_as_it_was() -> None:
    array = np.arange(3)
    element = {"none": None, "list": [1], "array": array}
    dataset = asd.Dataset.from_tensors(element).repeat(2)
    for row in dataset.map(relabel):
        overwrite(row["array"])
        assert (row["list"], row["label"]) == ([1, 9], 1)
    assert element == {"none": None, "list": [1], "array": array}
    assert array.tolist() == [0, 1, 2]


def test_arrays_of_many_rows_are_read_only_to_functions() -> None:
    array = np.arange(12).reshape(4, 3)
    with pytest.raises(ValueError, match="read-only"):
        list(asd.Dataset.from_tensor_slices(array).map(overwrite))
    assert array.tolist() == np.arange(12).reshape(4, 3).tolist()


@pytest.mark.parametrize("dataset", [FOUR.map(lambda n: np.arange(1 << 15) + n), asd.Dataset.range(3000)])
def test_views_of_what_came_in_stay_what_they_were_while_others_are_read(dataset: asd.Dataset[Any]) -> None:
    kept = list(dataset.map(lambda array: np.asarray(array)[..., None][:1]))
    assert [int(view.flat[0]) for view in kept] == list(range(len(kept)))


def test_views_of_rows_of_files_stay_what_they_were_while_others_are_read(tmp_path: Any) -> None:
    with asd.TFRecordWriter(tmp_path / "rows.tfrecord") as writer:
        for number in range(2000):
            writer.write(asd.encode_example({"v": np.full(200, number)}))
    parsed = asd.Dataset.from_tfrecord(tmp_path / "rows.tfrecord").parse_example({"v": asd.FixedLen((200,), np.int64)})
    kept = list(parsed.map(lambda row: row["v"][100:]))
    assert all((view == number).all() for number, view in enumerate(kept))
