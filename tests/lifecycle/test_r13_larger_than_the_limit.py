"""R13: a record larger than the memory limit passes alone, with one warning, whatever holds it on its way."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from leaks import leaves_nothing

import aiostream_data as asd
from aiostream_data.errors import MemoryBudgetError

LIMIT = 1 << 20
LARGE = 2 << 20
ROWS = 40


def make(number: int) -> Any:
    return np.zeros(LARGE if number == 5 else 1000, np.uint8)


async def make_later(number: int) -> Any:
    return make(number)


def as_bytes(number: int) -> bytes:
    return bytes(make(number))


NUMBERS = asd.Dataset.range(ROWS)
MADE = NUMBERS.map(make)

# Each with how often the large record is there at once: as an array and in a batch, or expected once more.
HOLDERS: dict[str, tuple[Callable[[], asd.Dataset[Any]], int]] = {
    "map": (lambda: MADE, 1),
    "coroutine map": (lambda: NUMBERS.map(make_later), 3),
    "process map": (lambda: NUMBERS.map(make, executor="process", concurrency=1), 1),
    "generator": (lambda: asd.Dataset.from_generator(lambda: map(make, range(ROWS))), 2),
    "batch": (lambda: NUMBERS.map(as_bytes).batch(4), 2),
    "unbatch": (lambda: NUMBERS.map(as_bytes).batch(4).unbatch(), 2),
    "window": (lambda: NUMBERS.map(as_bytes).window(3), 2),
    "shuffle": (lambda: MADE.shuffle(20, seed=1), 2),
    "shuffle of objects": (lambda: MADE.map(lambda array: [array]).shuffle(20, seed=1), 2),
    "buckets": (lambda: MADE.bucket_by_sequence_length(len, [2000], [4, 1]), 2),
    "batch by cost": (lambda: NUMBERS.map(as_bytes).batch(max_cost=2 * LARGE, cost=len), 2),
    "zip": (lambda: asd.Dataset.zip(MADE, NUMBERS), 2),
    "interleave": (lambda: asd.Dataset.range(1).interleave(lambda _: MADE), 4),
    "prefetch": (lambda: MADE.prefetch(10), 1),
}


@pytest.mark.parametrize(("build", "copies"), HOLDERS.values(), ids=HOLDERS)
def test_r13_a_record_larger_than_the_limit_passes_alone_with_one_warning(
    build: Callable[[], asd.Dataset[Any]], copies: int
) -> None:
    expected = [_sizes(element) for element in _elements(build(), 1 << 30)]
    with leaves_nothing(), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with build().open(memory_limit=LIMIT, seed=2) as loader:
            received = [_sizes(element) for element in loader]
            peak = loader.stats().memory.peak
    assert received == expected
    assert [str(warning.message).partition("Otherwise ")[2] for warning in told] == [
        "they pass alone, and exceed the limit."
    ]
    assert LARGE <= peak <= LIMIT + copies * LARGE + (64 << 10)


def _elements(dataset: asd.Dataset[Any], limit: int) -> list[Any]:
    with dataset.open(memory_limit=limit, seed=2) as loader:
        return list(loader)


def _sizes(element: Any) -> Any:
    if isinstance(element, (list, tuple)):
        return [_sizes(part) for part in element]
    return len(element) if isinstance(element, bytes) else np.shape(element)


@pytest.mark.parametrize("operator", ["shuffle", "buckets"])
def test_r13_a_buffer_full_of_them_is_refused(operator: str) -> None:
    large = NUMBERS.map(lambda number: np.zeros(LARGE, np.uint8))
    dataset = large.shuffle(20) if operator == "shuffle" else large.bucket_by_sequence_length(len, [LARGE * 2], [9, 9])
    with (
        pytest.warns(RuntimeWarning, match="they pass alone"),
        dataset.open(memory_limit=LIMIT) as loader,
        pytest.raises(MemoryBudgetError, match="rows already take"),
    ):
        list(loader)
