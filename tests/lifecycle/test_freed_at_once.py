"""A loader and a dataset that are deleted free the data of their functions, without a garbage collection."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from aiostream_data import Dataset

ROWS = 12


@pytest.fixture(autouse=True)
def _no_garbage_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def with_coroutine(array: np.ndarray) -> Dataset[Any]:
    async def row(number: int) -> Any:
        return array[number]

    return Dataset.range(ROWS).map(row)


def rows_of(array: np.ndarray) -> Dataset[Any]:
    return Dataset.range(ROWS).map(lambda number: array[number])


PLANS: dict[str, Callable[[np.ndarray], Dataset[Any]]] = {
    "map": rows_of,
    "map on threads": lambda array: Dataset.range(ROWS).map(lambda number: array[number], concurrency=2),
    "coroutines": with_coroutine,
    "filter": lambda array: Dataset.range(ROWS).filter(lambda number: array[number] == 0),
    "generator": lambda array: Dataset.from_generator(lambda: iter(array)),
    "list": lambda array: Dataset.from_list([array, array]),
    "flat_map of lists": lambda array: Dataset.range(ROWS).flat_map(lambda number: [array[number]]),
    "interleave": lambda array: Dataset.range(ROWS).interleave(
        lambda number: Dataset.range(3).map(lambda row: array[row]), cycle_length=2
    ),
    "windows": lambda array: rows_of(array).group_by_window(
        lambda row: 0, lambda key, window: window.map(lambda row: row).batch(2), 2
    ),
    "shuffle, batch, prefetch": lambda array: rows_of(array).shuffle(5).batch(2).prefetch(2),
    "padded batches": lambda array: rows_of(array).padded_batch(2),
    "zip": lambda array: Dataset.zip(rows_of(array), rows_of(array)),
    "mixture": lambda array: Dataset.sample_from([rows_of(array), rows_of(array)], seed=1, weights=[0.5, 0.5]),
    "cache": lambda array: rows_of(array).cache().repeat(2),
    "skipped rows": lambda array: Dataset.range(ROWS).map(lambda number: array[number * 100], on_error="skip"),
}


def is_freed(make: Callable[[np.ndarray], Dataset[Any]], most: int | None = None) -> bool:
    """Return True if an array that only a plan refers to is freed with the plan and its loader."""
    array = np.zeros(1000)
    reference = weakref.ref(array)
    dataset = make(array)
    del array
    with dataset.open() as loader:
        for number, _ in enumerate(loader):
            if number == most:
                break
    del loader, dataset
    return reference() is None


@pytest.mark.parametrize("plan", PLANS)
def test_data_of_functions_is_freed_with_the_loader_and_the_dataset(plan: str) -> None:
    is_freed(PLANS[plan])  # imports
    assert is_freed(PLANS[plan])


@pytest.mark.parametrize("plan", ["map", "filter", "generator", "flat_map of lists", "padded batches"])
def test_data_is_freed_if_the_loop_ends_early(plan: str) -> None:
    is_freed(PLANS[plan])
    assert sum(is_freed(PLANS[plan], most=1) for _ in range(5)) >= 3  # a thread may just use the data


def test_data_of_functions_behind_files_is_freed(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    parquet.write_table(pa.table({"n": np.arange(100)}), path, row_group_size=10)
    (tmp_path / "lines.txt").write_text("line\n" * 100)
    for make in (
        lambda array: Dataset.from_parquet(path).map(lambda row: array[0]),
        lambda array: Dataset.from_text(tmp_path / "lines.txt").map(lambda row: array[0]),
        lambda array: Dataset.from_files(f"{tmp_path}/*").map(lambda row: array[0]),
    ):
        is_freed(make)
        assert is_freed(make)
