"""Small local files of every format that drawn programs read. Every record is unique."""

from __future__ import annotations

import atexit
import bz2
import gzip
import io
import json
import lzma
import os
import shutil
import sqlite3
import tarfile
import tempfile
import zlib
from contextlib import closing
from functools import cache
from pathlib import Path

import array_records
import h5py
import lake_files
import mds_files
import numpy as np
import pyarrow as pa
import tfds_files
from cramjam import snappy
from pyarrow import parquet

import aiostream_data as asd
from aiostream_data.formats.tfrecord_writer import frame

FOLDER = "ASD_METAMORPHIC_FILES"
"""Environment variable with the folder, for processes that go on with a run of this one."""

ROWS = (7, 0, 12, 1)
"""Records of each file of a kind."""

_MIXED = (pa.int8(), pa.int64(), pa.int16(), pa.uint16())
"""Type of the numbers of each file of ``.mixed-parquet`` and ``.mixed-arrow``."""


@cache
def folder() -> Path:
    """Return the folder with the files. They are written once and removed when this process exits."""
    if FOLDER in os.environ:
        return Path(os.environ[FOLDER])
    path = Path(tempfile.mkdtemp(prefix="metamorphic-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    for file, rows in enumerate(ROWS):
        _write(path, file, [f"{file}:{row}" for row in range(rows)])
    _write_database(path / "rows.db")
    lake_files.write_lake(path)
    return path


def database() -> sqlite3.Connection:
    """Open the database."""
    return sqlite3.connect(place("rows.db"))


def catalog() -> dict[str, str]:
    """Return the properties of the catalog of the Iceberg table."""
    return lake_files.catalog(place("iceberg"))


def snapshot(number: int) -> int:
    """Return the id of a snapshot of the Iceberg table."""
    return lake_files.snapshot(place("iceberg"), number)


def pattern(suffix: str) -> str:
    """Return the pattern that matches every file with this ending."""
    return str(folder() / f"*{suffix}")


def place(name: str) -> str:
    """Return the path of a folder or a file."""
    return str(folder() / name)


def _write(path: Path, file: int, names: list[str]) -> None:
    records = [name.encode() * (row % 3 + 1) for row, name in enumerate(names)]
    _write_records(path / f"{file}.tfrecord", records, "")
    _write_records(path / f"{file}.tfrecord.gz", records, "gzip")
    _write_records(path / f"{file}.example", [_example(file, row) for row in range(len(names))], "")
    _write_records(path / f"{file}.steps", [_steps(file, row) for row in range(len(names))], "")
    lines = "".join(f"line {name}\n" for name in names).encode()
    (path / f"{file}.txt").write_bytes(lines)
    (path / f"{file}.txt.gz").write_bytes(gzip.compress(lines))
    (path / f"{file}.txt.z").write_bytes(zlib.compress(lines))
    (path / f"{file}.txt.bz2").write_bytes(bz2.compress(lines))
    (path / f"{file}.txt.xz").write_bytes(lzma.compress(lines))
    _write_records(path / f"{file}.tfrecord.lz4", records, "lz4")
    compression = list(array_records.COMPRESSIONS)[file]
    chunks = array_records.in_groups(records, 1 + 2 * file)
    (path / f"{file}.array_record").write_bytes(array_records.array_record(chunks, compression))
    _write_records(path / f"{file}.tfrecord.sz", records, "snappy")
    _write_damaged(path, file, records, lines)
    _write_table(path / f"{file}.parquet", file, names)
    _write_csv(path, file, names)
    for row, name in enumerate(names):
        image = path / "images" / f"class {row % 3}" / f"{file}-{row}.png"
        image.parent.mkdir(parents=True, exist_ok=True)
        image.write_bytes(name.encode())
    _write_mds(path / "mds", file, names)
    _write_tfds(path / "tfds")
    _write_json(path, file, names)
    (path / f"{file}.bin").write_bytes(b"head" + b"".join(f"{name:>8}".encode() for name in names))
    _write_archives(path, file, names)


def _write_mds(folder: Path, file: int, names: list[str]) -> None:
    """Write one more shard of a folder of MDS shards, and the index of the shards so far."""
    encoded = [(name.encode() * (row % 3), 100 * file + row, name) for row, name in enumerate(names)]
    known = {path.name: path.read_bytes() for path in folder.glob("*.mds")} if folder.exists() else {}
    shard = mds_files.shard([mds_files.encoded(*sample) for sample in encoded])
    mds_files.write_folder(folder, {**dict(sorted(known.items())), f"{file}.mds": shard})


def _write_tfds(folder: Path) -> None:
    """Write a folder of TensorFlow Datasets with two splits."""
    numbers = iter(range(100))
    rows = {"train": ROWS, "test": ROWS[2:]}
    splits = {name: [[tfds_files.record(next(numbers)) for _ in range(n)] for n in ns] for name, ns in rows.items()}
    tfds_files.write_folder(folder, splits)


def _write_archives(path: Path, file: int, names: list[str]) -> None:
    """Write shards whose samples have the same extensions, and others that do not, sound and damaged."""
    same = [(f"{name}.{ending}", name.encode()) for name in names for ending in ("txt", "cls")]
    (path / f"{file}.tar").write_bytes(_archive(same))
    mixed = [one for row, one in enumerate(same) if row % 3]
    (path / f"{file}.tar.gz").write_bytes(gzip.compress(_archive(mixed)))
    damaged = bytearray(_archive(same))
    for place in (3, 4, 12):
        if place < len(same):
            damaged[1024 * place + 5] ^= 1  # headers
    again = _archive([*same, *same[:1]])
    (path / f"{file}.badtar").write_bytes(damaged[: None if file else -700])
    (path / f"{file}.badtar.gz").write_bytes(gzip.compress(again)[: -9 if file else None])


def _archive(members: list[tuple[str, bytes]]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return file.getvalue()


def _write_damaged(path: Path, file: int, records: list[bytes], lines: bytes) -> None:
    """Write files with damage in and between records, at their ends, and behind what can be decompressed."""
    frames = [bytearray(frame(record)) for record in records]
    if len(frames) > 1:
        frames[1][13] ^= 1  # a payload
        frames[-2][2] ^= 1  # a length
    damaged = b"".join(frames)
    (path / f"{file}.damaged").write_bytes(damaged[:60] + damaged[64:] if file else damaged + b"cut short")
    (path / f"{file}.damaged.gz").write_bytes(gzip.compress(damaged)[: -9 if file else None])
    (path / f"{file}.damaged.xz").write_bytes(lzma.compress(damaged)[: -9 if file else None])
    (path / f"{file}.damaged.sz").write_bytes(bytes(snappy.compress(damaged))[: -9 if file else None])
    (path / f"{file}.badtext").write_bytes(lines.replace(b"2:", b"\xff") + b"\xff" * (file % 2))
    (path / f"{file}.badtext.gz").write_bytes(gzip.compress(lines.replace(b"0:1", b"\xc3"))[: -5 if file else None])
    (path / f"{file}.badbin").write_bytes(
        b"".join(b"%8d" % (100 * file + row) for row in range(len(records))) + b"left"
    )


def _write_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE rows (n INTEGER PRIMARY KEY, name TEXT, x REAL)")
        rows = [(5 * row - 20, f"row {row}", row / 2) for row in range(20)]
        connection.executemany("INSERT INTO rows VALUES (?, ?, ?)", rows)
        connection.commit()


def _write_table(path: Path, file: int, names: list[str]) -> None:
    numbers = [100 * file + row for row in range(len(names))]
    texts = [None if row % 4 == 2 else name for row, name in enumerate(names)]
    lists = [[number] * (row % 3) for row, number in enumerate(numbers)]
    columns = {"n": pa.array(numbers, pa.int64()), "text": pa.array(texts, pa.string())}
    columns["values"] = pa.array(lists, pa.list_(pa.int64()))
    pairs = list(zip(names, texts, strict=True))
    words = [[name, text] * (row % 3) for row, (name, text) in enumerate(pairs)]
    columns["words"] = pa.array(words, pa.list_(pa.string()))
    turns = [[{"who": name, "said": text}] * (row % 4) for row, (name, text) in enumerate(pairs)]
    columns["turns"] = pa.array(turns, pa.list_(pa.struct({"who": pa.string(), "said": pa.string()})))
    columns["price"] = pa.array(numbers, pa.int64()).cast(pa.decimal128(21, 2))
    table = pa.table(columns)
    mixed = table.set_column(0, "n", table.column("n").cast(_MIXED[file]))
    write = pa.ipc.new_stream if file % 2 else pa.ipc.new_file
    for prefix, each in ((".", table), (".mixed-", mixed)):
        parquet.write_table(each, path.with_suffix(f"{prefix}parquet"), row_group_size=5)
        with write(path.with_suffix(f"{prefix}arrow"), each.schema) as writer:
            writer.write_table(each, max_chunksize=3)
    _write_arrays(path, file, numbers)


def _write_arrays(path: Path, file: int, numbers: list[int]) -> None:
    """Write arrays in both memory orders, and archives with and without compression."""
    rows = np.array(numbers, np.int64)[:, None] + np.arange(3)
    path.with_suffix(".tokens").write_bytes((100 * file + np.arange(47)).astype(np.uint16).tobytes())
    np.save(path.with_suffix(".npy"), rows if file % 2 else np.asfortranarray(rows))
    save = np.savez_compressed if file % 2 else np.savez
    save(path.with_suffix(".npz"), n=rows[:, 0], x=rows / 8, name=np.array([f"{n}" for n in numbers], "U5"))
    with h5py.File(path.with_suffix(".h5"), "w") as h5:
        h5["n"] = rows[:, 0]
        h5.create_dataset("x", data=rows / 8, maxshape=(None, 3), compression="gzip")
        h5.create_dataset("name", data=[f"{n}" for n in numbers], shape=(len(numbers),), dtype=h5py.string_dtype())


def _write_csv(path: Path, file: int, names: list[str]) -> None:
    """Write rows with quoted newlines and missing values; the columns of every second file are in another order."""
    rows = [
        (f"{100 * file + row}", f"{row / 8}" if row % 3 else "", f'"{name}\n""quoted"""' if row % 4 == 1 else name)
        for row, name in enumerate(names)
    ]
    lines = ["n,x,name", *map(",".join, rows)]
    if file % 2:
        lines = ["name,n,x", *(f"{name},{n},{x}" for n, x, name in rows)]
    (path / f"{file}.csv").write_text("\n".join(lines) + "\n" * (file % 3), newline="")
    (path / f"{file}.csv.gz").write_bytes(gzip.compress("\r\n".join(lines).encode()))
    bad = "\n".join(lines).encode().replace(b"2:3", b"\xff").replace(b"2:5", b"2:5,1").replace(b"0:4", b'"open')
    (path / f"{file}.badcsv").write_bytes(bad)


def _write_json(path: Path, file: int, names: list[str]) -> None:
    """Write records with blank lines, missing keys and keys that no schema names."""
    lines = []
    for row, name in enumerate(names):
        values = list(range(row % 3)) if row % 4 else None
        record = {"name": f"{name} é\n", "n": 100 * file + row, "more": {"x": row / 8, "values": values}, "row": row}
        lines.append(json.dumps(record if row % 5 else {**record, "more": None}, ensure_ascii=row % 2 == 0))
    (path / f"{file}.jsonl").write_text("\n".join(lines) + "\n" * (file % 3), newline="")
    (path / f"{file}.jsonl.gz").write_bytes(gzip.compress("\r\n \r\n".join(lines).encode()))
    bad = "\n".join(lines).encode().replace(b"2:3", b"\xff").replace(b"2:5", b'2:5"').replace(b'"n": 4', b'"n": NaN')
    (path / f"{file}.badjsonl").write_bytes(bad)


def _write_records(path: Path, records: list[bytes], compression: str) -> None:
    with asd.TFRecordWriter(path, compression) as writer:
        for record in records:
            writer.write(record)


def _example(file: int, row: int) -> bytes:
    return asd.encode_example(
        {"n": 100 * file + row, "name": f"{file}:{row}", "values": [100 * file + row] * (row % 3)}
    )


def _steps(file: int, row: int) -> bytes:
    return asd.encode_sequence_example({"n": 100 * file + row}, {"t": [[step] for step in range(row % 4)]})
