"""P3 with PyTorch's DataLoader: worker processes, each making whole batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, default_collate

from benchmarks.compare.p3_function import load
from benchmarks.images import IMAGE_BATCH
from benchmarks.workload import Workload


class Images:
    """Loads an image by index."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return load(self.paths[index])


def batches(workload: Workload, variant: str | None) -> Iterator[Any]:
    """Yield dicts of arrays; ``variant`` is the number of worker processes.

    PyTorch's own collation makes tensors, which go through shared memory; arrays would be pickled.
    """
    torch.set_num_threads(1)
    images: Any = Images([str(path) for path in workload.paths])
    loader = DataLoader(images, batch_size=IMAGE_BATCH, num_workers=int(variant or 0), collate_fn=default_collate)
    for batch in loader:
        yield {name: np.asarray(tensor) for name, tensor in batch.items()}
