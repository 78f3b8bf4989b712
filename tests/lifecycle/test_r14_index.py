"""R14: what the package keeps of a data set of ten million records is at most 16 bytes a record, and no objects."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aiostream_data import Dataset
from aiostream_data.metrics.allocator import trim

ROWS = 10_000_000
BATCH = 16_384
SHARDS = 4

PLANS: dict[str, Callable[[list[str]], Dataset[Any]]] = {
    "range, shuffled": lambda _: Dataset.range(ROWS).shuffle(seed=1),
    "range, shuffled, of a rank": lambda _: Dataset.range(ROWS).shuffle(seed=1),
    "slices, shuffled": lambda _: Dataset.from_tensor_slices(np.arange(ROWS)).shuffle(seed=1),
    "shards": lambda paths: Dataset.from_fixed_length(paths, record_nbytes=8, cycle_length=SHARDS),
    "shards, shuffled": lambda paths: Dataset.from_fixed_length(
        paths, record_nbytes=8, cycle_length=SHARDS, shuffle_shards=True, seed=1
    ).shuffle(seed=1),
}


def _resident() -> int:
    trim()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("fixed")
    paths = [str(folder / f"{number}.bin") for number in range(SHARDS)]
    for path in paths:
        Path(path).write_bytes(bytes(8 * ROWS // SHARDS))
    return paths


@pytest.mark.parametrize("plan", list(PLANS))
def test_r14_ten_million_records_cost_no_object_and_16_bytes_each(plan: str, shards: list[str]) -> None:
    dataset = PLANS[plan](shards).batch(BATCH)
    rank: dict[str, int] = {"rank": 1, "world_size": 2} if plan.endswith("of a rank") else {}
    with dataset.open(**rank) as loader:  # type: ignore[arg-type]
        rows, batches = 0, iter(loader)
        for _ in range(5):
            rows += len(next(batches))
        gc.collect()
        objects, before = len(gc.get_objects()), _resident()
        for batch in batches:
            rows += len(batch)
            saved_every = 200 * BATCH
            if rows % saved_every == 0:
                loader.state_dict()
            if rows > ROWS // (2 if rank else 1) - 5 * BATCH:
                break  # before the end, as the engine lets go of everything there
        del batch
        gc.collect()
        grown, kept = len(gc.get_objects()) - objects, _resident() - before
    assert rows > ROWS // 2 - 6 * BATCH
    assert grown < 20_000, f"{grown} objects"
    assert kept <= 16 * ROWS, f"{kept / ROWS:.1f} bytes a record"
