"""Coroutines that return much data without waiting: the first result limits how many others are made."""

from __future__ import annotations

import weakref

import numpy as np

from aiostream_data import Dataset

ROWS, NBYTES = 200, 4 << 20


def test_few_results_are_in_memory_before_the_first_one_was_counted() -> None:
    results: list[weakref.ref[np.ndarray]] = []
    most = 0

    async def large(number: int) -> np.ndarray:
        nonlocal most
        made = np.full(NBYTES, number % 251, np.uint8)
        results.append(weakref.ref(made))
        most = max(most, sum(each() is not None for each in results))
        return made

    with Dataset.range(ROWS).map(large).open(memory_limit=256 << 20) as loader:
        for number, row in enumerate(loader):
            assert row[0] == number % 251
            del row
    assert len(results) == ROWS
    assert most * NBYTES < 256 << 20
