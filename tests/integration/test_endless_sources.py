"""``counter``, ``random`` and ``from_list``: numbers without end, and elements in a list."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import Any

import numpy as np
import pytest

import aiostream_data as asd
from aiostream_data import INFINITE, ArraySpec, CardinalityError, Dataset, PlanError
from aiostream_data.plan.rewrite import rewrite
from aiostream_data.plan.sources import TensorSlices
from aiostream_data.testing.resume import resumes_everywhere

INT64 = ArraySpec((), np.dtype(np.int64))


def first(dataset: Dataset[Any], count: int, **options: Any) -> list[Any]:
    with dataset.open(**options) as loader:
        return list(islice(loader, count))


# -- counter


def test_a_counter_counts_without_end() -> None:
    assert first(Dataset.counter(), 5) == [0, 1, 2, 3, 4]
    assert first(Dataset.counter(5, 2), 3) == [5, 7, 9]
    assert first(Dataset.counter(start=10, step=-1), 3) == [10, 9, 8]
    assert first(Dataset.counter(3, 0), 3) == [3, 3, 3]
    assert first(Dataset.counter(), 200_000)[-1] == 199_999


def test_the_plan_of_a_counter_knows_its_elements() -> None:
    assert Dataset.counter().cardinality() == INFINITE
    assert Dataset.counter().element_spec == INT64
    assert "counter(5, 2)" in Dataset.counter(5, 2).explain()
    assert "counter(5)" in Dataset.counter(5).explain()


@pytest.mark.parametrize(
    ("start", "step", "fitting"), [(2**63 - 3, 1, 3), (-(2**63), 2**62, 4), (1 - 2**63, -1, 2), (0, 2**63 - 1, 2)]
)
def test_a_number_beyond_int64_is_an_error_behind_the_numbers_before(start: int, step: int, fitting: int) -> None:
    with Dataset.counter(start, step).open() as loader:
        assert list(islice(loader, fitting)) == [start + step * row for row in range(fitting)]
        with pytest.raises(CardinalityError, match=rf"counter\(\) cannot emit element {fitting}"):
            next(loader)


@pytest.mark.parametrize("wrong", [1.5, "1", 2**63, None])
def test_a_counter_refuses_what_is_no_int64(wrong: Any) -> None:
    with pytest.raises(PlanError, match=r"counter\(\) start"):
        Dataset.counter(wrong)
    with pytest.raises(PlanError, match=r"counter\(\) step"):
        Dataset.counter(0, wrong)


# -- random


def test_random_numbers_are_a_function_of_the_seed() -> None:
    numbers = first(Dataset.random(7), 1000)
    assert numbers == first(Dataset.random(7), 1000) == first(Dataset.random(seed=7).repeat(), 1000, seed=3, epoch=4)
    assert numbers != first(Dataset.random(8), 1000)
    assert first(Dataset.random(), 9, seed=1) != first(Dataset.random(), 9, seed=2)


def test_random_numbers_are_uniform_below_two_to_the_32() -> None:
    numbers = first(Dataset.random(1), 16_000)
    assert 0 <= min(numbers) < 2**20
    assert 2**32 - 2**20 < max(numbers) < 2**32
    assert all(850 < count < 1150 for count in Counter(number >> 28 for number in numbers).values())


def test_random_numbers_of_two_sources_differ() -> None:
    pairs = first(Dataset.zip(Dataset.random(1), Dataset.random(1)), 20)
    assert all(one != other for one, other in pairs)


@pytest.mark.parametrize("again", [True, False])
def test_every_epoch_has_new_numbers_if_asked(again: bool) -> None:
    dataset = Dataset.random(3, rerandomize_each_iteration=again).take(5)
    assert (list(dataset) == list(dataset)) is not again
    twice = list(dataset.repeat(2))
    assert (twice[:5] == twice[5:]) is not again


def test_the_place_of_a_source_is_a_number() -> None:
    with Dataset.random(3).open() as loader:
        assert len(list(islice(loader, 20))) == 20
        assert loader.state_dict()["position"] == {"op": "rows", "next": 20}


def test_ranks_share_the_numbers() -> None:
    for dataset in (Dataset.random(3), Dataset.counter()):
        every = first(dataset, 12, rank=0, world_size=1)
        for rank in range(3):
            assert first(dataset, 4, rank=rank, world_size=3) == every[rank::3]


def test_numbers_can_be_fetched() -> None:
    for dataset in (Dataset.random(3), Dataset.counter(4)):
        with dataset.open() as loader:
            found = [(next(loader), loader.origins()[0]) for _ in range(5)]
        assert [dataset.fetch(origin) for _, origin in found] == [element for element, _ in found]


# -- from_list


def test_a_list_of_structures_gives_its_elements() -> None:
    elements: list[dict[str, Any]] = [
        {"id": n, "text": "x" * n, "pair": (n / 2, np.full(2, n, np.float32))} for n in range(4)
    ]
    dataset = Dataset.from_list(elements)
    assert [(row["id"], row["text"], row["pair"][0], row["pair"][1].tolist()) for row in dataset] == [
        (n, "x" * n, n / 2, [n, n]) for n in range(4)
    ]
    assert dataset.cardinality() == len(dataset) == 4
    assert dataset.element_spec["id"] == INT64
    assert "from_list(" in dataset.explain()


def test_a_list_keeps_types_and_order() -> None:
    for elements in (
        [3, 1, 2],
        [b"a", b""],
        ["a", "bc"],
        [1.5, 2.5],
        [(1, "a"), (2, "b")],
        [True, False],
    ):
        got = list(Dataset.from_list(elements))
        assert got == elements
        assert list(map(type, got)) == list(map(type, elements))


def test_a_list_may_change_after_the_call() -> None:
    elements = [np.zeros(2), np.ones(2)]
    dataset = Dataset.from_list(elements)
    elements[0][:] = 9
    elements.clear()
    assert [row.tolist() for row in dataset] == [[0, 0], [1, 1]]


def test_a_list_is_shuffled_without_a_buffer() -> None:
    shuffled = Dataset.from_list(list(range(1000))).shuffle(seed=1)
    assert sorted(shuffled) == list(range(1000))
    source = rewrite(shuffled.plan)
    assert isinstance(source, TensorSlices)
    assert source.permuted is not None


@pytest.mark.parametrize(
    "elements", [[1, "a"], [{"a": 1}, {"b": 1}], [np.zeros(2), np.zeros(3)], [1, 2.5], [object()], [{1}, {2}]]
)
def test_elements_that_differ_are_refused(elements: list[Any]) -> None:
    with pytest.raises(PlanError, match=r"use from_iterable\(\)"):
        Dataset.from_list(elements)


@pytest.mark.parametrize("wrong", [[], (), 3, "abc", {"a": [1]}, np.arange(3), iter([1])])
def test_a_list_is_needed(wrong: Any) -> None:
    with pytest.raises(PlanError, match=r"from_list\(\) needs"):
        Dataset.from_list(wrong)


RESUMING: dict[str, Dataset[Any]] = {
    "counter": Dataset.counter(2, 3).take(9),
    "counter, shuffled": Dataset.counter().shuffle(4, seed=1).take(9),
    "random": Dataset.random(1).take(9).batch(2),
    "random, again": Dataset.random(rerandomize_each_iteration=True).shuffle(3).take(5).repeat(2),
    "list": Dataset.from_list([{"n": n, "text": str(n)} for n in range(7)]).shuffle(3, seed=1).repeat(2),
    "list, in a process": Dataset.from_list([asd.AUTO is None] * 3).in_subprocess(),
}


@pytest.mark.parametrize("dataset", RESUMING.values(), ids=RESUMING.keys())
def test_numbers_and_lists_resume_after_every_element(dataset: Dataset[Any]) -> None:
    resumes_everywhere(dataset)
