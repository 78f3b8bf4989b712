"""Time the samples of local WebDataset shards, beside other readers: ``python -m benchmarks.micro.webdataset_shards``.

Rows are readers, columns the size of the members. Every reader goes through the same shards, which were read once
before, and hands each sample to a loop that counts. The webdataset library is measured where it is installed.
"tarfile" is a loop over Python's tarfile. "raw" reads the files into one buffer and parses nothing.

Each figure is the median of ``--repetitions`` passes, the readers taking turns. ``--out`` writes them as JSON.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import tarfile
import tempfile
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import aiostream_data as asd
from benchmarks.machine import circumstances, versions_of
from benchmarks.micro.reading_turns import samples_per_s

SIZES = {"2 KiB": (2 << 10, 40_000), "128 KiB": (128 << 10, 3_000), "1 MiB": (1 << 20, 400)}
SHARDS = 4

Read = Callable[[list[str]], int]


def write_shards(folder: Path, nbytes: int, count: int) -> list[str]:
    """Write shards whose samples have an image of ``nbytes`` and a label."""
    source = random.Random(nbytes)
    paths = [folder / f"{nbytes}-{shard}.tar" for shard in range(SHARDS)]
    for shard, path in enumerate(paths):
        with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as archive:
            for row in range(shard, count, SHARDS):
                for extension, data in (("jpg", source.randbytes(nbytes)), ("cls", b"%d" % (row % 1000))):
                    info = tarfile.TarInfo(f"{row:08}.{extension}")
                    info.size = len(data)
                    archive.addfile(info, io.BytesIO(data))
    return [str(path) for path in paths]


def read_with_package(paths: list[str]) -> int:
    with asd.Dataset.from_webdataset(paths).open() as loader:
        return sum(1 for _ in loader)


def read_batches(paths: list[str]) -> int:
    with asd.Dataset.from_webdataset(paths).batch(64, strings="columns").open() as loader:
        return sum(len(batch["jpg"]) for batch in loader)


def read_records(paths: list[str]) -> int:
    """Read the same bytes as records of TFRecord files, which :func:`main` writes beside the shards."""
    with asd.Dataset.from_tfrecord([f"{path}.tfrecord" for path in paths], verify=False).open() as loader:
        return sum(1 for _ in loader)


def read_with_library(paths: list[str]) -> int:
    library = import_module("webdataset")
    return sum(1 for _ in library.WebDataset(paths, shardshuffle=False, empty_check=False))


def read_with_tarfile(paths: list[str]) -> int:
    members = 0
    for path in paths:
        with tarfile.open(path, "r|") as archive:
            for info in archive:
                file = archive.extractfile(info)
                assert file is not None
                file.read()
                members += 1
                archive.members = []  # type: ignore[attr-defined]
    return members // 2


def read_raw(paths: list[str]) -> int:
    buffer = bytearray(1 << 20)
    for path in paths:
        with Path(path).open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass
    return 0


READERS: dict[str, Read] = {
    "from_webdataset": read_with_package,
    "from_webdataset, batches": read_batches,
    "from_tfrecord": read_records,
    "webdataset": read_with_library,
    "tarfile": read_with_tarfile,
    "raw": read_raw,
}


def write_records(paths: list[str]) -> None:
    """Write one TFRecord per sample beside each shard."""
    for path in paths:
        with asd.TFRecordWriter(f"{path}.tfrecord", "") as writer:
            for sample in asd.Dataset.from_webdataset(path):
                writer.write(sample["jpg"])


def measure(size: str, folder: Path, repetitions: int) -> dict[str, float]:
    """Return samples per second by reader; for "raw", as many samples as the bytes it read hold."""
    nbytes, count = SIZES[size]
    paths = write_shards(folder, nbytes, count)
    write_records(paths)
    readers = {name: read for name, read in READERS.items() if name != "webdataset" or find_spec("webdataset")}
    return samples_per_s(readers, paths, count, repetitions)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    figures = {}
    for size in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            figures[size] = measure(size, Path(folder), options.repetitions)
        for name, rate in figures[size].items():
            print(f"{size:>8}  {name:<26}{rate:>12,.0f} samples/s")
    if options.out is not None:
        versions = versions_of(["numpy", "webdataset"])
        result = {"circumstances": circumstances(), "versions": versions, "samples_per_s": figures}
        options.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
