"""Pipelines with each kind of stage, long enough to be running still whenever a test ends them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import aiostream_data as asd
from aiostream_data import Dataset

ROWS = 20_000


def counting() -> Iterator[int]:
    yield from range(ROWS)


def slowly_counting() -> Iterator[int]:
    for number in range(ROWS):
        time.sleep(0.001)
        yield number


async def counting_async() -> AsyncIterator[int]:
    for number in range(ROWS):
        await asyncio.sleep(0)
        yield number


def same(value: Any) -> Any:
    return value


def slow_same(value: Any) -> Any:
    time.sleep(0.001)
    return value


async def same_async(value: Any) -> Any:
    await asyncio.sleep(0)
    return value


def always(value: Any) -> bool:
    return True


def write_shards(folder: Path, shards: int = 4, rows: int = 2_000) -> list[str]:
    """Write TFRecord files and return their paths."""
    paths = [str(folder / f"{shard:02d}.tfrecord") for shard in range(shards)]
    for shard, path in enumerate(paths):
        with asd.TFRecordWriter(path) as writer:
            for row in range(rows):
                writer.write(f"{shard}:{row}".encode() * 10)
    return paths


def _numbers() -> Dataset[int]:
    return Dataset.range(ROWS)


STAGES: dict[str, Callable[[list[str]], Dataset[Any]]] = {
    "range": lambda _: _numbers(),
    "slices": lambda _: Dataset.from_tensor_slices({"x": list(range(ROWS))}),
    "generator": lambda _: Dataset.from_generator(counting),
    "slow generator": lambda _: Dataset.from_generator(slowly_counting),
    "async generator": lambda _: Dataset.from_generator(counting_async),
    "tfrecord": lambda shards: Dataset.from_tfrecord(shards, cycle_length=2),
    "unordered tfrecord": lambda shards: Dataset.from_tfrecord(shards, cycle_length=3, ordered=False),
    "text": lambda shards: Dataset.from_text(shards, encoding=None, cycle_length=2),
    "thread map": lambda _: _numbers().map(slow_same, concurrency=4),
    "unordered map": lambda _: _numbers().map(slow_same, concurrency=4, ordered=False),
    "inline map": lambda _: _numbers().map(same, executor="inline"),
    "coroutine map": lambda _: _numbers().map(same_async, concurrency=16),
    "filter": lambda _: _numbers().filter(always),
    "interleave": lambda _: _numbers().interleave(lambda _: Dataset.range(50), cycle_length=4),
    "interleave of generators": lambda _: _numbers().interleave(
        lambda _: Dataset.from_generator(counting), cycle_length=3
    ),
    "flat_map": lambda _: _numbers().flat_map(lambda _: range(5)),
    "shuffle": lambda _: _numbers().shuffle(1_000, seed=1),
    "batch": lambda _: _numbers().batch(7),
    "unbatch": lambda _: _numbers().batch(7).unbatch(),
    "cache": lambda shards: Dataset.from_tfrecord(shards).cache(),
    "repeat": lambda shards: Dataset.from_tfrecord(shards).repeat(),
    "repeat of a generator": lambda _: Dataset.from_generator(lambda: iter(range(100))).map(same).repeat(),
    "zip": lambda shards: Dataset.zip(Dataset.from_tfrecord(shards), Dataset.from_generator(counting)),
    "concatenate": lambda shards: Dataset.from_tfrecord(shards).concatenate(Dataset.from_tfrecord(shards)),
    "enumerate": lambda _: _numbers().enumerate(),
    "prefetch": lambda _: _numbers().batch(5).prefetch(8),
    "to_device": lambda _: _numbers().batch(5).to_device("cpu"),
    "the whole chain": lambda shards: (
        Dataset.from_tfrecord(shards, cycle_length=4, shuffle_shards=True, seed=3)
        .shuffle(500, seed=3)
        .map(len, concurrency=2)
        .batch(16)
        .prefetch(2)
        .to_device("cpu")
    ),
}
