"""P5 with webdataset: tar shards over HTTP by its own reader, decoded in worker processes of PyTorch's DataLoader."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import webdataset as wds

from benchmarks.compare.p3_function import decoded
from benchmarks.compare.p5_aiostream_data import SHUFFLE_BUFFER
from benchmarks.images import IMAGE_BATCH, WORKERS
from benchmarks.shards import STORE, keys_of
from benchmarks.workload import Workload


def batches(workload: Workload, variant: str | None) -> Iterator[Any]:
    """Yield dicts of arrays; ``variant`` is the number of worker processes."""
    torch.set_num_threads(1)
    urls = [f"{os.environ[STORE]}/bench/{key}" for key in keys_of(workload, "tar")]
    images = (
        wds.WebDataset(urls, shardshuffle=len(urls), empty_check=False)
        .shuffle(SHUFFLE_BUFFER)
        .map(_load)
        .batched(IMAGE_BATCH, partial=True)
    )
    for image, label in wds.WebLoader(images, batch_size=None, num_workers=int(variant or WORKERS)):
        yield {"image": np.asarray(image), "label": np.asarray(label)}


def _load(sample: dict[str, Any]) -> tuple[Any, int]:
    return decoded(sample["jpg"]), int(sample["cls"])
