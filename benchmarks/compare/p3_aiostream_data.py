"""P3 with this package: ``map`` on threads, as the libraries release the GIL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import aiostream_data as asd
from benchmarks.compare.p3_function import decode, load
from benchmarks.images import IMAGE_BATCH, WORKERS
from benchmarks.workload import Workload


def batches(workload: Workload, variant: str | None) -> Iterator[Any]:
    """Yield dicts of arrays; ``variant`` says who reads the files."""
    if variant == "from_files":
        files = asd.Dataset.from_files([str(path) for path in workload.paths])
        mapped = files.map(_decoded, concurrency=WORKERS)
    else:
        mapped = asd.Dataset.from_iterable([str(path) for path in workload.paths]).map(load, concurrency=WORKERS)
    with mapped.batch(IMAGE_BATCH).prefetch(4).open() as loader:
        yield from loader


def _decoded(file: dict[str, Any]) -> dict[str, Any]:
    return decode(file["data"], file["url"])
