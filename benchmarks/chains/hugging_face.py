"""The chains in Hugging Face datasets, as streams in NumPy format, where it has the operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import datasets
import numpy as np
from datasets import Features, Value

from benchmarks.chains.sizes import BATCH, FEW, MANY, SINGLE


def counted() -> Iterator[dict[str, int]]:
    for number in range(SINGLE):
        yield {"n": number}


@cache
def table(count: int) -> datasets.Dataset:
    """Return the numbers below ``count``, in Arrow's layout."""
    return datasets.Dataset.from_dict({"n": np.arange(count)})


@cache
def rows() -> datasets.Dataset:
    return datasets.Dataset.from_dict({"a": np.arange(MANY), "b": np.ones((MANY, 4), np.float32)})


def stream(dataset: datasets.Dataset) -> Any:
    return dataset.to_iterable_dataset().with_format("numpy")


def many() -> Any:
    return stream(table(MANY))


def chains(folder: Path) -> dict[str, Callable[[], Any]]:
    """Return the chains by name."""
    texts = datasets.Dataset.from_dict({"t": [f"text {n}" for n in range(MANY // 4)]})
    lines = [str(path) for path in sorted(folder.glob("*.txt"))]
    cast = Features({"a": Value("float32"), "b": datasets.List(Value("float32"))})
    return {
        "range": lambda: stream(table(SINGLE)),
        "range, batch": lambda: many().batch(BATCH),
        "from_tensor_slices, batch": lambda: stream(rows()).batch(BATCH),
        "from_tensor_slices of text, batch": lambda: stream(texts).batch(BATCH),
        "from_list, batch": lambda: stream(datasets.Dataset.from_list([{"n": n} for n in range(FEW)])).batch(BATCH),
        "from_generator": lambda: datasets.IterableDataset.from_generator(counted),
        "from_text, batch": lambda: datasets.load_dataset(
            "text", data_files=lines, split="train", streaming=True
        ).batch(BATCH),
        "map, batch": lambda: many().map(lambda row: {"n": row["n"] + 1}).batch(BATCH),
        "map of batches": lambda: (
            many().map(lambda row: {"n": row["n"] + 1}, batched=True, batch_size=BATCH).batch(BATCH)
        ),
        "filter, batch": lambda: many().filter(lambda row: row["n"] % 2 == 0).batch(BATCH),
        "shuffle, batch": lambda: many().shuffle(seed=1, buffer_size=10_000).batch(BATCH),
        "repeat, batch": lambda: stream(table(10)).repeat(MANY // 10).batch(BATCH),
        "repeat": lambda: stream(table(10)).repeat(SINGLE // 10),
        "concatenate, batch": lambda: datasets.concatenate_datasets([many(), many()]).batch(BATCH),
        "zip, batch": lambda: datasets.concatenate_datasets([many(), many().rename_column("n", "o")], axis=1).batch(
            BATCH
        ),
        "enumerate, batch": lambda: (
            many().map(lambda row, index: {"i": index, "n": row["n"]}, with_indices=True).batch(BATCH)
        ),
        "take and skip, batch": lambda: many().skip(1000).take(MANY - 2000).batch(BATCH),
        "shard, batch": lambda: stream(table(MANY).shard(2, 1, contiguous=False)).batch(BATCH),
        "flat_map of lists, batch": lambda: (
            stream(table(FEW)).map(lambda rows: {"n": np.repeat(rows["n"], 2)}, batched=True).batch(BATCH)
        ),
        "sample_from at random, batch": lambda: datasets.interleave_datasets(
            [many(), many()], [0.5, 0.5], seed=1, stopping_strategy="all_exhausted"
        ).batch(BATCH),
        "select, batch": lambda: stream(rows()).select_columns("a").batch(BATCH),
        "drop, batch": lambda: stream(rows()).remove_columns("b").batch(BATCH),
        "rename, batch": lambda: stream(rows()).rename_columns({"a": "c"}).batch(BATCH),
        "with_column, batch": lambda: stream(rows()).map(lambda row: {"c": row["a"] + 1}).batch(BATCH),
        "cast, batch": lambda: stream(rows()).cast(cast).batch(BATCH),
    }
