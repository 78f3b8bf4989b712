"""Rows of inner datasets are freed when they were delivered, without waiting for a garbage collection."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from aiostream_data import Dataset
from aiostream_data.loading import received

WINDOWS, ROWS = 400, 2
PIXELS = 1 << 17


@pytest.fixture(autouse=True)
def _no_garbage_collection(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(received, "NBYTES_REMEMBERED", 1 << 20)
    gc.collect()
    gc.disable()
    yield
    gc.enable()


REDUCTIONS: dict[str, Callable[[Any], Any]] = {
    "the window": lambda window: window,
    "batches": lambda window: window.batch(ROWS),
    "mapped rows": lambda window: window.map(lambda row: row),
    "batches of mapped rows": lambda window: window.map(lambda row: row).batch(ROWS),
    "filtered rows": lambda window: window.filter(lambda row: True).batch(ROWS),
    "the first row": lambda window: window.map(lambda row: row).take(1),
}


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_windows_are_freed_when_their_elements_were_delivered(reduction: str) -> None:
    rows: list[weakref.ref[np.ndarray]] = []

    def row(number: int) -> np.ndarray:
        made = np.full(PIXELS, number % 251, np.uint8)
        rows.append(weakref.ref(made))
        return made

    reduce = REDUCTIONS[reduction]
    dataset = (
        Dataset.range(WINDOWS * ROWS).map(row).group_by_window(lambda row: 0, lambda key, window: reduce(window), 2)
    )
    with dataset.open(memory_limit=32 << 20) as loader:
        most = 0
        for element in loader:
            del element
            most = max(most, sum(each() is not None for each in rows))
    assert len(rows) == WINDOWS * ROWS
    assert most < WINDOWS * ROWS / 2


def test_a_dataset_that_ends_early_leaves_no_rows() -> None:
    arrays: list[weakref.ref[np.ndarray]] = []

    def inner(number: int) -> Dataset[Any]:
        def rows() -> Iterator[np.ndarray]:
            for _ in range(50):
                made = np.full(PIXELS, number % 251, np.uint8)
                arrays.append(weakref.ref(made))
                yield made

        return Dataset.from_generator(rows).map(lambda row: row).take(2)

    with Dataset.range(30).flat_map(inner).open(memory_limit=32 << 20) as loader:
        for number, element in enumerate(loader):
            del element
            if number == 50:
                assert sum(each() is not None for each in arrays) < len(arrays) / 2
