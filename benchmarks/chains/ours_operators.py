"""More operators in aiostream_data: those with states, keys, columns and weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from aiostream_data import Dataset
from benchmarks.chains.ours import is_even, many, plus_one, up_to
from benchmarks.chains.sizes import BATCH, FEW, MANY, SINGLE


class Once:
    """One element, which a function computes."""

    def __init__(self, compute: Callable[[], Any]) -> None:
        self._compute = compute

    def __iter__(self) -> Iterator[Any]:
        yield self._compute()


class Pairs:
    """Aggregator that adds two elements."""

    def __init__(self) -> None:
        self._held: list[int] = []

    def add(self, number: int) -> list[int]:
        self._held.append(number)
        return self.flush() if len(self._held) == 2 else []

    def flush(self) -> list[int]:
        held, self._held = self._held, []
        return [sum(held)] if held else []


def last_digit(number: int) -> int:
    return number % 10


def added(total: int, number: int) -> int:
    return total + number


def running_sum(total: int, number: int) -> tuple[int, int]:
    return total + number, total + number


def rows() -> Dataset[dict[str, Any]]:
    return Dataset.from_tensor_slices({"a": np.arange(MANY), "b": np.ones((MANY, 4), np.float32)})


def fails_at_each_thousandth(number: int) -> int:
    if number % 1000 == 0:
        raise ValueError("a number of whole thousands")
    return number


def few() -> Dataset[int]:
    return Dataset.range(FEW)


def chains(folder: Path) -> dict[str, Callable[[], Iterable[Any]]]:
    """Return the chains by name."""
    listed = [{"n": n} for n in range(FEW)]
    row_lists = few().map(up_to)
    branches: Any = {0: lambda even: even.map(plus_one).batch(BATCH), 1: lambda odd: odd.batch(BATCH)}
    return {
        "counter, batch": lambda: Dataset.counter().take(MANY).batch(BATCH),
        "random, batch": lambda: Dataset.random(seed=1).take(MANY).batch(BATCH),
        "from_list, batch": lambda: Dataset.from_list(listed).batch(BATCH),
        "from_iterable": lambda: Dataset.from_iterable(range(SINGLE)),
        "scan, batch": lambda: many().scan(running_sum, 0).batch(BATCH),
        "aggregate, batch": lambda: many().aggregate(Pairs).batch(BATCH),
        "reduce": lambda: Once(lambda: few().reduce(added, 0)),
        "unique, batch": lambda: many().unique().batch(BATCH),
        "group_by_window": lambda: many().group_by_window(last_digit, lambda key, window: window.batch(BATCH), BATCH),
        "group_by_reducer": lambda: few().group_by_reducer(last_digit, lambda key: 0, added),
        "split_by": lambda: many().split_by(lambda n: n % 2, branches, BATCH),
        "rejection_resample, batch": lambda: (
            many().rejection_resample(lambda n: n % 2, [0.5, 0.5], [0.5, 0.5], seed=1).batch(BATCH)
        ),
        "ragged_batch": lambda: row_lists.ragged_batch(BATCH),
        "sparse_batch": lambda: row_lists.sparse_batch(BATCH, [5]),
        "pack": lambda: row_lists.pack(64),
        "window of datasets, batch": lambda: (
            few().window(10, drop_remainder=True, as_datasets=True).flat_map(lambda window: window.batch(10))
        ),
        "flat_map of lists, batch": lambda: few().flat_map(lambda n: [n, n]).batch(BATCH),
        "batch of a function": lambda: many().batch(BATCH, collate=np.array),
        "sample_from at random, batch": lambda: Dataset.sample_from(
            [many(), many()], [0.5, 0.5], random=True, seed=1
        ).batch(BATCH),
        "weighted_flat_map, batch": lambda: Dataset.weighted_flat_map([many(), many()], [0.5, 0.5]).batch(BATCH),
        "select, batch": lambda: rows().select("a").batch(BATCH),
        "drop, batch": lambda: rows().drop("b").batch(BATCH),
        "rename, batch": lambda: rows().rename({"a": "c"}).batch(BATCH),
        "with_column, batch": lambda: rows().with_column("c", lambda row: row["a"] + 1).batch(BATCH),
        "cast, batch": lambda: rows().cast({"a": np.float32}).batch(BATCH),
        "assert_cardinality, batch": lambda: many().filter(is_even).assert_cardinality(MANY // 2).batch(BATCH),
        "pad_to_cardinality, batch": lambda: rows().select("a").pad_to_cardinality(MANY + BATCH).batch(BATCH),
        "ignore_errors, batch": lambda: few().map(fails_at_each_thousandth).ignore_errors().batch(BATCH),
    }
