"""The same chains in tf.data, as its guide writes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.chains.sizes import BATCH, MANY, SINGLE

AUTO = tf.data.AUTOTUNE


def counted() -> Any:
    yield from range(SINGLE)


def many() -> Any:
    return tf.data.Dataset.range(MANY)


def parse(records: Any) -> Any:
    return tf.io.parse_example(
        records, {"n": tf.io.FixedLenFeature((), tf.int64), "x": tf.io.FixedLenFeature((2,), tf.float32)}
    )


def parse_ragged(records: Any) -> Any:
    return tf.io.parse_example(records, {"v": tf.io.RaggedFeature(tf.int64)})


def files(folder: Path, suffix: str) -> list[str]:
    return sorted(map(str, folder.glob(f"*.{suffix}")))


def chains(folder: Path) -> dict[str, Callable[[], Any]]:
    """Return the chains by name."""
    data, records = tf.data, files(folder, "tfrecord")
    texts = [f"text {n}" for n in range(MANY // 4)]
    arrays = {"a": np.arange(MANY), "b": np.ones((MANY, 4), np.float32)}
    row_lists = data.Dataset.range(MANY // 8).map(lambda n: tf.range(n % 5))
    return {
        "range": lambda: data.Dataset.range(SINGLE),
        "range, batch": lambda: many().batch(BATCH),
        "from_tensor_slices, batch": lambda: data.Dataset.from_tensor_slices(arrays).batch(BATCH),
        "from_tensor_slices of text, batch": lambda: data.Dataset.from_tensor_slices(texts).batch(BATCH),
        "from_generator": lambda: data.Dataset.from_generator(counted, output_signature=tf.TensorSpec((), tf.int64)),
        "from_tfrecord, batch": lambda: data.TFRecordDataset(records).batch(BATCH),
        "from_tfrecord gzip, batch": lambda: data.TFRecordDataset(
            files(folder, "tfrecord.gz"), compression_type="GZIP"
        ).batch(BATCH),
        "from_tfrecord interleaved, batch": lambda: (
            data.Dataset.from_tensor_slices(records)
            .interleave(data.TFRecordDataset, cycle_length=8, num_parallel_calls=AUTO)
            .batch(BATCH)
        ),
        "parse_example, batch": lambda: data.TFRecordDataset(records).batch(BATCH).map(parse, num_parallel_calls=AUTO),
        "parse_example ragged, batch": lambda: (
            data.TFRecordDataset(records).batch(BATCH).map(parse_ragged, num_parallel_calls=AUTO)
        ),
        "from_text, batch": lambda: data.TextLineDataset(files(folder, "txt")).batch(BATCH),
        "from_fixed_length, batch": lambda: data.FixedLengthRecordDataset(files(folder, "bin"), 8).batch(BATCH),
        "list_files": lambda: data.Dataset.list_files(str(folder / "*.txt"), shuffle=False).repeat(500),
        "map, batch": lambda: many().map(lambda n: n + 1).batch(BATCH),
        "map of batches": lambda: many().batch(BATCH).map(lambda n: n + 1),
        "map in threads, batch": lambda: many().map(lambda n: n + 1, num_parallel_calls=2).batch(BATCH),
        "filter, batch": lambda: many().filter(lambda n: n % 2 == 0).batch(BATCH),
        "take_while, batch": lambda: many().take_while(lambda n: n < MANY - 1).batch(BATCH),
        "padded_batch": lambda: row_lists.padded_batch(BATCH),
        "unbatch, batch": lambda: many().batch(BATCH).unbatch().batch(100),
        "unbatch": lambda: data.Dataset.range(SINGLE).batch(BATCH).unbatch(),
        "rebatch": lambda: many().batch(BATCH).rebatch(100),
        "shuffle, batch": lambda: many().shuffle(10_000, seed=1).batch(BATCH),
        "repeat, batch": lambda: data.Dataset.range(10).repeat(MANY // 10).batch(BATCH),
        "repeat": lambda: data.Dataset.range(10).repeat(SINGLE // 10),
        "concatenate, batch": lambda: many().concatenate(many()).batch(BATCH),
        "zip, batch": lambda: data.Dataset.zip((many(), many())).batch(BATCH),
        "enumerate, batch": lambda: many().enumerate().batch(BATCH),
        "take and skip, batch": lambda: many().skip(1000).take(MANY - 2000).batch(BATCH),
        "shard, batch": lambda: many().shard(2, 1).batch(BATCH),
        "flat_map of data sets, batch": lambda: (
            data.Dataset.range(MANY // 16).flat_map(lambda n: data.Dataset.range(2)).batch(BATCH)
        ),
        "interleave of data sets, batch": lambda: (
            data.Dataset.range(MANY // 80).interleave(lambda n: data.Dataset.range(10), cycle_length=4).batch(BATCH)
        ),
        "window": lambda: (
            many().window(10, drop_remainder=True).flat_map(lambda window: window.batch(10, drop_remainder=True))
        ),
        "sample_from, batch": lambda: data.Dataset.sample_from_datasets([many(), many()], [0.5, 0.5], seed=1).batch(
            BATCH
        ),
        "choose_from, batch": lambda: data.Dataset.choose_from_datasets(
            [many(), many()], many().map(lambda n: n % 2)
        ).batch(BATCH),
        "bucket_by_sequence_length": lambda: row_lists.bucket_by_sequence_length(
            lambda row: tf.shape(row)[0], [2, 4], [BATCH] * 3
        ),
        "cache, batch": lambda: many().cache().batch(BATCH),
        "prefetch": lambda: data.Dataset.range(SINGLE).prefetch(16),
    }
