"""P5 with litdata: its chunks from S3 into a fresh folder, decoded in worker processes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from typing import Any

import litdata
import numpy as np
import torch
from litdata.streaming import downloader
from litdata.streaming.resolver import Dir

from benchmarks.compare.p3_function import decoded
from benchmarks.images import IMAGE_BATCH, WORKERS
from benchmarks.shards import KEYS, STORE, index_folder
from benchmarks.workload import Workload


class Images(litdata.StreamingDataset):  # type: ignore[misc]
    """Decodes what it reads."""

    def __getitem__(self, at: Any) -> Any:
        sample = super().__getitem__(at)
        return {"image": decoded(sample["image"]), "label": sample["label"]}


def batches(workload: Workload, variant: str | None) -> Iterator[Any]:
    """Yield dicts of arrays; nothing is left in its folder from an earlier pass."""
    os.environ.update(KEYS)
    downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True  # it refuses plain HTTP otherwise, and has no option
    torch.set_num_threads(1)
    options = {
        "endpoint_url": os.environ[STORE], "aws_access_key_id": "access", "aws_secret_access_key": "secret",
        "region_name": "us-east-1",
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        where = Dir(path=folder, url=f"s3://bench/{index_folder(workload, 'litdata')}")
        images = Images(where, shuffle=True, storage_options=options)
        for batch in litdata.StreamingDataLoader(images, batch_size=IMAGE_BATCH, num_workers=WORKERS):
            yield {name: np.asarray(values) for name, values in batch.items()}
