"""Data sets that a function returned leave memory when they end, although the loader can still name their rows."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aiostream_data import Dataset
from aiostream_data._engine.flow.stage import Stage
from aiostream_data.plan.base import Node
from aiostream_data.storage.read_window import ReadWindow

pytestmark = pytest.mark.leaves_nothing

DATASETS = 600

Make = Callable[[Path], Callable[[int], Dataset[Any]]]

PLANS: dict[str, Make] = {
    "from_tensor_slices": lambda _: lambda n: Dataset.from_tensor_slices(np.full(4, n)).batch(2).shuffle(3),
    "from_iterable": lambda _: lambda n: Dataset.from_iterable([n, n]).batch(2).shuffle(3),
    "from_generator": lambda _: lambda n: Dataset.from_generator(lambda: iter([n, n])).batch(2),
    "range": lambda _: lambda n: Dataset.range(n + 1).batch(100).shuffle(3),
    "counter": lambda _: lambda n: Dataset.counter(n).take(4).batch(2),
    "from_text": lambda folder: lambda n: Dataset.from_text(folder / "x.txt").batch(2).shuffle(3),
    "from_npy": lambda folder: lambda n: Dataset.from_npy(folder / "x.npy").batch(2).shuffle(3),
    "list_files": lambda folder: lambda n: Dataset.list_files(str(folder / "*")).batch(2).shuffle(3),
    "zip": lambda folder: lambda n: Dataset.zip(Dataset.range(3), Dataset.from_text(folder / "x.txt")),
    "nested": lambda _: lambda n: Dataset.range(2).flat_map(lambda m: Dataset.range(2).batch(2).shuffle(2)),
}


@pytest.mark.parametrize("kind", PLANS)
def test_data_sets_that_have_ended_leave_no_plan_no_stage_and_no_data(tmp_path: Path, kind: str) -> None:
    (tmp_path / "x.txt").write_text("1\n2\n3\n")
    np.save(tmp_path / "x.npy", np.arange(3))
    rows = Dataset.range(DATASETS).flat_map(PLANS[kind](tmp_path))
    gc.collect()
    before = parts_in_memory()
    with rows.open() as loader:
        assert len(list(loader)) >= DATASETS
        gc.collect()
        assert parts_in_memory() - before < DATASETS // 2  # a few of the last ones are still known


def parts_in_memory() -> int:
    """Return the number of plan nodes, which hold the data, of stages, and of controllers."""
    return sum(isinstance(each, (Node, Stage, ReadWindow)) for each in gc.get_objects())
