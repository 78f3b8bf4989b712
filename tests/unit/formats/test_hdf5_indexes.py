"""HDF5 files whose indexes have damaged headers with a checksum that fits: the library would crash or loop."""

from __future__ import annotations

import io
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from table_bytes import rows_of

from aiostream_data import CorruptRecordError
from aiostream_data.formats.hdf5 import Hdf5Format
from aiostream_data.formats.hdf5_indexes import damaged_index, lookup3

h5py = pytest.importorskip("h5py")

ROWS = 12
AXES: dict[bytes, tuple[int | None, ...]] = {b"EAHD": (None, 4), b"BTHD": (None, None), b"FAHD": (99, 4)}
SIZES = {b"EAHD": 68, b"BTHD": 34, b"FAHD": 24}


def written(kind: bytes) -> bytes:
    """Return a file whose dataset has an index of this kind."""
    made = io.BytesIO()
    with h5py.File(made, "w", libver="latest") as file:
        file.create_dataset("n", data=np.ones((ROWS, 4), np.int16), maxshape=AXES[kind], chunks=(3, 2))
    return made.getvalue()


def with_header(data: bytes, kind: bytes, *changes: tuple[int, str, int]) -> bytes:
    """Return the file with other fields in the header of the index: place, layout and value."""
    start, body = data.index(kind), bytearray(data)
    for at, layout, value in changes:
        struct.pack_into(layout, body, start + at, value)
    stop = start + SIZES[kind]
    struct.pack_into("<I", body, stop, lookup3(bytes(body[start:stop])))
    return bytes(body)


@pytest.mark.parametrize("kind", AXES)
def test_indexes_of_each_kind_are_read(kind: bytes) -> None:
    data = written(kind)
    assert with_header(data, kind) == data  # the checksum is that of the library
    assert len(list(rows_of(Hdf5Format(), data))) == ROWS


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        (b"EAHD", [(44, "<Q", 1 << 40)]),
        (b"EAHD", [(9, "B", 0)]),
        (b"EAHD", [(9, "B", 3)]),
        (b"EAHD", [(10, "B", 0)]),
        (b"EAHD", [(7, "B", 255)]),
        (b"BTHD", [(5, "B", 2)]),
        (b"BTHD", [(6, "<I", 0)]),
        (b"BTHD", [(6, "<I", 1 << 31)]),
        (b"BTHD", [(10, "<H", 0)]),
        (b"BTHD", [(12, "<H", 60_000)]),
        (b"BTHD", [(24, "<H", 65_000)]),
        (b"FAHD", [(8, "<Q", 1 << 40)]),
        (b"FAHD", [(8, "<Q", 4)]),
        (b"FAHD", [(6, "B", 0)]),
    ],
)
def test_a_damaged_header_is_an_error(kind: bytes, changes: Any) -> None:
    with pytest.raises(CorruptRecordError, match=f"file.*the header {kind.decode()} of an index is damaged"):
        list(rows_of(Hdf5Format(), with_header(written(kind), kind, *changes)))


def test_other_bytes_are_no_header() -> None:
    """Rows may begin as a header does. Then the checksum does not fit."""
    for block in (b"BTHD" + bytes(40), b"EAHD" + bytes(80), b"FAHD", b"", b"rows"):
        assert damaged_index(block, 1 << 20, None) is None


def test_a_heap_with_reserved_bytes_is_an_error() -> None:
    made = io.BytesIO()
    with h5py.File(made, "w") as file:
        file["t"] = ["a", "b"]
    with pytest.raises(CorruptRecordError, match="a heap of strings is damaged"):
        list(rows_of(Hdf5Format(), made.getvalue().replace(b"GCOL\x01\0\0\0", b"GCOL\x01\0\0\xff")))


@pytest.mark.parametrize(
    ("content", "mask", "options"),
    [
        (b"\2" * 10, 1, {"compression": "gzip"}),
        (b"ab", 0, {"fletcher32": True}),
        (b"\1" * 12, 0, {"shuffle": True}),
        (b"\1" * 80, 0, {"fletcher32": True}),
        (b"\1" * 79, 0, {}),
        (b"\1" * 81, 0, {}),
    ],
)
def test_chunks_of_another_size_are_an_error(content: bytes, mask: int, options: Any) -> None:
    """The library would deliver other bytes of the memory of the process."""
    made = io.BytesIO()
    with h5py.File(made, "w") as file:
        values = file.create_dataset("n", (20,), np.int64, chunks=(10,), **options)
        values.id.write_direct_chunk((0,), content, mask)
    with pytest.raises(CorruptRecordError, match="the chunks of 'n' are damaged"):
        list(rows_of(Hdf5Format(), made.getvalue()))


def test_chunks_at_the_end_may_be_without_filters() -> None:
    made = io.BytesIO()
    with h5py.File(made, "w", libver="latest") as file:
        values = file.create_dataset("n", (15,), np.int64, chunks=(10,), fletcher32=True, compression="gzip")
        values[...] = np.arange(15)
        values.id.write_direct_chunk((10,), np.arange(10, 20).tobytes(), 3)
    assert [row["n"] for row in rows_of(Hdf5Format(), made.getvalue())] == list(range(15))


@pytest.mark.parametrize("names", [2, 5_000])
def test_a_list_of_free_blocks_without_an_end_is_an_error(names: int) -> None:
    made = io.BytesIO()
    with h5py.File(made, "w") as file:
        for number in range(names):
            file.create_group(f"group {number}")
        file["n"] = np.arange(3)
    data = bytearray(made.getvalue())
    assert len(list(rows_of(Hdf5Format(fields=("n",)), bytes(data)))) == 3
    heap = data.index(b"HEAP")
    free, start = struct.unpack_from("<QQ", data, heap + 16)
    struct.pack_into("<Q", data, start + free, free)
    large = bytearray(data)
    struct.pack_into("<Q", large, heap + 8, 1 << 40)
    ignored = bytearray(data)
    ignored[heap + 5] = 7  # the library does not read this byte
    for damaged in (data, large, ignored):
        with pytest.raises(CorruptRecordError, match="a heap of names is damaged"):
            list(rows_of(Hdf5Format(fields=("n",)), bytes(damaged)))


@pytest.mark.parametrize("text", [b"HEAPED UP", b"HEAP\0\0\0\0 AND MORE THAN 64 MB", b"GCOLUMBIA"])
def test_rows_that_begin_like_metadata_are_read(text: bytes) -> None:
    made = io.BytesIO()
    with h5py.File(made, "w") as file:
        file.create_dataset("x", data=np.array([text] * 64, "S32"), chunks=(16,))
    assert [row["x"] for row in rows_of(Hdf5Format(fields=("x",)), made.getvalue())] == [text] * 64


def test_a_dataset_that_may_grow_to_billions_of_chunks_is_read(tmp_path: Path) -> None:
    path = tmp_path / "growing.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file.create_dataset("x", data=np.zeros((50, 8, 8), np.uint8), maxshape=(None, 4096, 4096), chunks=(1, 8, 8))
    assert len(list(rows_of(Hdf5Format(fields=("x",)), path.read_bytes()))) == 50
