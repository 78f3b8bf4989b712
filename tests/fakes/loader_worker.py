"""A stand-in for a worker of PyTorch's DataLoader: this process, for as long as a block lasts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NamedTuple

NAME = "torch.utils.data"


class IterableDataset:
    """As PyTorch's."""


class IndexedDataset:
    """A dataset with indices, which PyTorch shares out itself."""


class WorkerInfo(NamedTuple):
    """As PyTorch's: the seed is that of the DataLoader's iterator plus the worker's number."""

    id: int
    num_workers: int
    seed: int
    dataset: object


def fake_data(info: WorkerInfo | None) -> Any:
    """Return a module ``torch.utils.data`` in such a worker."""
    module: Any = ModuleType(NAME)
    module.get_worker_info, module.IterableDataset = lambda: info, IterableDataset
    return module


@contextmanager
def in_worker(number: int, count: int, *, base_seed: int = 1000, dataset: object = None) -> Iterator[None]:
    """Let this process be worker ``number`` of ``count``."""
    before = sys.modules.get(NAME)
    dataset = IterableDataset() if dataset is None else dataset
    sys.modules[NAME] = fake_data(WorkerInfo(number, count, base_seed + number, dataset))
    try:
        yield
    finally:
        if before is None:
            del sys.modules[NAME]
        else:
            sys.modules[NAME] = before
