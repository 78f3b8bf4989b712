"""P5 with Ray Data: tar shards from S3 by pyarrow, decoded in Ray's workers, mixed in a buffer of the consumer."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import ray
from pyarrow.fs import S3FileSystem

from benchmarks.compare.p3_function import decoded
from benchmarks.compare.p5_aiostream_data import SHUFFLE_BUFFER
from benchmarks.images import IMAGE_BATCH, WORKERS
from benchmarks.shards import STORE, keys_of
from benchmarks.workload import Workload


def batches(workload: Workload, variant: str | None) -> Iterator[Any]:
    """Yield dicts of arrays. Ray is started before and lives on: a training starts it once."""
    if not ray.is_initialized():
        ray.init(num_cpus=WORKERS, include_dashboard=False, logging_level=logging.ERROR, log_to_driver=False)
        ray.data.DataContext.get_current().enable_progress_bars = False
    store = S3FileSystem(
        access_key="access", secret_key="secret", region="us-east-1", endpoint_override=os.environ[STORE],
        scheme="http",
    )  # fmt: skip
    samples = ray.data.read_webdataset(
        [f"bench/{key}" for key in keys_of(workload, "tar")], filesystem=store, decoder=None, shuffle="files"
    )
    images = samples.map_batches(_load, batch_size=IMAGE_BATCH)
    for batch in images.iter_batches(
        batch_size=IMAGE_BATCH, prefetch_batches=4, local_shuffle_buffer_size=SHUFFLE_BUFFER
    ):
        yield {"image": np.asarray(batch["image"]), "label": np.asarray(batch["label"])}


def _load(samples: dict[str, Any]) -> dict[str, Any]:
    return {
        "image": np.stack([decoded(jpeg) for jpeg in samples["jpg"]]),
        "label": np.array([int(number) for number in samples["cls"]]),
    }
