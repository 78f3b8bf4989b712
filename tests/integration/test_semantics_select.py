"""Operators that choose, count or join whole streams: take, skip, shard, repeat, zip, concatenate, enumerate."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import aiostream_data as asd
from aiostream_data.errors import PlanError

FIVE = asd.Dataset.range(5)


@pytest.mark.parametrize(("count", "left"), [(0, []), (2, [0, 1]), (5, [0, 1, 2, 3, 4]), (9, [0, 1, 2, 3, 4])])
def test_take_gives_the_first_elements_and_no_more_than_there_are(count: int, left: list[int]) -> None:
    assert list(FIVE.take(count)) == left


def test_take_minus_one_gives_everything() -> None:
    assert list(FIVE.take(-1)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("count", "left"), [(0, [0, 1, 2, 3, 4]), (2, [2, 3, 4]), (5, []), (9, [])])
def test_skip_leaves_out_the_first_elements(count: int, left: list[int]) -> None:
    assert list(FIVE.skip(count)) == left


def test_skip_minus_one_skips_everything() -> None:
    assert list(FIVE.skip(-1)) == []
    assert list(FIVE.repeat().skip(-1)) == []


def test_take_and_skip_cut_across_chunks() -> None:
    assert list(asd.Dataset.range(100_000).skip(70_001).take(3)) == [70_001, 70_002, 70_003]


def test_take_ends_an_endless_input() -> None:
    assert list(FIVE.repeat().take(12)) == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1]


@pytest.mark.parametrize("index", [0, 1, 2])
def test_shard_gives_every_nth_element_across_chunks(index: int) -> None:
    assert list(asd.Dataset.range(10_000).shard(3, index)) == list(range(index, 10_000, 3))


def test_shards_of_a_data_set_smaller_than_their_number_may_be_empty() -> None:
    assert [list(asd.Dataset.range(2).shard(4, index)) for index in range(4)] == [[0], [1], [], []]


def test_repeat_gives_the_epochs_one_after_another() -> None:
    assert list(asd.Dataset.range(2).repeat(3)) == [0, 1] * 3
    assert list(asd.Dataset.range(2).repeat(0)) == []
    assert list(asd.Dataset.range(2).map(lambda x: x).repeat(2).repeat(2)) == [0, 1] * 4


@pytest.mark.parametrize("count", [None, -1])
def test_repeat_without_end_goes_on_as_long_as_anybody_asks(count: int | None) -> None:
    assert list(asd.Dataset.range(2).repeat(count).take(7)) == [0, 1, 0, 1, 0, 1, 0]
    assert list(asd.Dataset.from_tensor_slices([1, 2]).repeat(count).take(3)) == [1, 2, 1]


@pytest.mark.parametrize(
    "empty",
    [
        asd.Dataset.range(0),
        asd.Dataset.from_tensor_slices([]),
        asd.Dataset.range(9).filter(lambda x: x < 0),
        asd.Dataset.from_iterable([]),
        asd.Dataset.range(3).skip(3).shuffle(5),
    ],
    ids=["range", "slices", "filter", "iterable", "shuffle"],
)
def test_endless_repeat_of_nothing_ends(empty: asd.Dataset[int]) -> None:
    assert list(empty.repeat()) == []


def test_zip_ends_with_the_shortest() -> None:
    assert list(asd.Dataset.zip(asd.Dataset.range(1, 4), asd.Dataset.range(4, 99))) == [(1, 4), (2, 5), (3, 6)]
    assert list(asd.Dataset.range(0).zip(FIVE)) == []
    assert list(FIVE.repeat().zip(asd.Dataset.range(2))) == [(0, 0), (1, 1)]


def test_zip_of_inputs_in_chunks_of_different_size_keeps_them_in_step() -> None:
    slow = asd.Dataset.range(3000).filter(lambda x: x % 7 != 0)
    batches = asd.Dataset.range(3000).batch(7).unbatch().map(lambda x: -x)
    given = list(asd.Dataset.zip(slow, batches))
    assert given == list(zip((x for x in range(3000) if x % 7), (-x for x in range(3000)), strict=False))


class Named(NamedTuple):
    left: Any
    right: Any


def test_zip_keeps_the_structure_it_is_given() -> None:
    a, b = asd.Dataset.range(2), asd.Dataset.from_tensor_slices({"k": ["x", "y"]})
    assert list(asd.Dataset.zip({"a": a, "b": (b, a)}))[1] == {"a": 1, "b": ({"k": "y"}, 1)}
    assert next(iter(asd.Dataset.zip(Named(a, b)))) == Named(0, {"k": "x"})
    assert list(asd.Dataset.zip((a, a))) == [(0, 0), (1, 1)]


def test_zip_nests_tuples_as_they_were_given() -> None:
    pairs = asd.Dataset.zip(FIVE, FIVE)
    assert list(asd.Dataset.zip(pairs, FIVE))[1] == ((1, 1), 1)


def test_zip_refuses_a_list_since_lists_are_data() -> None:
    with pytest.raises(PlanError, match="list"):
        asd.Dataset.zip([FIVE, FIVE])


def test_zip_refuses_what_is_no_data_set() -> None:
    with pytest.raises(PlanError, match="got int"):
        asd.Dataset.zip(FIVE, 3)


def test_concatenate_gives_all_of_the_first_then_all_of_the_next() -> None:
    assert list(asd.Dataset.range(1, 4).concatenate(asd.Dataset.range(4, 8))) == [1, 2, 3, 4, 5, 6, 7]
    nothing = asd.Dataset.range(0)
    assert list(nothing.concatenate(FIVE, nothing, asd.Dataset.range(2))) == [0, 1, 2, 3, 4, 0, 1]


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        ([1], ["a"], "element is int64 in 'dataset 0' and object in 'dataset 2'"),
        ([1], [1.5], "element is int64 in 'dataset 0' and float64 in 'dataset 2'"),
        ({"a": [1], "b": [2]}, {"a": [1]}, "'dataset 0' has {a: int64, b: int64} and 'dataset 2' has {a: int64}"),
        ({"a": [1]}, ([1],), "'dataset 0' has {a: int64} and 'dataset 2' has (int64,)"),
        ({"a": {"b": ([1], [2])}}, {"a": {"b": ([1], [b"c"])}}, "a.b[1] is int64"),
    ],
    ids=["text", "dtype", "keys", "structure", "nested"],
)
def test_concatenate_refuses_elements_that_differ(first: object, second: object, text: str) -> None:
    one, two = asd.Dataset.from_tensor_slices(first), asd.Dataset.from_tensor_slices(second)
    unknown = one.map(lambda *row: row)
    with pytest.raises(TypeError) as caught:
        asd.Dataset.concatenate(one, unknown, two)
    assert isinstance(caught.value, asd.PlanError)
    assert text in str(caught.value)


def test_concatenate_joins_elements_of_different_shapes() -> None:
    small, large = (asd.Dataset.from_tensor_slices(np.zeros((1, *shape))) for shape in ((2,), (3, 4)))
    joined = small.concatenate(large)
    assert [element.shape for element in joined] == [(2,), (3, 4)]
    assert joined.element_spec == asd.ArraySpec(None, np.dtype(np.float64))
    alike = small.concatenate(asd.Dataset.from_tensor_slices(np.zeros((1, 5))))
    assert alike.element_spec == asd.ArraySpec((None,), np.dtype(np.float64))


def test_concatenate_joins_dicts_with_keys_in_another_order() -> None:
    one, two = ({"a": [1], "b": [2]}, {"b": [3], "a": [4]})
    joined = asd.Dataset.from_tensor_slices(one).concatenate(asd.Dataset.from_tensor_slices(two))
    assert list(joined) == [{"a": 1, "b": 2}, {"a": 4, "b": 3}]
    assert list(joined.element_spec) == ["a", "b"]


def test_concatenate_joins_elements_that_are_unknown() -> None:
    text = FIVE.map(lambda number: f"{number}")
    assert list(FIVE.take(1).concatenate(text.take(1))) == [0, "0"]
    assert FIVE.concatenate(text).element_spec == asd.ArraySpec(None, None)
    rows = asd.Dataset.from_tensor_slices({"a": [1]})
    known, unknown = (rows.with_column("b", len) for _ in range(2))
    assert len(list(known.drop("b").concatenate(unknown.drop("b")))) == 2
    assert known.concatenate(asd.Dataset.from_tensor_slices({"a": [1], "b": {"c": [2]}})).cardinality() == 2
    assert FIVE.enumerate().concatenate(text.enumerate()).element_spec == (
        asd.ArraySpec((), np.dtype(np.int64)),
        asd.ArraySpec(None, None),
    )


def test_concatenate_knows_what_the_shapes_of_its_datasets_have_in_common() -> None:
    two, three = (asd.Dataset.range(6).batch(size, drop_remainder=True) for size in (2, 3))
    assert two.concatenate(three).element_spec == asd.ArraySpec((None,), np.dtype(np.int64))
    assert two.concatenate(two).element_spec == asd.ArraySpec((2,), np.dtype(np.int64))
    assert two.concatenate(asd.Dataset.range(2)).element_spec == asd.ArraySpec(None, np.dtype(np.int64))
    assert [batch.tolist() for batch in two.concatenate(three)] == [[0, 1], [2, 3], [4, 5], [0, 1, 2], [3, 4, 5]]


def test_enumerate_counts_from_its_start() -> None:
    assert list(asd.Dataset.from_tensor_slices(["a", "b"]).enumerate(start=5)) == [(5, "a"), (6, "b")]
    assert list(asd.Dataset.from_iterable([None, "b"]).enumerate()) == [(0, None), (1, "b")]


def test_enumerate_counts_across_chunks_and_batches() -> None:
    assert [number for number, _ in asd.Dataset.range(10_000).enumerate()] == list(range(10_000))
    batches = list(asd.Dataset.range(10).batch(4).enumerate())
    assert [(number, batch.tolist()) for number, batch in batches] == [
        (0, [0, 1, 2, 3]),
        (1, [4, 5, 6, 7]),
        (2, [8, 9]),
    ]


def test_apply_hands_the_data_set_to_a_function() -> None:
    def evens(dataset: asd.Dataset[int]) -> asd.Dataset[int]:
        return dataset.filter(lambda x: x % 2 == 0)

    assert list(FIVE.apply(evens)) == [0, 2, 4]


def test_prefetch_changes_nothing_but_time() -> None:
    assert list(FIVE.prefetch(1).map(lambda x: x * x).prefetch(3).prefetch()) == [0, 1, 4, 9, 16]


def test_a_data_set_is_iterated_by_several_consumers_independently() -> None:
    first, second = iter(FIVE), iter(FIVE)
    assert [next(first), next(first), next(second)] == [0, 1, 0]
    assert [*second] == [1, 2, 3, 4]
    assert [*first] == [2, 3, 4]


def test_elements_of_int_slices_come_as_python_numbers_and_others_as_numpy() -> None:
    assert type(next(iter(asd.Dataset.from_tensor_slices([1])))) is int
    assert type(next(iter(asd.Dataset.from_tensor_slices(np.array([1], np.int8))))) is np.int8
