"""The chains in aiostream_data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import aiostream_data as asd
from aiostream_data import Dataset
from benchmarks.chains.sizes import BATCH, MANY, SINGLE

FEATURES: dict[str, Any] = {"n": asd.FixedLen((), np.int64), "x": asd.FixedLen((2,), np.float32)}


def plus_one(number: int) -> int:
    return number + 1


def is_even(number: int) -> bool:
    return number % 2 == 0


def up_to(number: int) -> Any:
    return np.arange(number % 5)


def two_of(number: int) -> Dataset[int]:
    return Dataset.range(2)


def ten_of(number: int) -> Dataset[int]:
    return Dataset.range(10)


def length_of(row: Any) -> int:
    return len(row)


def counted() -> Iterator[int]:
    yield from range(SINGLE)


def many() -> Dataset[int]:
    return Dataset.range(MANY)


def chains(folder: Path) -> dict[str, Callable[[], Dataset[Any]]]:
    """Return the chains by name."""
    tfrecord, texts = str(folder / "*.tfrecord"), [f"text {n}" for n in range(MANY // 4)]
    arrays = {"a": np.arange(MANY), "b": np.ones((MANY, 4), np.float32)}
    row_lists = Dataset.range(MANY // 8).map(up_to)
    return {
        "range": lambda: Dataset.range(SINGLE),
        "range, batch": lambda: many().batch(BATCH),
        "from_tensor_slices, batch": lambda: Dataset.from_tensor_slices(arrays).batch(BATCH),
        "from_tensor_slices of text, batch": lambda: Dataset.from_tensor_slices(texts).batch(BATCH),
        "from_generator": lambda: Dataset.from_generator(counted),
        "from_tfrecord, batch": lambda: Dataset.from_tfrecord(tfrecord).batch(BATCH, strings="columns"),
        "from_tfrecord gzip, batch": lambda: Dataset.from_tfrecord(f"{tfrecord}.gz").batch(BATCH, strings="columns"),
        "from_tfrecord interleaved, batch": lambda: Dataset.from_tfrecord(tfrecord, cycle_length=8).batch(
            BATCH, strings="columns"
        ),
        "parse_example, batch": lambda: Dataset.from_tfrecord(tfrecord).parse_example(FEATURES).batch(BATCH),
        "parse_example ragged, batch": lambda: (
            Dataset.from_tfrecord(tfrecord).parse_example({"v": asd.Ragged(np.int64)}).batch(BATCH)
        ),
        "from_text, batch": lambda: Dataset.from_text(str(folder / "*.txt")).batch(BATCH, strings="columns"),
        "from_fixed_length, batch": lambda: Dataset.from_fixed_length(str(folder / "*.bin"), 8).batch(
            BATCH, strings="columns"
        ),
        "list_files": lambda: Dataset.list_files(str(folder / "*.txt")).repeat(500),
        "map, batch": lambda: many().map(plus_one).batch(BATCH),
        "map of batches": lambda: many().batch(BATCH).map(plus_one),
        "map in threads, batch": lambda: many().map(plus_one, concurrency=2).batch(BATCH),
        "filter, batch": lambda: many().filter(is_even).batch(BATCH),
        "take_while, batch": lambda: many().take_while(lambda n: n < MANY - 1).batch(BATCH),
        "padded_batch": lambda: row_lists.padded_batch(BATCH),
        "unbatch, batch": lambda: many().batch(BATCH).unbatch().batch(100),
        "unbatch": lambda: Dataset.range(SINGLE).batch(BATCH).unbatch(),
        "rebatch": lambda: many().batch(BATCH).rebatch(100),
        "shuffle, batch": lambda: many().shuffle(10_000, seed=1).batch(BATCH),
        "repeat, batch": lambda: Dataset.range(10).repeat(MANY // 10).batch(BATCH),
        "repeat": lambda: Dataset.range(10).repeat(SINGLE // 10),
        "concatenate, batch": lambda: many().concatenate(many()).batch(BATCH),
        "zip, batch": lambda: many().zip(many()).batch(BATCH),
        "enumerate, batch": lambda: many().enumerate().batch(BATCH),
        "take and skip, batch": lambda: many().skip(1000).take(MANY - 2000).batch(BATCH),
        "shard, batch": lambda: many().shard(2, 1).batch(BATCH),
        "flat_map of data sets, batch": lambda: Dataset.range(MANY // 16).flat_map(two_of).batch(BATCH),
        "interleave of data sets, batch": lambda: (
            Dataset.range(MANY // 80).interleave(ten_of, cycle_length=4).batch(BATCH)
        ),
        "window": lambda: many().window(10, drop_remainder=True),
        "sample_from, batch": lambda: Dataset.sample_from([many(), many()], [0.5, 0.5], seed=1).batch(BATCH),
        "choose_from, batch": lambda: Dataset.choose_from([many(), many()], many().map(lambda n: n % 2)).batch(BATCH),
        "bucket_by_sequence_length": lambda: row_lists.bucket_by_sequence_length(length_of, [2, 4], [BATCH] * 3),
        "cache, batch": lambda: many().cache().batch(BATCH),
        "prefetch": lambda: Dataset.range(SINGLE).prefetch(16),
    }
