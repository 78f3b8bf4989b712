"""Functions of flat_map and interleave that return much data: few results are in memory at once."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aiostream_data import Dataset

CALLS, ROWS, PIXELS = 120, 16, 1 << 17
NBYTES = ROWS * PIXELS
"""Bytes of one result; all results have 240 MiB."""


def array(number: int) -> np.ndarray:
    return np.full((ROWS, PIXELS), number, np.uint8)


RESULTS: dict[str, Callable[[int], Any]] = {
    "arrays": array,
    "lists of arrays": lambda number: list(array(number)),
    "lists of bytes": lambda number: [bytes([number]) * PIXELS for _ in range(ROWS)],
    "from_tensor_slices": lambda number: Dataset.from_tensor_slices(array(number)),
    "from_list": lambda number: Dataset.from_list(list(array(number))),
}

OPERATORS: dict[str, Callable[[Dataset[int], Callable[[int], Any]], Dataset[Any]]] = {
    "flat_map": lambda dataset, function: dataset.flat_map(function),
    "interleave": lambda dataset, function: dataset.interleave(function, cycle_length=4),
}

MOST_RESULTS = {"flat_map": 15, "interleave": 32}
"""Limits for results and copies of their rows. Before the first results, their size is unknown."""


@pytest.mark.parametrize("result", RESULTS)
@pytest.mark.parametrize("operator", OPERATORS)
def test_few_large_results_are_in_memory_at_once(result: str, operator: str) -> None:
    dataset = OPERATORS[operator](Dataset.range(CALLS), RESULTS[result])
    with dataset.open(memory_limit=256 << 20) as loader:
        tracemalloc.start()
        try:
            seen = sum(row.nbytes if isinstance(row, np.ndarray) else len(row) for row in loader)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert seen == CALLS * NBYTES
    assert peak < MOST_RESULTS[operator] * NBYTES


def test_large_results_behind_small_ones_follow_in_order() -> None:
    sizes = [1] * 500 + [200_000] * 40 + [3] * 500 + [1_000_000] + [2] * 50
    dataset = Dataset.from_list(sizes).flat_map(lambda size: np.full(size, size))
    with dataset.batch(4096).open() as loader:
        rows = np.concatenate(list(loader))
    assert np.array_equal(rows, np.repeat(sizes, sizes))
