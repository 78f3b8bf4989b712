"""P5 with mosaicml-streaming: MDS shards from S3 into a fresh folder, decoded in a worker process.

In one: two that fetch shards into one fresh folder read half-written ones here, in one run of two (0.10.0).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from benchmarks.compare.p3_function import decoded
from benchmarks.compare.p5_torchvision import load_streaming
from benchmarks.images import IMAGE_BATCH
from benchmarks.shards import KEYS, STORE, index_folder
from benchmarks.workload import Workload

streaming: Any = load_streaming()


class Images(streaming.StreamingDataset):  # type: ignore[misc]
    """Decodes what it reads."""

    def __getitem__(self, at: int) -> Any:
        sample = super().__getitem__(at)
        return {"image": decoded(sample["image"]), "label": sample["label"]}


def batches(workload: Workload, variant: str | None) -> Iterator[Any]:
    """Yield dicts of arrays; nothing is left in its folder from an earlier pass."""
    os.environ.update(KEYS, S3_ENDPOINT_URL=os.environ[STORE])
    torch.set_num_threads(1)
    streaming.base.util.clean_stale_shared_memory()
    with tempfile.TemporaryDirectory() as folder:
        images = Images(
            remote=f"s3://bench/{index_folder(workload, 'mds')}", local=folder, shuffle=True, batch_size=IMAGE_BATCH
        )
        for batch in DataLoader(images, batch_size=IMAGE_BATCH, num_workers=1):
            yield {name: np.asarray(values) for name, values in batch.items()}
