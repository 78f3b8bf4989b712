"""More operators in tf.data: those with states, keys, columns and weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.chains.sizes import BATCH, FEW, MANY
from benchmarks.chains.tf_data import many

Data = tf.data.Dataset


class Once:
    """One element, which a function computes."""

    def __init__(self, compute: Callable[[], Any]) -> None:
        self._compute = compute

    def __iter__(self) -> Any:
        yield self._compute()


def zero() -> Any:
    return tf.constant(0, tf.int64)


def rows() -> Any:
    return Data.from_tensor_slices({"a": np.arange(MANY), "b": np.ones((MANY, 4), np.float32)})


def few() -> Any:
    return Data.range(FEW)


def whole(number: Any) -> Any:
    return tf.debugging.check_numerics(tf.cast(number, tf.float64) / tf.cast(number % 1000, tf.float64), "")


def chains(folder: Path) -> dict[str, Callable[[], Any]]:
    """Return the chains by name."""
    row_lists = few().map(lambda n: tf.range(n % 5))
    listed = [{"n": n} for n in range(FEW)]
    digits = tf.data.experimental.Reducer(lambda key: zero(), lambda total, n: total + n, lambda total: total)
    return {
        "counter, batch": lambda: Data.counter().take(MANY).batch(BATCH),
        "random, batch": lambda: Data.random(seed=1).take(MANY).batch(BATCH),
        "from_list, batch": lambda: tf.data.experimental.from_list(listed).batch(BATCH),
        "scan, batch": lambda: many().scan(zero(), lambda total, n: (total + n, total + n)).batch(BATCH),
        "reduce": lambda: Once(lambda: few().reduce(zero(), lambda total, n: total + n)),
        "unique, batch": lambda: many().unique().batch(BATCH),
        "group_by_window": lambda: many().group_by_window(
            lambda n: n % 10, lambda key, window: window.batch(BATCH), BATCH
        ),
        "group_by_reducer": lambda: few().apply(tf.data.experimental.group_by_reducer(lambda n: n % 10, digits)),
        "rejection_resample, batch": lambda: (
            many().rejection_resample(lambda n: tf.cast(n % 2, tf.int32), [0.5, 0.5], [0.5, 0.5], seed=1).batch(BATCH)
        ),
        "ragged_batch": lambda: row_lists.ragged_batch(BATCH),
        "sparse_batch": lambda: row_lists.sparse_batch(BATCH, [5]),
        "window of datasets, batch": lambda: (
            few().window(10, drop_remainder=True).flat_map(lambda window: window.batch(10))
        ),
        "flat_map of lists, batch": lambda: (
            few().flat_map(lambda n: Data.from_tensor_slices(tf.stack([n, n]))).batch(BATCH)
        ),
        "sample_from at random, batch": lambda: Data.sample_from_datasets([many(), many()], [0.5, 0.5], seed=1).batch(
            BATCH
        ),
        "select, batch": lambda: rows().map(lambda row: {"a": row["a"]}).batch(BATCH),
        "drop, batch": lambda: rows().map(lambda row: {"a": row["a"]}).batch(BATCH),
        "rename, batch": lambda: rows().map(lambda row: {"c": row["a"], "b": row["b"]}).batch(BATCH),
        "with_column, batch": lambda: rows().map(lambda row: row | {"c": row["a"] + 1}).batch(BATCH),
        "cast, batch": lambda: rows().map(lambda row: row | {"a": tf.cast(row["a"], tf.float32)}).batch(BATCH),
        "assert_cardinality, batch": lambda: (
            many().filter(lambda n: n % 2 == 0).apply(tf.data.experimental.assert_cardinality(MANY // 2)).batch(BATCH)
        ),
        "pad_to_cardinality, batch": lambda: (
            rows()
            .map(lambda row: {"a": row["a"]})
            .apply(tf.data.experimental.assert_cardinality(MANY))
            .apply(tf.data.experimental.pad_to_cardinality(MANY + BATCH))
            .batch(BATCH)
        ),
        "ignore_errors, batch": lambda: (
            few().map(lambda n: n + tf.cast(whole(n) * 0, tf.int64)).ignore_errors().batch(BATCH)
        ),
    }
