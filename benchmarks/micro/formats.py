"""Time the same rows in every format, read by a ``Dataset`` with its defaults: ``python -m benchmarks.micro.formats``.

A row of the first table has an integer, two floats and a text of about 40 bytes. TFRecord rows are parsed by
``parse_example``; the members of WebDataset samples are one JSON document, which is not parsed. A row of the second
table is an image: 100,000 random bytes. "rows" gives one element after the other, "batches" gives batches of 256 rows
or 64 images. All files are local and in the page cache. The number of rows is compared.

Each figure is the median of ``--repetitions`` passes, the formats taking turns. ``--out`` writes them as JSON.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import json
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import ipc, parquet

import aiostream_data as asd
from benchmarks.machine import circumstances, versions_of

BATCH: Final = 256
IMAGES: Final = 64
"""Images per batch."""

IMAGE_NBYTES: Final = 100_000
PARTS: Final = 4
SCHEMA: Final = {"id": np.int64, "x": np.float64, "y": np.float64, "text": str}
FEATURES: Final = {
    "id": asd.FixedLen((), np.int64),
    "x": asd.FixedLen((), np.float32),
    "y": asd.FixedLen((), np.float32),
    "text": asd.FixedLen((), str),
}

Rows = list[dict[str, Any]]
Make = Callable[[Path], asd.Dataset[Any]]


def drawn_rows(count: int) -> Rows:
    """Return rows, the same every time."""
    random = np.random.default_rng(1)
    ids, floats = random.integers(0, 10**9, count).tolist(), random.random((count, 2)).round(6).tolist()
    return [
        {"id": ids[row], "x": floats[row][0], "y": floats[row][1], "text": f"a caption of about forty bytes, {row:08}"}
        for row in range(count)
    ]


def write_csv(path: Path, rows: Rows) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(SCHEMA))
        writer.writeheader()
        writer.writerows(rows)


def write_json(path: Path, rows: Rows) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_compressed_json(path: Path, rows: Rows) -> None:
    with gzip.open(path, "wt", compresslevel=6) as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def write_parquet(path: Path, rows: Rows) -> None:
    parquet.write_table(pa.Table.from_pylist(rows), path, row_group_size=50_000)


def write_arrow(path: Path, rows: Rows) -> None:
    table = pa.Table.from_pylist(rows)
    with ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=50_000)


def write_tfrecord(path: Path, rows: Rows) -> None:
    with asd.TFRecordWriter(str(path)) as writer:
        for row in rows:
            writer.write(asd.encode_example(row))


def write_tar(path: Path, rows: Rows) -> None:
    with tarfile.open(path, "w") as archive:
        for number, row in enumerate(rows):
            content = json.dumps(row).encode()
            member = tarfile.TarInfo(f"{number:08}.json")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def write_text(path: Path, rows: Rows) -> None:
    path.write_text("".join(row["text"] + "\n" for row in rows))


Formats = Mapping[str, tuple[str, Callable[[Path, Rows], None], Make]]
"""Suffix of the files, function that writes one, and function that reads all, by the name of the format."""

ROWS: Final[Formats] = {
    "Arrow IPC": ("arrow", write_arrow, lambda path: asd.Dataset.from_arrow(str(path))),
    "Parquet": ("parquet", write_parquet, lambda path: asd.Dataset.from_parquet(str(path))),
    "TFRecord, parsed": (
        "tfrecord",
        write_tfrecord,
        lambda path: asd.Dataset.from_tfrecord(str(path)).parse_example(FEATURES),
    ),
    "CSV": ("csv", write_csv, lambda path: asd.Dataset.from_csv(str(path), SCHEMA)),
    "JSON lines": ("jsonl", write_json, lambda path: asd.Dataset.from_jsonl(str(path), SCHEMA)),
    "JSON lines, gzip": ("jsonl.gz", write_compressed_json, lambda path: asd.Dataset.from_jsonl(str(path), SCHEMA)),
    "JSON lines without a schema": ("jsonl", write_json, lambda path: asd.Dataset.from_jsonl(str(path))),
    "WebDataset, not parsed": ("tar", write_tar, lambda path: asd.Dataset.from_webdataset(str(path))),
    "text lines": ("txt", write_text, lambda path: asd.Dataset.from_text(str(path))),
}


def drawn_images(count: int) -> Rows:
    random = np.random.default_rng(1)
    return [{"image": random.bytes(IMAGE_NBYTES)} for _ in range(count)]


def write_image_table(path: Path, rows: Rows) -> None:
    table = pa.Table.from_pylist(rows)
    if path.suffix == ".arrow":
        with ipc.new_file(str(path), table.schema) as writer:
            writer.write_table(table, max_chunksize=100)
    else:
        parquet.write_table(table, path, row_group_size=100)


def write_image_records(path: Path, rows: Rows) -> None:
    with asd.TFRecordWriter(str(path)) as writer:
        for row in rows:
            writer.write(row["image"])


def write_image_tar(path: Path, rows: Rows) -> None:
    with tarfile.open(path, "w") as archive:
        for number, row in enumerate(rows):
            member = tarfile.TarInfo(f"{number:08}.jpg")
            member.size = len(row["image"])
            archive.addfile(member, io.BytesIO(row["image"]))


def write_image_files(path: Path, rows: Rows) -> None:
    path.mkdir()
    for number, row in enumerate(rows):
        (path / f"{number:08}.jpg").write_bytes(row["image"])


def image_array(rows: Rows) -> np.ndarray:
    return np.frombuffer(b"".join(row["image"] for row in rows), np.uint8).reshape(len(rows), -1)


def write_image_hdf5(path: Path, rows: Rows) -> None:
    import h5py

    with h5py.File(path, "w") as file:
        file.create_dataset("image", data=image_array(rows), chunks=(1, IMAGE_NBYTES))


OF_IMAGES: Final[Formats] = {
    "NumPy": (
        "npy",
        lambda path, rows: np.save(path, image_array(rows)),
        lambda path: asd.Dataset.from_npy(str(path)),
    ),
    "HDF5, one chunk per image": ("h5", write_image_hdf5, lambda path: asd.Dataset.from_hdf5(str(path), ["image"])),
    "TFRecord": ("tfrecord", write_image_records, lambda path: asd.Dataset.from_tfrecord(str(path))),
    "WebDataset": ("tar", write_image_tar, lambda path: asd.Dataset.from_webdataset(str(path))),
    "Arrow IPC": ("arrow", write_image_table, lambda path: asd.Dataset.from_arrow(str(path))),
    "Parquet": ("parquet", write_image_table, lambda path: asd.Dataset.from_parquet(str(path))),
    "one file per image": ("files", write_image_files, lambda path: asd.Dataset.from_files(f"{path}/*.jpg")),
}


def one_pass(dataset: asd.Dataset[Any], batch: int | None) -> tuple[int, float]:
    """Return the number of rows, and the seconds from opening to the last row."""
    began, rows = perf_counter(), 0
    with (dataset if batch is None else dataset.batch(batch)).open() as loader:
        for element in loader:
            rows += 1 if batch is None else _length(element)
    return rows, perf_counter() - began


def _length(batch: Any) -> int:
    return len(next(iter(batch.values())) if isinstance(batch, dict) else batch)


def measured(formats: Formats, rows: Rows, batch: int, repetitions: int) -> dict[str, Any]:
    """Return the bytes per row, and the rows per second of each pass. The formats take turns."""
    taken: dict[str, dict[str, list[float]]] = {name: {"rows": [], "batches": []} for name in formats}
    with tempfile.TemporaryDirectory() as folder:
        for suffix, write, _ in formats.values():
            for part in range(PARTS):
                if not (path := Path(folder) / f"{part}.{suffix}").exists():
                    write(path, rows)
        for repetition in range(repetitions + 1):
            for name, (suffix, _, make) in formats.items():
                for kind, size in (("rows", None), ("batches", batch)):
                    count, seconds = one_pass(make(Path(folder) / f"?.{suffix}"), size)
                    if count != len(rows) * PARTS:
                        raise RuntimeError(f"{name}: {count} rows")
                    if repetition:  # the first pass warms up
                        taken[name][kind].append(count / seconds)
        sizes = {name: _nbytes(Path(folder), suffix) / (len(rows) * PARTS) for name, (suffix, _, _) in formats.items()}
    return {"rows": len(rows) * PARTS, "bytes_per_row": sizes, "rows_per_s": taken}


def _nbytes(folder: Path, suffix: str) -> int:
    files = (file for path in folder.glob(f"?.{suffix}") for file in (path.iterdir() if path.is_dir() else [path]))
    return sum(file.stat().st_size for file in files)


def show(found: Mapping[str, Any]) -> None:
    print(f"{'format':30}{'bytes per row':>15}{'rows/s':>14}{'rows/s in batches':>20}")
    for name, kinds in found["rows_per_s"].items():
        one, many = median(kinds["rows"]), median(kinds["batches"])
        print(f"{name:30}{found['bytes_per_row'][name]:15,.1f}{one:14,.0f}{many:20,.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--images", type=int, default=2_000)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    found = {
        "rows": measured(ROWS, drawn_rows(chosen.rows // PARTS), BATCH, chosen.repetitions),
        "images": measured(OF_IMAGES, drawn_images(chosen.images // PARTS), IMAGES, chosen.repetitions),
    }
    for each in found.values():
        show(each)
    if chosen.out:
        told = {**circumstances(), "versions": versions_of(["numpy", "pyarrow", "h5py"]), **found}
        chosen.out.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
