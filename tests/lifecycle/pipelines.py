"""Pipelines with each kind of stage, long enough to be running still whenever a test ends them."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

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


def count_calls() -> list[int]:
    return [0]


def counted(value: Any, state: list[int]) -> Any:
    state[0] += 1
    return value


def length(value: int) -> int:
    return int(value) % 90 + 1


def some(value: int) -> list[int]:
    return [int(value)] * length(value)


def always(value: Any) -> bool:
    return True


def fails_at_times(value: int) -> int:
    if value % 20 == 7:
        raise ValueError(value)
    return value


def slowly_fails_at_times(value: int) -> int:
    time.sleep(0.001)
    return fails_at_times(value)


async def fails_at_times_async(value: int) -> int:
    return fails_at_times(await same_async(value))


def late_at_times(value: int) -> int:
    time.sleep(0.3 if value % 50 == 7 else 0.001)
    return value


def some_of_them(value: int) -> Iterator[int]:
    for number in range(3):
        yield int(value) + number


def log_beside(shards: list[str]) -> asd.Quarantine:
    return asd.Quarantine(Path(shards[0]).with_name("dead-letters.jsonl"))


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


def record_of(value: int) -> bytes:
    return bytes([value % 256]) * 500


IDS = f"WITH RECURSIVE ids(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM ids LIMIT {ROWS}) SELECT * FROM ids"


class Small(Dataset[Any]):
    """A data set that is opened with so small a limit that rows of a shuffle wait in a file."""

    def open(self, state: Any = None, **options: Any) -> asd.Loader[Any]:
        return super().open(state, **{"memory_limit": 512 << 10, **options})

    def repeat(self, count: int | None = None) -> Dataset[Any]:
        return Small(super().repeat(count).plan)


STAGES: dict[str, Callable[[list[str]], Dataset[Any]]] = {
    "range": lambda _: _numbers(),
    "slices": lambda _: Dataset.from_tensor_slices({"x": list(range(ROWS))}),
    "generator": lambda _: Dataset.from_generator(counting),
    "slow generator": lambda _: Dataset.from_generator(slowly_counting),
    "async generator": lambda _: Dataset.from_generator(counting_async),
    "tfrecord": lambda shards: Dataset.from_tfrecord(shards, cycle_length=2),
    "unordered tfrecord": lambda shards: Dataset.from_tfrecord(shards, cycle_length=3, ordered=False),
    "text": lambda shards: Dataset.from_text(shards, encoding=None, cycle_length=2),
    "sql": lambda _: Dataset.from_sql(IDS, partial(sqlite3.connect, ":memory:"), key="id"),
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
    "spilling shuffle": lambda _: Small(_numbers().map(record_of).shuffle(1_000, seed=1, spill=True).plan),
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
    "to_device on loan": lambda _: _numbers().batch(5).to_device("cpu", handoff="lease"),
    "the whole chain": lambda shards: (
        Dataset.from_tfrecord(shards, cycle_length=4, shuffle_shards=True, seed=3)
        .shuffle(500, seed=3)
        .map(len, concurrency=2)
        .batch(16)
        .prefetch(2)
        .to_device("cpu")
    ),
}

OTHER_STAGES: dict[str, Callable[[list[str]], Dataset[Any]]] = {
    "shuffle of all": lambda _: _numbers().shuffle(seed=1),
    "shuffle of all records": lambda shards: Dataset.from_tfrecord(shards).shuffle(seed=1),
    "mixture": lambda shards: Dataset.sample_from([Dataset.from_tfrecord(shards), Dataset.from_generator(counting)]),
    "random mixture": lambda shards: Dataset.sample_from(
        [Dataset.from_tfrecord(shards), _numbers().map(slow_same)], weights=[0.7, 0.3], random=True
    ),
    "choice": lambda shards: Dataset.choose_from(
        [Dataset.from_tfrecord(shards), Dataset.from_text(shards, encoding=None)], _numbers().map(_second_of_two)
    ),
    "buckets": lambda _: _numbers().map(some).bucket_by_sequence_length(len, [20, 50], [16, 8, 4]),
    "packing": lambda _: _numbers().map(some).pack(128),
    "windows": lambda _: _numbers().window(8, shift=3),
    "padded batch": lambda _: _numbers().map(some).padded_batch(8),
    "map with a state": lambda _: _numbers().map(counted, init=count_calls, concurrency=3),
    "maps one after another": lambda _: _numbers().map(same).filter(always).map(slow_same).map(same_async),
    "skipping map": lambda _: _numbers().map(slow_same, on_error="skip"),
    "repeated cache": lambda shards: Dataset.from_tfrecord(shards).cache().shuffle(100, seed=1).batch(8).repeat(),
    "skip, take, shard": lambda shards: Dataset.from_tfrecord(shards).skip(100).take(6_000).shard(2, 1),
}

FAILING_STAGES: dict[str, Callable[[list[str]], Dataset[Any]]] = {
    "dead letters": lambda shards: _numbers().map(fails_at_times, on_error=log_beside(shards)),
    "dead letters of coroutines": lambda shards: _numbers().map(fails_at_times_async, on_error=log_beside(shards)),
    "replacing": lambda _: _numbers().map(slowly_fails_at_times, on_error=asd.Replace(-1), concurrency=2).batch(4),
    "short pauses": lambda _: _numbers().map(slowly_fails_at_times, on_error=asd.Retry(2, 0.005, "skip")),
    "long pauses": lambda _: _numbers().map(slowly_fails_at_times, on_error=asd.Retry(1, 0.2, "skip"), concurrency=8),
    "long pauses of coroutines": lambda _: _numbers().map(fails_at_times_async, on_error=asd.Retry(1, 0.2, "skip")),
    "flat_map of generators": lambda _: _numbers().flat_map(some_of_them).batch(8),
    "time-outs": lambda _: _numbers().map(late_at_times, timeout=0.1, on_error="skip", concurrency=4),
}
"""Whose functions fail, or take too long, and which go on all the same."""

PROCESS_STAGES: dict[str, Callable[[list[str]], Dataset[Any]]] = {
    "process map": lambda _: _numbers().map(same, executor="process", concurrency=2),
    "process map with a state": lambda _: _numbers().map(counted, init=count_calls, executor="process", concurrency=1),
    "unordered process map": lambda _: _numbers().map(slow_same, executor="process", concurrency=2, ordered=False),
    "process map of arrays": lambda _: _numbers().map(_large, executor="process", concurrency=2).batch(4),
    "process map with dead letters": lambda shards: _numbers().map(
        fails_at_times, executor="process", concurrency=2, on_error=log_beside(shards)
    ),
    "pauses in processes": lambda _: _numbers().map(
        fails_at_times, executor="process", concurrency=2, on_error=asd.Retry(1, 0.1, "skip")
    ),
    "threads or processes": lambda _: _numbers().map(slow_same, executor=asd.AUTO, concurrency=2),
    "in a process": lambda shards: Dataset.from_tfrecord(shards).shuffle(100, seed=1).batch(8).in_subprocess(),
    "dead letters in a process": lambda shards: (
        _numbers().map(slowly_fails_at_times, on_error=log_beside(shards)).in_subprocess()
    ),
    "in two processes": lambda _: _numbers().map(_large).batch(4).in_subprocess(workers=2).prefetch(2),
}
"""Whose workers take long to start."""

EVERY_STAGE = STAGES | OTHER_STAGES | FAILING_STAGES | PROCESS_STAGES


def _second_of_two(value: int) -> int:
    return int(value) % 2


def _large(value: int) -> np.ndarray[Any, Any]:
    return np.full(50_000, int(value))
