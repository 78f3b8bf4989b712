"""tf.data on local copies of the objects: whole files, or TFRecord files with and without gzip."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.pipeline.cloud_work import BUCKET
from benchmarks.pipeline.dataset_cells import Prepare, Read, Reader, Work
from benchmarks.pipeline.dataset_objects import GZIP, Tally

os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0"}  # no messages; nothing is computed

IMPORTS = ("tensorflow",)


def open_reader(work: Work) -> Reader:
    """Return a reader."""
    return _opened(work)


@contextmanager
def _opened(work: Work) -> Iterator[Prepare]:
    def prepare(count: int) -> Read:
        paths = [str(work.root / BUCKET / work.objects.key(number)) for number in range(count)]
        dataset = _dataset(work, paths)

        def read(tally: Tally) -> None:
            tally.add_all(dataset.as_numpy_iterator())

        return read

    yield prepare


def _dataset(work: Work, paths: list[str]) -> Any:
    import tensorflow as tf

    if work.variant == "files":
        return tf.data.Dataset.from_tensor_slices(paths).map(tf.io.read_file, num_parallel_calls=work.at_once)
    compression = "GZIP" if work.objects.layout == GZIP else ""
    return tf.data.TFRecordDataset(paths, compression, num_parallel_reads=work.at_once)
