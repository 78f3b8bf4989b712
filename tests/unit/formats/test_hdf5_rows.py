"""Numbers of HDF5 files: the same values as the library's, and no other memory in place of missing bytes of chunks."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from table_bytes import directory_of, rows_of

from aiostream_data import CorruptRecordError
from aiostream_data.formats.hdf5 import Hdf5Format

h5py = pytest.importorskip("h5py")

DTYPES = ("i1", "<u2", ">i4", "<u8", "<f2", ">f4", "<f8", "?", "<c8", "S3")
PAIR = np.dtype([("n", "<i2"), ("x", "<f8")])


def written(write: Callable[[Any], object]) -> bytes:
    made = io.BytesIO()
    with h5py.File(made, "w") as file:
        write(file)
    return made.getvalue()


def values(data: bytes, first: int = 0) -> list[Any]:
    return [row["x"] for row in rows_of(Hdf5Format(), data, first)]


@st.composite
def datasets(draw: st.DrawFn) -> dict[str, Any]:
    shape = draw(st.lists(st.integers(1, 9), min_size=1, max_size=3))
    chunks = [draw(st.integers(1, size)) for size in shape]
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    numbers = np.random.default_rng(draw(st.integers(0, 9))).integers(0, 100, shape)
    options = {"shape": tuple(shape), "dtype": dtype, "data": numbers.astype(dtype)}
    if draw(st.integers(0, 2)) == 0:
        return options  # contiguous
    return options | {
        "chunks": tuple(chunks),
        "compression": draw(st.sampled_from(["gzip", None])),
        "shuffle": draw(st.booleans()),
        "fletcher32": draw(st.booleans()),
    }


@given(datasets(), st.integers(0, 8), st.booleans())
def test_values_are_those_of_the_library(options: dict[str, Any], first: int, is_newest: bool) -> None:
    made = io.BytesIO()
    with h5py.File(made, "w", libver="latest" if is_newest else None) as file:
        file.create_dataset("bytes before", data=np.zeros((options["shape"][0], 3), np.uint8))
        expected = file.create_dataset("x", **options)[first:]
    found = values(made.getvalue(), min(first, options["shape"][0]))
    np.testing.assert_array_equal(np.array(found, options["dtype"]).reshape(expected.shape), expected)


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 3))
def test_parts_that_were_never_written_have_the_fill_value(rows: int, chunk: int, written_rows: int) -> None:
    def write(file: Any) -> None:
        made = file.create_dataset(
            "x", (rows, 2), ">i4", maxshape=(None, 2), chunks=(chunk, 2), compression=1, fillvalue=7
        )
        made[: min(rows, written_rows)] = 3

    found = np.array(values(written(write)))
    assert found.tolist() == [[3, 3]] * min(rows, written_rows) + [[7, 7]] * (rows - min(rows, written_rows))


def test_contiguous_rows_are_not_copied() -> None:
    numbers = np.arange(600, dtype="<f4").reshape(100, 3, 2)
    data = written(lambda file: file.create_dataset("x", data=numbers))
    directory = directory_of(Hdf5Format(), data)
    (group,) = directory.groups_from(0)
    parts = [np.frombuffer(data, np.uint8)[place.start : place.stop].copy() for place in group.ranges]
    ((leaf,),) = (rows.leaves for rows in directory.decode(group, [part.data for part in parts]))
    assert isinstance(leaf, np.ndarray)
    np.testing.assert_array_equal(leaf, numbers)
    assert any(np.shares_memory(leaf, part) for part in parts)


@pytest.mark.parametrize("chunks", [None, (3, 2)])
def test_rows_that_were_never_written_have_the_fill_value(chunks: Any) -> None:
    data = written(lambda file: file.create_dataset("x", (5, 2), "<i4", chunks=chunks, fillvalue=7))
    assert np.array(values(data)).tolist() == [[7, 7]] * 5


def test_rows_may_have_no_items() -> None:
    data = written(lambda file: file.create_dataset("x", (5, 0, 2), "<i4"))
    assert [row.shape for row in values(data)] == [(0, 2)] * 5


def test_a_chunk_without_filters_of_a_wrong_size_is_an_error() -> None:
    def write(file: Any) -> None:
        made = file.create_dataset("x", (4,), "<i4", chunks=(4,))
        made.id.write_direct_chunk((0,), bytes(15))

    with pytest.raises(CorruptRecordError, match="'x'"):
        values(written(write))


@pytest.mark.parametrize(
    "filters", [["deflate", "shuffle"], ["deflate", "deflate"], ["deflate", "shuffle", "fletcher32"]]
)
@pytest.mark.parametrize("dtype", ["<f8", PAIR])
def test_filters_may_have_any_order(filters: list[str], dtype: Any) -> None:
    numbers = np.random.default_rng(1).integers(0, 255, 100 * np.dtype(dtype).itemsize, np.uint8).view(dtype)

    def write(file: Any) -> None:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk((30,))
        for each in filters:
            getattr(properties, f"set_{each}")()
        space, kind = h5py.h5s.create_simple((100,)), h5py.h5t.py_create(np.dtype(dtype))
        h5py.h5d.create(file.id, b"x", kind, space, properties).write(h5py.h5s.ALL, h5py.h5s.ALL, numbers)

    data = written(write)
    with h5py.File(io.BytesIO(data)) as file:
        expected = file["x"][:]
    found = [tuple(row.values()) if isinstance(row, dict) else row for row in values(data)]
    assert np.array(found, dtype).tobytes() == expected.tobytes()


@pytest.mark.parametrize("mask", [0, 1, 2, 3])
def test_a_chunk_may_leave_out_filters(mask: int) -> None:
    numbers = np.arange(6, dtype="<i4")
    stored = numbers.tobytes() if mask & 1 else numbers.view(np.uint8).reshape(6, 4).T.tobytes()

    def write(file: Any) -> None:
        made = file.create_dataset("x", (6,), "<i4", chunks=(6,), compression="gzip", shuffle=True)
        made.id.write_direct_chunk((0,), stored if mask & 2 else zlib.compress(stored), mask)

    assert values(written(write)) == [0, 1, 2, 3, 4, 5]


def with_chunk(stored: bytes, dtype: Any, mask: int = 0, **options: Any) -> bytes:
    """Return a file with one chunk of four items."""

    def write(file: Any) -> None:
        made = file.create_dataset("x", (4,), dtype, chunks=(4,), compression="gzip", **options)
        made.id.write_direct_chunk((0,), stored, mask)

    return written(write)


CHECKED = [(dtype, checksum) for dtype in ("<i4", "<f8", "?", "S3", PAIR) for checksum in (b"", bytes(4))]


@pytest.mark.parametrize(("dtype", "checksum"), [*CHECKED, ("text", b"")])
@pytest.mark.parametrize("change", [-1, 1, -3, 1000])
def test_a_chunk_of_a_wrong_size_is_an_error(dtype: Any, checksum: bytes, change: int) -> None:
    kind = h5py.string_dtype() if dtype == "text" else np.dtype(dtype)
    nbytes = 16 if dtype == "text" else kind.itemsize
    stored = zlib.compress(bytes(4 * nbytes + change)) + checksum
    with pytest.raises(CorruptRecordError, match="a gzip chunk of 'x' is damaged"):
        values(with_chunk(stored, kind, fletcher32=bool(checksum)))


@pytest.mark.parametrize("content", [b"ABCDEFGH", bytes(513), bytes(1 << 20)])
def test_a_chunk_at_the_end_of_a_dataset_is_checked_even_if_it_has_the_size_of_a_plain_one(content: bytes) -> None:
    def write(file: Any) -> None:
        made = file.create_dataset("x", (127,), "<i8", chunks=(64,), compression="gzip")
        made[:64] = 1
        made.id.write_direct_chunk((64,), zlib.compress(content, 9).ljust(512, b"\0")[:512])

    with pytest.raises(CorruptRecordError, match=r"(a gzip chunk of 'x' is damaged|the HDF5 library)"):
        values(written(write))


@pytest.mark.parametrize("stored", [zlib.compress(bytes(16))[:-1], zlib.compress(bytes(16))[:4], b"no stream", b"\0"])
def test_an_incomplete_stream_is_an_error(stored: bytes) -> None:
    with pytest.raises(CorruptRecordError, match="a gzip chunk of 'x' is damaged") as found:
        values(with_chunk(stored, "<i4"))
    assert found.value.offset > 0


@pytest.mark.parametrize("mask", [0, 1])
def test_hostile_lengths_of_strings_are_an_error(mask: int) -> None:
    stored = zlib.compress(struct.pack("<IQI", 1 << 31, 0, 1) * 4)
    with pytest.raises(CorruptRecordError, match="longer than the file"):
        values(with_chunk(stored, h5py.string_dtype(), mask=mask, shuffle=bool(mask)))


@pytest.mark.parametrize("shuffle", [False, True])
def test_strings_of_any_length_may_be_compressed(shuffle: bool) -> None:
    texts = [f"naïve {n}" * n for n in range(9)]

    def write(file: Any) -> None:
        options = {"chunks": (4,), "compression": "gzip", "shuffle": shuffle}
        file.create_dataset("x", data=texts, dtype=h5py.string_dtype(), **options)

    assert values(written(write)) == texts


def test_a_filter_that_shuffles_items_of_another_size_is_an_error() -> None:
    data = written(lambda file: file.create_dataset("x", data=np.arange(4), chunks=(4,), compression=1, shuffle=True))
    shuffle = b"shuffle\0" + struct.pack("<I", 8)
    assert data.count(shuffle) == 1
    with pytest.raises(CorruptRecordError, match="the filters of 'x' are damaged"):
        values(data.replace(shuffle, b"shuffle\0" + struct.pack("<I", 4)))
