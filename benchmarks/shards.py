"""The photographs of P5 in the formats that the loaders read: the same images in the same shards for everyone.

``tfrecord/00000.tfrecord`` and ``tar/00000.tar`` are shards; ``mds`` and ``litdata`` are data sets with an index, one
of all images and one of the first shard's, which is what is checked before anything is timed.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import aiostream_data as asd
from benchmarks.images import image_files
from benchmarks.workload import Workload

SHARDS = 8
STORE = "BENCH_STORE"
"""Environment variable with the URL of the server whose bucket ``bench`` is the folder of the shards."""

KEYS = {"AWS_ACCESS_KEY_ID": "access", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1"}
"""What S3 clients want to sign with; nobody checks it."""

LAYOUT = 1
"""Raised when the files' contents change, so that older ones are written anew."""

WRITERS = ("mds", "litdata")
"""Formats written by the loader that reads them, in a process of its own."""


def shards_root(data: Path) -> Path:
    """Return the folder that is served."""
    return data / f"shards-v{LAYOUT}"


def store_options() -> dict[str, Any]:
    """Return the storage options for the server that :data:`STORE` names."""
    client = {"region_name": "us-east-1"}
    return {"endpoint_url": os.environ[STORE], "key": "access", "secret": "secret", "client_kwargs": client}


def image_shards(data: Path, rows: int) -> Workload:
    """Return the workload over the TFRecord shards of ``rows`` images; write all formats if need be.

    Raises:
        ValueError: ``rows`` cannot be divided evenly.
    """
    if rows % SHARDS:
        raise ValueError(f"rows must be a multiple of {SHARDS}, got {rows}")
    folder, per_shard = shards_root(data) / str(rows), rows // SHARDS
    paths = tuple(folder / "tfrecord" / f"{shard:05}.tfrecord" for shard in range(SHARDS))
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        jpegs = image_files(data, rows).paths
        for shard, path in enumerate(paths):
            images = jpegs[shard * per_shard : (shard + 1) * per_shard]
            write_tfrecord(path, images)
            write_tar(folder / "tar" / f"{shard:05}.tar", images)
        (folder / "complete").touch()
    for writer in WRITERS:
        for name, part in ((f"{writer}-first", per_shard), (writer, rows)):
            if not (folder / name / "index.json").exists():
                _by_their_own(writer, folder, image_files(data, rows).paths[:part], name)
    return Workload(rows=rows, paths=paths, rows_per_file=per_shard)


def write_tfrecord(path: Path, images: Sequence[Path]) -> None:
    """Write a shard of Examples."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with asd.TFRecordWriter(path) as writer:
        for image in images:
            writer.write(asd.encode_example({"image": image.read_bytes(), "label": np.array([int(image.stem)])}))


def write_tar(path: Path, images: Sequence[Path]) -> None:
    """Write a shard as webdataset wants it: ``key.jpg`` and ``key.cls``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for row, image in enumerate(images):
            for ending, content in (("jpg", image.read_bytes()), ("cls", str(int(image.stem)).encode())):
                member = tarfile.TarInfo(f"{row:06}.{ending}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))


def index_folder(workload: Workload, writer: str) -> str:
    """Return the key below the bucket of the data set with an index that has a workload's images."""
    folder = workload.paths[0].parents[1]
    return f"{folder.name}/{writer}" + ("" if len(workload.paths) == SHARDS else "-first")


def keys_of(workload: Workload, kind: str) -> list[str]:
    """Return the keys below the bucket of a workload's shards in one of the formats that have them."""
    return [f"{path.parents[1].name}/{kind}/{path.stem}.{kind}" for path in workload.paths]


def _by_their_own(writer: str, folder: Path, images: Sequence[Path], name: str) -> None:
    """Have a format written by its own writer, where that is installed."""
    listed = folder / f"{name}.list"
    listed.write_text("\n".join(map(str, images)))
    command = [sys.executable, "-m", f"benchmarks.compare.p5_{writer}_write", str(listed), str(folder / name)]
    subprocess.run(command, check=False, capture_output=True, env={**os.environ, **KEYS})
