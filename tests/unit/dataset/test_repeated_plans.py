"""A source in memory repeats its rows itself, if each repetition gives the same elements in a definite order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aiostream_data as asd
from aiostream_data.plan.base import walk
from aiostream_data.plan.operators import Map, Prefetch, Repeat
from aiostream_data.plan.rewrite import rewrite
from aiostream_data.plan.sources import TensorSlices

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


@pytest.mark.parametrize(
    "dataset",
    [
        SLICES.map(drawn),
        SLICES.map(tripled, ordered=False),
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
