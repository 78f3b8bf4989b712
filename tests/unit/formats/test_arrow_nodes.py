"""Columns of record batches behind the first are read without arrays of PyArrow, with the same rows and errors."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from contextlib import suppress
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from table_bytes import directory_of, plain_rows, rows_of

from aiostream_data import AiostreamError, CorruptRecordError
from aiostream_data.formats import arrow_directory
from aiostream_data.formats.arrow_directory import ArrowDirectory
from aiostream_data.formats.arrow_files import ArrowFormat
from aiostream_data.testing.table_reading import parts_of

ROWS = 40


def column(make: Callable[[int], Any], type: pa.DataType, nulls: bool) -> pa.Array:
    return pa.array([None if nulls and n % 4 == 1 else make(n) for n in range(ROWS)], type)


TYPES: dict[str, tuple[Callable[[int], Any], pa.DataType]] = {
    "int8": (lambda n: n, pa.int8()),
    "float16": (lambda n: np.float16(n), pa.float16()),
    "float64": (lambda n: n / 8, pa.float64()),
    "bool": (lambda n: n % 3 == 0, pa.bool_()),
    "date32": (lambda n: date(2026, 1, 1) + timedelta(n), pa.date32()),
    "timestamp": (lambda n: n, pa.timestamp("us", "UTC")),
    "time32": (lambda n: time(1, 2, n), pa.time32("s")),
    "duration": (lambda n: n, pa.duration("ms")),
    "decimal": (lambda n: Decimal(n) / 4, pa.decimal128(12, 2)),
    "text": (lambda n: "é" * (n % 5), pa.string()),
    "large_text": (lambda n: f"text {n}", pa.large_string()),
    "bytes": (lambda n: bytes([n]) * (n % 3), pa.binary()),
    "fixed": (lambda n: bytes([n, n, n]), pa.binary(3)),
    "list": (lambda n: list(range(n % 4)), pa.list_(pa.int32())),
    "large_list": (lambda n: [n / 2] * (n % 3), pa.large_list(pa.float32())),
    "pair": (lambda n: [n, -n], pa.list_(pa.int16(), 2)),
    "list_view": (lambda n: [n] * (n % 3), pa.list_view(pa.int64())),
    "texts": (lambda n: [f"{n}", "b"][: n % 3], pa.list_(pa.string())),
    "lists": (lambda n: [[n], []][: n % 3], pa.list_(pa.list_(pa.int8()))),
    "struct": (
        lambda n: {"x": n, "y": {"z": f"{n}"}},
        pa.struct({"x": pa.int64(), "y": pa.struct({"z": pa.string()})}),
    ),
    "structs": (lambda n: [{"x": n}] * (n % 2), pa.list_(pa.struct({"x": pa.int64()}))),
    "map": (lambda n: [("a", n)] * (n % 2), pa.map_(pa.string(), pa.int64())),
    "null": (lambda n: None, pa.null()),
}
TABLES = {
    f"{name}, {'some missing' if nulls else 'all present'}": pa.table({"c": column(*of_type, nulls)})
    for name, of_type in TYPES.items()
    for nulls in (False, True)
}
TABLES["many columns"] = pa.table({name: column(*of_type, True) for name, of_type in TYPES.items()})


def written(table: Any, compression: str | None, rows: int) -> bytes:
    made = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_file(made, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=rows)
    return made.getvalue()


def by_batch(data: bytes) -> list[Any]:
    """Return the rows of a file whose record batches are read one by one."""
    return plain_rows(rows_of(ArrowFormat(), data))


@pytest.fixture(autouse=True, params=[1, 4 << 20], ids=["alone", "joined"])
def joined_nbytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read the first batch alone, and later ones alone or together."""
    sizes = [1, 1, 1, *[request.param] * 99]
    monkeypatch.setattr(arrow_directory, "joined_sizes", lambda: iter(sizes))


@pytest.mark.parametrize("compression", [None, "zstd"])
@pytest.mark.parametrize("name", TABLES)
def test_rows_are_those_of_pyarrow(name: str, compression: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    data = written(TABLES[name], compression, 3)
    found = by_batch(data)
    read: list[int] = []
    of_pyarrow = ArrowDirectory._record_batch

    def counted(directory: ArrowDirectory, body: Any, values: Any) -> Any:
        read.append(body.batch.rows)
        return of_pyarrow(directory, body, values)

    monkeypatch.setattr(ArrowDirectory, "_record_batch", counted)
    assert by_batch(data) == found
    assert len(read) == (14 if name.startswith("null") else 1), "only the first group; batches without bytes are one"
    monkeypatch.setattr(arrow_directory, "is_plain", lambda *_: False)
    assert by_batch(data) == found
    assert len(read) >= 14


def test_a_struct_without_some_of_its_fields_is_read() -> None:
    data = written(TABLES["many columns"], None, 3)
    rows = plain_rows(rows_of(ArrowFormat(columns=("struct.y.z", "list")), data))
    expected = TABLES["many columns"].to_pylist()
    assert [row["list"] for row in rows] == [row["list"] for row in expected]
    assert [row["struct"] and row["struct"]["y"]["z"] for row in rows] == [
        row["struct"] and row["struct"]["y"]["z"] for row in expected
    ]


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_changed_bytes_give_other_rows_or_an_error_but_no_crash(compression: str | None) -> None:
    data, draw = written(TABLES["many columns"].slice(0, 12), compression, 3), np.random.default_rng(5)
    for turn in range(150):
        changed = bytearray(data)
        for place in draw.integers(0, len(data) - 8, 3):
            size = 1 if turn % 2 else 8
            changed[place : place + size] = [b"\xff" * 8, bytes(8), b"\xff\xff\xff\x7f" + bytes(4)][turn % 3][:size]
        with suppress(AiostreamError):
            plain_rows(rows_of(ArrowFormat(), bytes(changed), limit=1 << 24))


@pytest.mark.parametrize(
    ("table", "old", "new"),
    [
        (pa.table({"t": ["one", "three"] * 9}), struct.pack("<iii", 0, 3, 8), struct.pack("<iii", 0, 9, 8)),
        (pa.table({"t": ["one", "three"] * 9}), struct.pack("<iii", 0, 3, 8), struct.pack("<iii", 0, 3, 2**30)),
        (pa.table({"t": ["one", "three"] * 9}), struct.pack("<iii", 0, 3, 8), struct.pack("<iii", 0, 3, -1)),
        (pa.table({"t": ["one", "three"] * 9}), b"onethree", b"one\xff\xff\xff\xff\xff"),
        (pa.table({"t": [[1], [2, 3]] * 9}), struct.pack("<iii", 0, 1, 3), struct.pack("<iii", 0, -1, 3)),
        (pa.table({"t": [[1], [2, 3]] * 9}), struct.pack("<iii", 0, 1, 3), struct.pack("<iii", 0, 1, 900)),
    ],
)
def test_offsets_are_checked(table: Any, old: bytes, new: bytes) -> None:
    data = written(table, None, 2)
    place = data.rindex(old)
    with pytest.raises(CorruptRecordError, match=r"column .t."):
        by_batch(data[:place] + new + data[place + len(old) :])


@pytest.mark.parametrize("name", TABLES)
def test_buffers_that_are_too_small_are_refused(name: str) -> None:
    """Cut each buffer of the last record batch by a byte, as its metadata may say."""
    data = written(TABLES[name], None, 10)
    directory = directory_of(ArrowFormat(), data)
    groups = list(directory.groups_from(0))
    directory.decode(groups[0], parts_of(data, groups[0].ranges))
    assert isinstance(directory, ArrowDirectory)
    *_, last = directory._batches
    buffers = last.batch.buffers()
    for offset, nbytes in buffers:
        metadata = struct.pack("<qq", offset, nbytes)
        places = [at for at in range(len(data) - 16) if data[at : at + 16] == metadata]
        needed = nbytes - 1
        while places and needed >= 0:  # PyArrow pads buffers, so a few bytes may be missing
            changed = bytearray(data)
            for at in places:
                changed[at : at + 16] = struct.pack("<qq", offset, needed)
            with suppress(CorruptRecordError):
                assert by_batch(bytes(changed)) == by_batch(data)
            needed = needed // 2 if needed else -1
