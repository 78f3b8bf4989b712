"""Formats with row groups pass the suite of the package: rows, ranks, states, origins, damage, and requested ranges."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from array_records import array_record, in_groups, write_far
from pyarrow import parquet

from aiostream_data.formats.array_record import ArrayRecordFormat
from aiostream_data.formats.arrow_files import ArrowFormat
from aiostream_data.formats.hdf5 import Hdf5Format
from aiostream_data.formats.npy import NpyFormat
from aiostream_data.formats.parquet import ParquetFormat
from aiostream_data.formats.row_groups import TableFormat
from aiostream_data.formats.tokens import TokensFormat
from aiostream_data.testing.formats import TableDamage, TableFormatSuite

h5py = pytest.importorskip("h5py")

FAR, HOLE = 5 << 30, 1 << 28
NAMES = ("n", "text")
COLUMNS = [{"n": n, "text": f"é {n} " + "abcde" * (40 * n)} for n in range(7)]
VECTORS = [np.arange(64, dtype=np.float32) + n for n in range(7)]
ALONE = [np.full(1 << 17, n, np.float64) for n in range(4)]
"""Rows of 1 MiB, which are read one by one."""
PAIRS = [{"n": n, "x": vector} for n, vector in enumerate(VECTORS)]
SEQUENCES = [np.arange(100 * n, 100 * n + 100, dtype=np.uint16) for n in range(6)]
RECORDS = [b"", b"one", *(bytes([n]) * 1000 for n in range(5))]


def changed(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :]


TYPES = {
    "n": pa.int64(),
    "text": pa.string(),
    "turns": pa.list_(pa.struct({"who": pa.string(), "said": pa.list_(pa.int16())})),
    "counts": pa.map_(pa.string(), pa.int16()),
    "price": pa.decimal128(5, 2),
}


def table_of(rows: Sequence[Any], names: Sequence[str] = ("n", "text")) -> Any:
    return pa.table({name: pa.array([_arrow(row[name]) for row in rows], TYPES[name]) for name in names})


def _arrow(value: Any) -> Any:
    """Return a value as PyArrow expects it."""
    return list(value.items()) if isinstance(value, dict) else value


class Sink:
    """File that leaves a hole for each block of ``HOLE`` bytes."""

    closed = False

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, data: Any) -> None:
        if len(data) == HOLE:
            self._file.seek(HOLE, io.SEEK_CUR)
        else:
            self._file.write(data)

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self.closed = True


def behind_hole(file: Any) -> Any:
    """Return a file for PyArrow to write behind a hole of more than 2 GiB. PyArrow counts the bytes that it writes."""
    sink = pa.PythonFile(Sink(file), "w")
    leave_hole(sink)
    return sink


def leave_hole(sink: Any) -> None:
    for _ in range(9):
        sink.write(bytes(HOLE))


def parquet_file(rows: Sequence[Any], group_rows: int, names: Sequence[str] = ("n", "text")) -> bytes:
    made = io.BytesIO()
    parquet.write_table(
        table_of(rows, names), made, row_group_size=group_rows, compression="none", use_dictionary=False
    )
    return made.getvalue()


PARQUET = parquet_file(COLUMNS, 2)


OBJECTS = [
    {
        "turns": None if n == 3 else [{"who": f"user {n}", "said": [n, n]}, None] * (n % 3),
        "text": "abcde" * (40 * n),
        "counts": {f"key {n}": n},
        "price": Decimal(n) / 4,
    }
    for n in range(7)
]
OBJECTS_FILE = parquet_file(OBJECTS, 2, list(OBJECTS[0]))


class OfColumns(TableFormatSuite):
    rows: ClassVar[list[Any]] = COLUMNS

    @property
    def names(self) -> list[str]:
        return list(self.rows[0])

    def select(self, row: Any) -> Any:
        return {"n": row["n"]}


class TestParquet(OfColumns):
    format: ClassVar[TableFormat] = ParquetFormat()
    selected = ParquetFormat(columns=("n",))
    damaged = (TableDamage(changed(PARQUET, PARQUET.index(b"\x15", 4)), [0, 1], offset=4),)

    def encode(self, rows: Sequence[Any], group_rows: int) -> bytes:
        return parquet_file(rows, group_rows, self.names)

    def write_far(self, path: Path, rows: Sequence[Any]) -> int:
        with path.open("wb") as file:
            sink, table = pa.PythonFile(Sink(file), "w"), table_of(rows, self.names)
            with parquet.ParquetWriter(sink, table.schema) as writer:
                writer.write_table(table.slice(0, 3))
                leave_hole(sink)
                writer.write_table(table.slice(3))
        return 0


class TestParquetOfObjects(TestParquet):
    """Lists of structs, lists of text, maps and decimals."""

    rows = OBJECTS
    selected = ParquetFormat(columns=("price",))
    damaged = (TableDamage(changed(OBJECTS_FILE, OBJECTS_FILE.index(b"\x15", 4)), [0, 1], offset=4),)

    def select(self, row: Any) -> Any:
        return {"price": row["price"]}


TEXTS = [{"n": n, "text": np.random.default_rng(n).bytes(600_000).hex()} for n in range(3)]


def damaged_arrow() -> bytes:
    """Return a file of large batches, of which the second one does not begin as compressed bytes do."""
    made, table = io.BytesIO(), table_of(TEXTS)
    with pa.ipc.new_file(made, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(table, max_chunksize=1)
    content = made.getvalue()
    marks = [found.start() for found in re.finditer(re.escape(b"\x04\x22\x4d\x18"), content)]
    large = [mark for mark, after in pairwise([*marks, len(content)]) if after - mark > 500_000]
    return changed(content, large[1])


class TestArrowFiles(OfColumns):
    format: ClassVar[TableFormat] = ArrowFormat()
    selected = ArrowFormat(columns=("n",))
    damaged = (TableDamage(damaged_arrow(), [1], TEXTS),)
    kind: ClassVar[Callable[..., Any]] = staticmethod(pa.ipc.new_file)

    def encode(self, rows: Sequence[Any], group_rows: int) -> bytes:
        made = io.BytesIO()
        self.write(made, rows, group_rows)
        return made.getvalue()

    def write(self, file: Any, rows: Sequence[Any], group_rows: int) -> None:
        table = table_of(rows, self.names)
        with self.kind(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=group_rows)

    def write_far(self, path: Path, rows: Sequence[Any]) -> int:
        with path.open("wb") as file:
            self.write(behind_hole(file), rows, 2)
        return 0


class TestArrowFilesOfObjects(TestArrowFiles):
    rows = OBJECTS
    selected = ArrowFormat(columns=("price",))

    def select(self, row: Any) -> Any:
        return {"price": row["price"]}


class TestArrowStreams(TestArrowFiles):
    kind: ClassVar[Callable[..., Any]] = staticmethod(pa.ipc.new_stream)

    def write_far(self, path: Path, rows: Sequence[Any]) -> int:
        return TableFormatSuite.write_far(self, path, rows)


class TestNpy(TableFormatSuite):
    format: ClassVar[TableFormat] = NpyFormat()
    rows = VECTORS

    def encode(self, rows: Sequence[Any], group_rows: int) -> bytes:
        made = io.BytesIO()
        np.save(made, np.array(rows, np.float32).reshape(-1, 64))
        return made.getvalue()

    def write_far(self, path: Path, rows: Sequence[Any]) -> int:
        first = FAR // 256
        array = np.lib.format.open_memmap(path, "w+", np.float32, (first + len(rows), 64))
        array[first:] = rows
        return first


class TestNpz(OfColumns):
    format: ClassVar[TableFormat] = NpyFormat()
    selected = NpyFormat(fields=("n",))
    rows = PAIRS

    def encode(self, rows: Sequence[Any], group_rows: int) -> bytes:
        made = io.BytesIO()
        vectors = np.array([row["x"] for row in rows], np.float32).reshape(-1, 64)
        np.savez(made, n=np.array([row["n"] for row in rows], np.int64), x=vectors)
        return made.getvalue()


class TestTokens(TableFormatSuite):
    format: ClassVar[TableFormat] = TokensFormat(length=100, stride=100, dtype="<u2")
    rows = SEQUENCES
    stores_row_count = False

    def encode(self, rows: Sequence[Any], group_rows: int) -> bytes:
        return np.array(rows, "<u2").tobytes()

    def write_far(self, path: Path, rows: Sequence[Any]) -> int:
        first = FAR // 200
        with path.open("wb") as file:
            file.seek(200 * first)
            file.write(self.encode(rows, 1))
        return first


class TestTokensInNpy(TestTokens):
    suffix = ".npy"
    stores_row_count = True

    def encode(self, rows: Sequence[Any], group_rows: int) -> bytes:
        made = io.BytesIO()
        np.save(made, np.array(rows, "<u2").reshape(-1))
        return made.getvalue()

    def write_far(self, path: Path, rows: Sequence[Any]) -> int:
        first = FAR // 200
        array = np.lib.format.open_memmap(path, "w+", np.uint16, (100 * (first + len(rows)),))
        array[100 * first :] = np.array(rows).reshape(-1)
        return first


def hdf5_file(rows: Sequence[Any], group_rows: int, file: Any = None) -> bytes:
    made = io.BytesIO() if file is None else file
    with h5py.File(made, "w") as root:
        if file is not None:
            space, plist = h5py.h5s.create_simple((FAR,)), h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
            plist.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
            h5py.h5d.create(root.id, b"hole", h5py.h5t.STD_U8LE, space, plist)
        vectors = np.array([row["x"] for row in rows])
        vectors = vectors.reshape(-1, *np.shape(rows[0]["x"])) if rows else vectors.reshape(-1, 64).astype(np.float32)
        chunk = (max(1, min(group_rows, len(rows))), *vectors.shape[1:])
        root.create_dataset("n", data=np.array([row["n"] for row in rows], np.int64))
        root.create_dataset("x", data=vectors, chunks=chunk if rows else None, fletcher32=bool(rows))
    return b"" if file is not None else made.getvalue()


HDF5 = hdf5_file([{"n": n, "x": row} for n, row in enumerate(ALONE)], 1)


class TestHdf5(OfColumns):
    format: ClassVar[TableFormat] = Hdf5Format(fields=("n", "x"))
    selected = Hdf5Format(fields=("n",))
    rows = PAIRS
    damaged = (
        TableDamage(
            changed(HDF5, HDF5.index(ALONE[2].tobytes())), [2], [{"n": n, "x": row} for n, row in enumerate(ALONE)]
        ),
    )

    def encode(self, rows: Sequence[Any], group_rows: int) -> bytes:
        return hdf5_file(rows, group_rows)

    def write_far(self, path: Path, rows: Sequence[Any]) -> int:
        hdf5_file(rows, 2, path)
        return 0


LARGE = [bytes([n]) * (3 << 20) for n in range(3)]
ARRAY_RECORD = array_record(in_groups(LARGE, 1), "")


class TestArrayRecord(TableFormatSuite):
    format: ClassVar[TableFormat] = ArrayRecordFormat()
    rows = RECORDS
    damaged = (TableDamage(changed(ARRAY_RECORD, ARRAY_RECORD.index(LARGE[1][:1000]) + 5000), [1], LARGE),)

    def encode(self, rows: Sequence[Any], group_rows: int) -> bytes:
        return array_record(in_groups(rows, group_rows), "")

    def write_far(self, path: Path, rows: Sequence[Any]) -> int:
        write_far(path, rows, FAR)
        return 0
