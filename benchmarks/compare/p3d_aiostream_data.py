"""P3d with this package: one JPEG per file, through a Dataset with its defaults."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import aiostream_data as asd
from benchmarks.compare.p3_function import decoded, load
from benchmarks.images import IMAGES
from benchmarks.shards import store_options
from benchmarks.workload import Workload


def batches(workload: Workload, variant: str | None) -> Iterator[Any]:
    """Yield dicts of arrays, one image at a time; ``variant`` says where the files are, and who reads them."""
    with _dataset(workload, variant).open() as loader:
        for image in loader:
            yield {"image": image["image"][None], "label": np.array([image["label"]])}


def _dataset(workload: Workload, variant: str | None) -> asd.Dataset[Any]:
    folder = workload.paths[0].parent
    if variant == "from_iterable":
        return asd.Dataset.from_iterable([str(path) for path in workload.paths]).map(load)
    if variant == "s3":
        urls = _files(workload, f"s3://bench/{folder.name}")
        return asd.Dataset.from_files(urls, storage_options=store_options()).map(_load)
    return asd.Dataset.from_files(_files(workload, str(folder))).map(_load)


def _files(workload: Workload, folder: str) -> str | list[str]:
    """Return the pattern of all files, or the names of those of a part."""
    is_whole = workload.rows == int(workload.paths[0].parent.name)
    return f"{folder}/*.jpg" if is_whole else [f"{folder}/{path.name}" for path in workload.paths]


def _load(file: dict[str, Any]) -> dict[str, Any]:
    return {"image": decoded(file["data"]), "label": int(Path(file["url"]).stem) % IMAGES}
