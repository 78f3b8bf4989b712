"""Results of map() in the datasets that a function of interleave() returns stay within the memory limit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from aiostream_data import Dataset

MIB = 1 << 20
INNER_ROWS = 6


def large(number: Any) -> NDArray[np.uint8]:
    return np.full(4 * MIB, number, np.uint8)


async def awaited_large(number: Any) -> NDArray[np.uint8]:
    return large(number)


def batched_large(numbers: Any) -> NDArray[np.uint8]:
    return np.repeat(numbers[:, None].astype(np.uint8), 4 * MIB, axis=1)


def inner_maps(function: Callable[[Any], Any], **options: Any) -> Callable[[Any], Dataset[Any]]:
    return lambda _: Dataset.range(INNER_ROWS).map(function, **options)


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize(
    "inner",
    [
        pytest.param(inner_maps(large), id="one thread"),
        pytest.param(inner_maps(large, concurrency=2), id="two threads"),
        pytest.param(inner_maps(awaited_large, concurrency=2), id="coroutines"),
        pytest.param(inner_maps(large, executor="inline"), id="inline"),
        pytest.param(lambda _: Dataset.range(INNER_ROWS).batch(1).map(batched_large), id="batches"),
        pytest.param(lambda _: Dataset.range(INNER_ROWS).map(large).enumerate(), id="with a step behind"),
    ],
)
def test_inner_maps_share_the_memory_limit(inner: Callable[[Any], Dataset[Any]], ordered: bool) -> None:
    dataset: Dataset[Any] = Dataset.range(16).interleave(inner, cycle_length=16, ordered=ordered)
    with dataset.open(memory_limit=64 * MIB) as loader:
        rows = sum(1 for _ in loader)
        assert rows == 16 * INNER_ROWS
        assert loader.stats().memory.peak <= 64 * MIB


def test_a_result_larger_than_the_limit_passes_in_an_inner_map() -> None:
    def huge(_: Any) -> NDArray[np.uint8]:
        return np.zeros(9 * MIB, np.uint8)

    dataset: Dataset[Any] = Dataset.range(4).interleave(lambda _: Dataset.range(3).map(huge), cycle_length=4)
    with pytest.warns(RuntimeWarning, match="cannot limit memory use"), dataset.open(memory_limit=8 * MIB) as loader:
        assert sum(1 for _ in loader) == 12
