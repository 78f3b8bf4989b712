"""Time MDS and ArrayRecord shards, beside the libraries of the formats: ``python -m benchmarks.micro.record_shards``.

The libraries write the files, and every reader hands each sample to a loop that counts. MDS is read by
``streaming.StreamingDataset`` from a local folder. ArrayRecord is read by Grain's ``MapDataset``, in the calling
process, and by the library's ``ArrayRecordReader`` in blocks of 1,024 records. Columns are the sizes of a sample.

Each figure is the median of ``--repetitions`` passes, the readers taking turns. ``--out`` writes them as JSON.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import aiostream_data as asd
from benchmarks.machine import circumstances, versions_of
from benchmarks.micro.reading_turns import samples_per_s

SIZES = {"100 B": (100, 10_000), "4 KiB": (4 << 10, 5_000), "128 KiB": (128 << 10, 2_000)}
SHARDS = 4
AT_ONCE = 1_024

Read = Callable[[str], int]


def write_mds(folder: Path, nbytes: int, count: int) -> str:
    """Write shards of at most 64 MiB with an image and a label in each sample."""
    source, writer = random.Random(nbytes), import_module("streaming").MDSWriter
    with writer(out=str(folder / "mds"), columns={"jpg": "bytes", "label": "int"}, size_limit=1 << 26) as out:
        for row in range(count):
            out.write({"jpg": source.randbytes(nbytes), "label": row % 1000})
    return str(folder / "mds")


def write_array_records(folder: Path, nbytes: int, count: int) -> str:
    source, module = random.Random(nbytes), import_module("array_record.python.array_record_module")
    for shard in range(SHARDS):
        writer = module.ArrayRecordWriter(str(folder / f"{shard}.array_record"), "group_size:1")
        for _ in range(shard, count, SHARDS):
            writer.write(source.randbytes(nbytes))
        writer.close()
    return str(folder / "*.array_record")


def read_mds(folder: str) -> int:
    with asd.Dataset.from_mds(folder).open() as loader:
        return sum(1 for _ in loader)


def read_mds_with_streaming(folder: str) -> int:
    streaming = import_module("streaming")
    # It prepares 8 batches ahead, every 7 ms. With batches of one sample, it would mostly wait.
    return sum(1 for _ in streaming.StreamingDataset(local=folder, shuffle=False, batch_size=1024))


def read_array_records(pattern: str) -> int:
    with asd.Dataset.from_array_record(pattern).open() as loader:
        return sum(1 for _ in loader)


def read_array_records_with_grain(pattern: str) -> int:
    grain = import_module("grain")
    source = grain.sources.ArrayRecordDataSource(_paths(pattern))
    return sum(1 for _ in grain.MapDataset.source(source))


def read_array_records_in_blocks(pattern: str) -> int:
    module, found = import_module("array_record.python.array_record_module"), 0
    for path in _paths(pattern):
        reader = module.ArrayRecordReader(path)
        for first in range(0, reader.num_records(), AT_ONCE):
            found += len(reader.read(first, min(first + AT_ONCE, reader.num_records())))
        reader.close()
    return found


def _paths(pattern: str) -> list[str]:
    return sorted(str(path) for path in Path(pattern).parent.glob(Path(pattern).name))


READERS: dict[str, tuple[Callable[[Path, int, int], str], dict[str, Read]]] = {
    "MDS": (write_mds, {"from_mds": read_mds, "StreamingDataset": read_mds_with_streaming}),
    "ArrayRecord": (
        write_array_records,
        {
            "from_array_record": read_array_records,
            "Grain": read_array_records_with_grain,
            "ArrayRecordReader": read_array_records_in_blocks,
        },
    ),
}


def measure(kind: str, size: str, folder: Path, repetitions: int) -> dict[str, float]:
    """Return samples per second by reader."""
    nbytes, count = SIZES[size]
    write, readers = READERS[kind]
    return samples_per_s(readers, write(folder, nbytes, count), count, repetitions)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    figures: dict[str, dict[str, dict[str, float]]] = {}
    for kind in READERS:
        for size in SIZES:
            with tempfile.TemporaryDirectory() as folder:
                figures.setdefault(kind, {})[size] = measure(kind, size, Path(folder), options.repetitions)
            for name, rate in figures[kind][size].items():
                print(f"{kind:<12}{size:>8}  {name:<20}{rate:>12,.0f} samples/s")
    if options.out is not None:
        versions = versions_of(["numpy", "mosaicml-streaming", "grain", "array-record"])
        result = {"circumstances": circumstances(), "versions": versions, "samples_per_s": figures}
        options.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
