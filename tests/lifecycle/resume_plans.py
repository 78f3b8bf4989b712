"""Small data sets, at least one for each source and operator, that must resume after every element."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from aggregators import Held, StoredHeld
from key_functions import (
    in_batches,
    in_pairs,
    in_reverse,
    is_odd,
    joined,
    last_digit,
    nothing,
    one_more_than,
    whole_branch,
    whole_window,
    with_number,
)
from lake_files import catalog, write_lake
from pyarrow import parquet
from resume_functions import (
    cast,
    checksum,
    class_of_row,
    count,
    count_async,
    dense,
    is_kept,
    is_not_17,
    is_not_row_17,
    lines_of,
    no_name_ends_in_2,
    own_number,
    own_remainder,
    padded_window,
    plus_one,
    plus_one_later,
    plus_one_of_all,
    running_set,
    running_sum,
    small_image,
    some,
    some_named,
    ten_fold,
    ten_fold_by_run,
    ten_fold_in_batches,
    with_draw,
)

import aiostream_data as asd
from aiostream_data import Dataset

FEATURES: dict[str, asd.FixedLen | asd.VarLen] = {
    "n": asd.FixedLen((), np.int64),
    "name": asd.FixedLen((), bytes),
    "values": asd.VarLen(np.int64),
}
NUMBER = asd.ArraySpec((), np.dtype(np.int64))
ROWS = (4, 0, 6, 1)
"""Records of each file of a kind."""
IDS = "WITH RECURSIVE ids(id) AS (SELECT -7 UNION ALL SELECT id + 3 FROM ids LIMIT 11) SELECT * FROM ids"


def write_files(folder: Path) -> Path:
    """Write files of every format into ``folder`` and return it. Every record is unique."""
    for file, rows in enumerate(ROWS):
        names = [f"{file}:{row}" for row in range(rows)]
        _write_records(folder / f"{file}.tfrecord", [name.encode() for name in names])
        _write_records(folder / f"{file}.tfrecord.gz", [name.encode() for name in names])
        _write_records(folder / f"{file}.example", [_example(file, row) for row in range(rows)])
        (folder / f"{file}.txt").write_text("".join(f"{name}\n" for name in names))
        (folder / f"{file}.bin").write_bytes(b"".join(f"{name:>6}".encode() for name in names))
        parquet.write_table(pa.table({"name": names}), folder / f"{file}.parquet", row_group_size=3)
    write_lake(folder)
    return folder


def _write_records(path: Path, records: list[bytes]) -> None:
    with asd.TFRecordWriter(path, "gzip" if path.suffix == ".gz" else "") as writer:
        for record in records:
            writer.write(record)


def _example(file: int, row: int) -> bytes:
    return asd.encode_example({"n": 10 * file + row, "name": f"{file}:{row}", "values": [row] * (row % 3)})


def numbers(rows: int = 10) -> Dataset[int]:
    return Dataset.range(rows)


def draws(rows: int = 10) -> Dataset[Any]:
    return numbers(rows).map(with_draw)


@dataclass(frozen=True)
class Case:
    """How to make a data set from the folder of files.

    Attributes:
        ordered: False when the order may differ between runs.
        every: After how many elements to resume; more than 1 where opening is slow.
        options: For ``open``.
    """

    make: Callable[[Path], Dataset[Any]]
    ordered: bool = True
    every: int = 1
    options: dict[str, Any] | None = None


CASES: dict[str, Case] = {
    # sources
    "range": Case(lambda _: numbers()),
    "empty range": Case(lambda _: numbers(0)),
    "slices": Case(lambda _: Dataset.from_tensor_slices({"n": np.arange(9), "x": np.eye(9, dtype=np.float32)})),
    "data frame": Case(
        lambda _: Dataset.from_dataframe(pa.table({"n": [1, None, 3, 4], "s": list("abcd")})).repeat(2).shuffle(3)
    ),
    "repeated slices": Case(lambda _: Dataset.from_tensor_slices((np.arange(5), np.arange(5.0))).repeat(3)),
    "list": Case(lambda _: Dataset.from_list([{"n": n, "text": f"{n}"} for n in range(9)]).shuffle().repeat(2)),
    "counter": Case(lambda _: Dataset.counter(5, -2).shuffle(4).take(12)),
    "random": Case(lambda _: Dataset.random(rerandomize_each_iteration=True).take(6).repeat(2)),
    "random, same numbers": Case(lambda _: Dataset.random(7).shuffle(4).take(6).repeat(2)),
    "tensors": Case(lambda _: Dataset.from_tensors({"x": np.arange(3)}).repeat(4)),
    "generator": Case(lambda _: Dataset.from_generator(count, args=(10,))),
    "async generator": Case(lambda _: Dataset.from_generator(count_async, args=(10,))),
    "iterable": Case(lambda _: Dataset.from_iterable(list("abcdefgh"))),
    "list_files": Case(lambda f: Dataset.list_files(f"{f}/*", seed=2)),
    "tfrecord": Case(lambda f: Dataset.from_tfrecord(f"{f}/*.tfrecord")),
    "tfrecord, interleaved": Case(lambda f: Dataset.from_tfrecord(f"{f}/*.tfrecord", cycle_length=2, block_length=3)),
    "tfrecord, gzip": Case(lambda f: Dataset.from_tfrecord(f"{f}/*.gz", cycle_length=3)),
    "tfrecord, permuted": Case(lambda f: Dataset.from_tfrecord(f"{f}/*.tfrecord", shuffle_shards=True).repeat(2)),
    "unordered": Case(lambda f: Dataset.from_tfrecord(f"{f}/*.tfrecord", cycle_length=3, ordered=False), False),
    "tfrecord of a data set of names": Case(
        lambda f: Dataset.from_tfrecord(Dataset.list_files(f"{f}/*.tfrecord").shuffle(9), cycle_length=2)
    ),
    "text": Case(lambda f: Dataset.from_text(f"{f}/*.txt", cycle_length=2)),
    "fixed length": Case(lambda f: Dataset.from_fixed_length(f"{f}/*.bin", 6, cycle_length=2)),
    "files": Case(lambda f: Dataset.from_files(f"{f}/*.bin", shuffle_shards=True)),
    "parquet": Case(lambda f: Dataset.from_parquet(f"{f}/*.parquet", cycle_length=2)),
    "delta": Case(lambda f: Dataset.from_delta(f / "delta", cycle_length=2)),
    "iceberg": Case(lambda f: Dataset.from_iceberg("db.rows", catalog=catalog(f / "iceberg")), every=4),
    "sql": Case(lambda _: Dataset.from_sql(IDS, partial(sqlite3.connect, ":memory:"), key="id").shuffle(4).repeat(2)),
    "parse_example": Case(lambda f: Dataset.from_tfrecord(f"{f}/*.example", cycle_length=2).parse_example(FEATURES)),
    "parse_example, batched": Case(
        lambda f: Dataset.from_tfrecord(f"{f}/*.example").parse_example(FEATURES).shuffle(5).batch(4)
    ),
    # user functions
    "map": Case(lambda _: numbers().map(plus_one)),
    "map, concurrent": Case(lambda _: numbers().map(plus_one, concurrency=3)),
    "map, inline": Case(lambda _: numbers().map(plus_one, executor="inline")),
    "map, batched": Case(lambda _: numbers().map(plus_one_of_all, batched=True)),
    "map with rng": Case(lambda _: draws()),
    "map, coroutine": Case(lambda _: numbers().map(plus_one_later, concurrency=4)),
    "map, in processes": Case(lambda _: draws().map(dict, executor="process", concurrency=2), every=10),
    "map, unordered": Case(lambda _: draws().map(dict, concurrency=3, ordered=False), ordered=False),
    "map, coroutine, unordered": Case(lambda _: numbers().map(plus_one_later, concurrency=4, ordered=False), False),
    "columns": Case(lambda _: draws().rename({"n": "m"}).with_column("odd", is_odd).cast({"m": "int32"}).drop("odd")),
    "columns of batches": Case(lambda _: draws().shuffle(4).batch(3).cast({"n": "int16"}).select("n").unbatch()),
    "filter": Case(lambda _: numbers(20).filter(is_kept)),
    "scan": Case(lambda _: numbers(20).shuffle(6).scan(running_sum, 0)),
    "scan, shuffled and repeated": Case(lambda _: numbers(6).scan(running_sum, 0).shuffle(3).repeat(2).batch(4)),
    "scan with a state that is not stored": Case(lambda _: numbers(12).shuffle(5).scan(running_set, set()).repeat(2)),
    "aggregate": Case(lambda _: numbers(20).shuffle(6).aggregate(StoredHeld)),
    "aggregate, repeated and batched": Case(lambda _: numbers(7).aggregate(StoredHeld).repeat(2).batch(3)),
    "aggregate without a stored state": Case(lambda _: numbers(12).shuffle(5).aggregate(Held).repeat(2)),
    "unique": Case(lambda _: numbers(20).shuffle(6).map(own_remainder).unique().repeat(2)),
    "unique by a key": Case(lambda _: draws(20).unique(own_number).shuffle(3).batch(2)),
    "spec": Case(lambda _: numbers(8).map(plus_one, spec=NUMBER).flat_map(ten_fold, spec=NUMBER).shuffle(4).repeat(2)),
    "flat_map": Case(lambda _: numbers(8).flat_map(ten_fold)),
    "flat_map of data sets": Case(lambda _: numbers(8).flat_map(ten_fold_by_run)),
    "flat_map of flat_map": Case(lambda _: numbers(6).flat_map(ten_fold).flat_map(ten_fold_by_run)),
    "interleave": Case(lambda _: numbers(9).interleave(ten_fold, cycle_length=3, block_length=2)),
    "interleave of data sets": Case(lambda _: numbers(9).interleave(ten_fold_by_run, cycle_length=3)),
    "flat_map of batches": Case(lambda _: numbers(9).flat_map(ten_fold_in_batches).shuffle(3).unbatch()),
    "interleave of files": Case(lambda f: Dataset.list_files(f"{f}/*.txt").interleave(lines_of, cycle_length=2)),
    "flat_map, concurrent": Case(lambda _: numbers(8).flat_map(ten_fold_by_run, concurrency=3)),
    "interleave, concurrent": Case(lambda _: numbers(9).interleave(ten_fold, cycle_length=3, concurrency=4)),
    "interleave, in processes": Case(
        lambda _: numbers(9).interleave(ten_fold, cycle_length=3, executor="process", concurrency=2), every=10
    ),
    "interleave, unordered": Case(
        lambda _: numbers(9).interleave(ten_fold_by_run, cycle_length=3, ordered=False), ordered=False
    ),
    # order and number
    "shuffle": Case(lambda _: draws().shuffle(5)),
    "shuffle of all": Case(lambda _: numbers().shuffle(100, seed=1)),
    "shuffle of its own size": Case(lambda _: draws().shuffle()),
    "shuffle of records of its own size": Case(
        lambda f: Dataset.from_tfrecord(f"{f}/*.tfrecord").shuffle().map(checksum).repeat(2)
    ),
    "shuffle twice": Case(lambda _: numbers().shuffle(4).map(plus_one).shuffle(3)),
    "repeat": Case(lambda _: draws(6).repeat(3)),
    "repeat of nothing": Case(lambda _: numbers(0).repeat()),
    "shuffle and repeat": Case(lambda _: numbers(7).shuffle(4).repeat(3)),
    "shuffle alike and repeat": Case(lambda _: numbers(7).shuffle(4, reshuffle_each_iteration=False).repeat(3)),
    "repeat and shuffle": Case(lambda _: draws(5).repeat(3).shuffle(4)),
    "repeat of repeat": Case(lambda _: draws(3).shuffle(3).repeat(2).shuffle(2).repeat(2)),
    "take": Case(lambda _: draws().take(9)),
    "take of repeat": Case(lambda _: draws(4).repeat().take(11)),
    "repeat of take": Case(lambda _: draws().shuffle(9).take(4).repeat(3)),
    "take_while": Case(lambda _: numbers(20).shuffle(6).take_while(is_not_17)),
    "repeat of take_while": Case(lambda _: draws(20).shuffle(9).take_while(is_not_row_17).repeat(3)),
    "skip": Case(lambda _: draws().skip(5)),
    "skip of shuffle": Case(lambda _: draws().shuffle(6).skip(5)),
    "shard": Case(lambda _: draws().shard(3, 1)),
    "assert_cardinality": Case(lambda _: numbers(20).filter(is_kept).assert_cardinality(13).shuffle(4)),
    "pad_to_cardinality": Case(lambda _: numbers(5).shuffle(3).pad_to_cardinality(9).repeat(2)),
    "pad_to_cardinality, shuffled": Case(lambda _: numbers(5).pad_to_cardinality(9).shuffle(4).batch(2)),
    "rejection_resample": Case(lambda _: draws(20).shuffle(6).rejection_resample(class_of_row, [1, 3], [2, 1])),
    "rejection_resample of an unknown distribution": Case(
        lambda _: draws(20).shuffle(6).rejection_resample(class_of_row, [1, 3]).repeat(2)
    ),
    "enumerate": Case(lambda _: numbers().filter(is_kept).enumerate(5)),
    # several
    "zip": Case(lambda _: numbers().shuffle(5).zip(draws(9))),
    "zip of a dict": Case(lambda _: Dataset.zip({"a": numbers(), "b": (draws(), numbers(30).filter(is_kept))})),
    "zip of different rates": Case(lambda _: Dataset.zip(numbers(8).flat_map(ten_fold), numbers(4).repeat())),
    "concatenate": Case(lambda _: numbers(5).concatenate(numbers(0), numbers(6).shuffle(3))),
    "concatenate and repeat": Case(lambda _: numbers(4).shuffle(2).concatenate(numbers(3)).repeat(2)),
    # batches
    "batch": Case(lambda _: draws().batch(4)),
    "batch without remainder": Case(lambda _: draws().batch(4, drop_remainder=True)),
    "batch of a filter": Case(lambda _: numbers(30).filter(is_kept).batch(3)),
    "batch across epochs": Case(lambda _: draws(5).repeat(3).batch(4)),
    "batches repeated": Case(lambda _: draws(5).shuffle(3).batch(4).repeat(3)),
    "shuffle of batches": Case(lambda _: draws().batch(3).shuffle(3)),
    "unbatch": Case(lambda _: draws().batch(4).unbatch()),
    "unbatch of batches in any order": Case(
        lambda _: numbers(20).map(plus_one_later, concurrency=4, ordered=False).batch(3).unbatch(), ordered=False
    ),
    "unbatch of shuffled batches": Case(lambda _: draws().batch(3).shuffle(3).unbatch()),
    "batch of unbatch": Case(lambda _: draws().batch(4).shuffle(2).unbatch().batch(3)),
    "batch by a function": Case(lambda _: draws().shuffle(4).batch(3, collate=joined).repeat(2)),
    "padded_batch": Case(lambda _: numbers().map(some).shuffle(5).padded_batch(3)),
    "ragged_batch": Case(lambda _: numbers().map(some_named).shuffle(5).ragged_batch(3)),
    "sparse_batch": Case(lambda _: numbers().map(some).shuffle(5).sparse_batch(3, [None]).map(dense)),
    "windows of data sets": Case(
        lambda _: numbers(12).map(some).shuffle(5).window(4, 3, as_datasets=True).flat_map(padded_window)
    ),
    "rebatch": Case(lambda _: draws().batch(4).rebatch([3, 1])),
    "window": Case(lambda _: numbers().shuffle(5).window(4, shift=2)),
    "window with gaps": Case(lambda _: numbers().window(3, shift=5, stride=2)),
    "buckets": Case(lambda _: numbers(20).map(some).bucket_by_sequence_length(len, [2, 4], [3, 2, 4])),
    "group_by_window": Case(lambda _: draws(20).shuffle(5).group_by_window(last_digit, in_pairs, 3)),
    "group_by_window, by key": Case(
        lambda _: numbers(20).map(some).group_by_window(len, whole_window, window_size_fn=one_more_than).shuffle(3)
    ),
    "split_by": Case(
        lambda _: draws(20).split_by(last_digit, {3: whole_branch, 1: in_batches}, 3, default=whole_branch).shuffle(2)
    ),
    "split_by, whole branches": Case(
        lambda _: numbers(15).map(some).split_by(len, {1: whole_branch}, default=in_reverse).repeat(2)
    ),
    "group_by_reducer": Case(lambda _: draws(20).group_by_reducer(last_digit, nothing, with_number).repeat(2)),
    "batches by cost": Case(lambda _: numbers(20).shuffle(6).map(some).batch(4, max_cost=9)),
    "batches by cost, some left out": Case(
        lambda _: draws(20).batch(max_cost=40, cost=own_number, padded=False, on_too_large="skip", drop_remainder=True)
    ),
    "pack": Case(lambda _: numbers(20).shuffle(9).map(some_named).pack(7, open_bins=3, too_long="split")),
    # mixtures
    "sample_from": Case(lambda _: Dataset.sample_from([draws(6).repeat(), numbers().map(with_draw)], [1, 3])),
    "sample_from all at random": Case(
        lambda _: Dataset.sample_from([numbers(5), Dataset.range(50, 59).shuffle(3)], stop="all", random=True)
    ),
    "sample_from with a schedule": Case(
        lambda _: Dataset.sample_from([numbers(), Dataset.range(50, 70)], [(0, [1, 0]), (6, [1, 2])])
    ),
    "sample_from with a data set of weights": Case(
        lambda _: Dataset.sample_from(
            [draws(8), draws(20)], Dataset.from_iterable([[1, 2], [0, 1]]).repeat().shuffle(4)
        )
    ),
    "sample_from with a data set of weights at random": Case(
        lambda _: Dataset.sample_from(
            [numbers(), numbers(5)], Dataset.from_tensor_slices(np.ones((12, 2))), stop="all", random=True
        )
    ),
    "weighted_flat_map": Case(lambda _: Dataset.weighted_flat_map([numbers(), numbers()], [1, 2]).shuffle(4)),
    "choose_from": Case(
        lambda _: Dataset.choose_from([draws(8), draws(9)], Dataset.from_iterable([0, 1, 1]).repeat().shuffle(4))
    ),
    # memory and devices
    "cache": Case(lambda _: draws().cache()),
    "cache and repeat": Case(lambda _: draws(6).shuffle(4).cache().repeat(3)),
    "cache, shuffle and repeat": Case(lambda _: draws(6).cache().shuffle(4).repeat(3)),
    "prefetch": Case(lambda _: draws().batch(2).prefetch(3)),
    "to_device": Case(lambda _: draws().batch(4).to_device("cpu")),
    "to_device, images cast": Case(lambda _: numbers().map(small_image).shuffle(4).repeat(2).batch(3).apply(cast)),
    # together
    "training": Case(
        lambda f: (
            Dataset.from_tfrecord(f"{f}/*.tfrecord", cycle_length=2, shuffle_shards=True)
            .filter(no_name_ends_in_2)
            .shuffle(6)
            .map(checksum, concurrency=2)
            .map(with_draw)
            .repeat(2)
            .batch(3)
            .prefetch(2)
            .to_device("cpu")
        )
    ),
    "any order": Case(
        lambda f: (
            Dataset.from_tfrecord(f"{f}/*.tfrecord", cycle_length=3).map(checksum).map(with_draw).shuffle(4).repeat(2)
        ),
        ordered=False,
        options={"deterministic": False},
    ),
    "little memory": Case(
        lambda f: Dataset.from_tfrecord(f"{f}/*.tfrecord", cycle_length=3).shuffle(4).batch(2),
        options={"memory_limit": "256KB"},
    ),
}
