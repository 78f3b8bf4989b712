"""A source in memory repeats its rows itself, if each repetition gives the same elements."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aiostream_data as asd
from aiostream_data.plan.base import walk
from aiostream_data.plan.keyed import WindowItems, WindowSlices
from aiostream_data.plan.operators import Map, Prefetch, Repeat
from aiostream_data.plan.rewrite import rewrite
from aiostream_data.plan.sources import TensorSlices
from aiostream_data.rows.structure import LEAF
from aiostream_data.testing.resume import resumes_everywhere

SLICES = asd.Dataset.from_tensor_slices(np.arange(10))


def tripled(number: int) -> int:
    return 3 * number


def drawn(number: int, rng: np.random.Generator) -> int:
    return int(number + rng.integers(10))


@pytest.mark.parametrize("count", [0, 1, 3, None])
def test_maps_behind_a_source_are_not_started_again(count: int | None) -> None:
    plan = rewrite(SLICES.map(tripled).prefetch(2).map(tripled).repeat(count).plan)
    source, *operators = walk(plan)
    assert [type(operator) for operator in operators] == [Map, Prefetch, Map]
    assert isinstance(source, TensorSlices)
    assert source.times == count


@pytest.mark.parametrize("ordered", [True, False])
def test_maps_keep_the_epochs_of_the_source_apart_in_any_order(ordered: bool) -> None:
    plan = rewrite(SLICES.map(tripled, ordered=ordered).repeat(3).map(tripled, ordered=ordered).plan)
    source, below, above = walk(plan)
    assert isinstance(source, TensorSlices)
    assert isinstance(below, Map)
    assert isinstance(above, Map)
    assert (source.times, below.keeps_epochs, above.keeps_epochs) == (3, True, False)


FORMS: dict[str, Callable[[asd.Dataset[Any]], asd.Dataset[Any]]] = {
    "repeat": lambda window: window.repeat(3),
    "map": lambda window: window.map(tripled).repeat(2),
    "batch": lambda window: window.repeat(2).batch(3),
    "endless": lambda window: window.repeat().take(9),
    "twice": lambda window: window.repeat(2).repeat(2),
    "none": lambda window: window.repeat(0),
    "shuffle": lambda window: window.repeat(2).shuffle(3, seed=1),
    "shuffle all": lambda window: window.shuffle(seed=1).repeat(2),
}


def read(dataset: asd.Dataset[Any]) -> tuple[Any, ...]:
    with dataset.open(seed=3) as loader:
        rows = [(str(row), [origin.as_dict() for origin in loader.origins(row)]) for row in loader]
        return rows, loader.stream_hash, dataset.cardinality()


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_rows_of_a_window_are_repeated_alike_as_arrays_and_as_a_list(form: Any) -> None:
    """Chunks decide which of these a window has."""
    arrays: asd.Dataset[Any] = asd.Dataset(WindowSlices(structure=LEAF, leaves=(np.arange(4),), rows=4))
    items: asd.Dataset[Any] = asd.Dataset(WindowItems(iterable=[0, 1, 2, 3]))
    assert read(form(items)) == read(form(arrays))
    resumes_everywhere(form(items).concatenate(asd.Dataset.range(1)))
    assert not isinstance(rewrite(items.map(tripled).repeat(2).plan), Repeat)


@pytest.mark.parametrize(
    "dataset",
    [
        SLICES.map(drawn),
        SLICES.map(tripled, batched=True),
        SLICES.map(tripled, on_error="skip"),
        SLICES.map(tripled, on_error=asd.Skip(max_count=3)),
        SLICES.filter(bool),
        SLICES.enumerate().map(len),
        SLICES.take(5).map(tripled),
        SLICES.batch(3).map(len),
        asd.Dataset.from_tfrecord("/data/*").map(len),
    ],
)
def test_other_plans_start_again(dataset: asd.Dataset[Any]) -> None:
    assert isinstance(rewrite(dataset.repeat(3).plan), Repeat)


def test_repetitions_have_the_same_elements_and_different_ids() -> None:
    dataset = SLICES.map(tripled).repeat(3)
    with dataset.open() as loader:
        ids = []
        rows = []
        for row in loader:
            rows.append(row)
            ids.append(str(loader.last_ids))
    assert rows == [3 * number for number in range(10)] * 3
    assert len(set(ids)) == 30


@pytest.mark.parametrize(
    "dataset", [SLICES, SLICES.map(tripled), SLICES.shuffle(10), SLICES.shuffle().map(tripled), SLICES.map(drawn)]
)
def test_origins_name_the_repetition_as_their_epoch(dataset: asd.Dataset[Any]) -> None:
    with dataset.repeat(3).open() as loader:
        epochs = [origin.epoch for _ in loader for origin in loader.origins()]
    assert epochs == [0] * 10 + [1] * 10 + [2] * 10


@pytest.mark.parametrize("rows", [1, 3, 10])
def test_each_repetition_of_few_rows_has_its_own_random_order(rows: int) -> None:
    found = list(asd.Dataset.range(rows).shuffle(rows, seed=1).repeat(200))
    repetitions = [found[start : start + rows] for start in range(0, len(found), rows)]
    assert len(repetitions) == 200
    assert all(sorted(repetition) == list(range(rows)) for repetition in repetitions)
    assert len({tuple(repetition) for repetition in repetitions}) == min(math.factorial(rows), 200)


def test_repetitions_of_few_rows_resume_anywhere() -> None:
    resumes_everywhere(asd.Dataset.range(3).shuffle(3, seed=1).repeat(70).map(tripled).batch(7))


def test_a_failing_map_fails_in_its_repetition() -> None:
    calls: list[int] = []

    def limited(number: int) -> int:
        calls.append(number)
        if len(calls) == 25:
            raise ValueError("called too often")
        return number

    rows: list[int] = []
    with pytest.raises(ValueError, match="called too often"):
        rows.extend(SLICES.map(limited, concurrency=1).repeat())
    assert calls[:25] == [*range(10), *range(10), *range(5)]
