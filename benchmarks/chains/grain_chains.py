"""The chains in Grain, where it has the operation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import grain
import numpy as np
from grain import experimental

from benchmarks.chains.sizes import BATCH, FEW, MANY, SINGLE

Data = grain.MapDataset


class Twice(experimental.FlatMapTransform):  # type: ignore[misc]
    """Each element two times."""

    max_fan_out = 2

    def flat_map(self, element: Any) -> Any:
        return [element, element]


def many() -> Any:
    return Data.range(MANY)


def read(dataset: Any) -> Any:
    """Return the elements of a dataset, as Grain's guide reads them."""
    return dataset.to_iter_dataset(grain.ReadOptions(num_threads=2, prefetch_buffer_size=8))


def chains(folder: Path) -> dict[str, Callable[[], Any]]:
    """Return the chains by name."""
    arrays = [{"a": n, "b": np.ones(4, np.float32)} for n in range(FEW)]
    row_lists = Data.range(FEW).map(lambda n: {"values": np.arange(n % 5)}).to_iter_dataset()
    texts = [f"text {n}" for n in range(MANY // 4)]
    return {
        "range": lambda: read(Data.range(SINGLE)),
        "range, batch": lambda: read(many().batch(BATCH)),
        "from_list, batch": lambda: read(Data.source(arrays).map(lambda row: {"n": row["a"]}).batch(BATCH)),
        "from_tensor_slices of text, batch": lambda: read(Data.source(texts).batch(BATCH)),
        "from_iterable": lambda: read(Data.source(range(SINGLE))),
        "map, batch": lambda: read(many().map(lambda n: n + 1).batch(BATCH)),
        "map of batches": lambda: read(many().batch(BATCH).map(lambda n: n + 1)),
        "map in threads, batch": lambda: read(many().map(lambda n: n + 1).batch(BATCH)),
        "filter, batch": lambda: read(many().filter(lambda n: n % 2 == 0)).batch(BATCH),
        "shuffle, batch": lambda: read(many().shuffle(seed=1).batch(BATCH)),
        "repeat, batch": lambda: read(Data.range(10).repeat(MANY // 10).batch(BATCH)),
        "repeat": lambda: read(Data.range(10).repeat(SINGLE // 10)),
        "concatenate, batch": lambda: read(Data.concatenate([many(), many()]).batch(BATCH)),
        "zip, batch": lambda: read(experimental.ZipMapDataset([many(), many()]).batch(BATCH)),
        "enumerate, batch": lambda: read(many().map_with_index(lambda index, n: (index, n)).batch(BATCH)),
        "take and skip, batch": lambda: read(many()[1000 : MANY - 1000].batch(BATCH)),
        "shard, batch": lambda: read(many()[1::2].batch(BATCH)),
        "flat_map of lists, batch": lambda: experimental.FlatMapIterDataset(read(Data.range(FEW)), Twice()).batch(
            BATCH
        ),
        "rebatch": lambda: experimental.RebatchIterDataset(read(many().batch(BATCH)), 100),
        "sample_from at random, batch": lambda: read(Data.mix([many(), many()], [0.5, 0.5]).batch(BATCH)),
        "weighted_flat_map, batch": lambda: read(Data.mix([many(), many()], [0.5, 0.5]).batch(BATCH)),
        "pack": lambda: experimental.FirstFitPackIterDataset(
            row_lists, length_struct={"values": 64}, num_packing_bins=8, shuffle_bins=False
        ),
        "cache, batch": lambda: experimental.CacheIterDataset(read(many())).batch(BATCH),
        "prefetch": lambda: experimental.ThreadPrefetchIterDataset(
            Data.range(SINGLE).to_iter_dataset(), prefetch_buffer_size=16
        ),
        "select, batch": lambda: read(Data.source(arrays).map(lambda row: {"a": row["a"]}).batch(BATCH)),
        "with_column, batch": lambda: read(Data.source(arrays).map(lambda row: row | {"c": row["a"] + 1}).batch(BATCH)),
    }
