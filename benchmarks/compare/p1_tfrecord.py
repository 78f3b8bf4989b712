"""P1 with the ``tfrecord`` package: a pure-Python reader over protobuf's parser."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

import numpy as np
from tfrecord.iterator_utils import shuffle_iterator
from tfrecord.reader import tfrecord_loader

from benchmarks.workload import BATCH_SIZE, SHUFFLE_BUFFER, Workload

_DESCRIPTION = {"features": "float", "label": "int", "id": "int"}


def batches(workload: Workload, variant: str | None) -> Iterator[Any]:
    """Yield dicts of arrays."""
    files = (tfrecord_loader(str(path), None, _DESCRIPTION) for path in workload.paths)
    records = shuffle_iterator(chain.from_iterable(files), SHUFFLE_BUFFER)
    while rows := list(islice(records, BATCH_SIZE)):
        batch = {name: np.stack([row[name] for row in rows]) for name in _DESCRIPTION}
        yield {"features": batch["features"], "label": batch["label"][:, 0], "id": batch["id"][:, 0]}
