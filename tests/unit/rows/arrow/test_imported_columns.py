"""Columns of numbers, dates, text and bytes are read from PyArrow: in which form, and what is shared."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from arrow_producers import Made
from arrow_reading import address, only_leaf, rows_of

from aiostream_data import ArrowDataError
from aiostream_data.rows.arrow.imported_columns import ArrowLeaf
from aiostream_data.rows.arrow.importing import read_arrow
from aiostream_data.rows.columns import VarColumn, column_elements

pytestmark = pytest.mark.usefixtures("kernels")


# -- numbers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        *((getattr(pa, f"{name}{size}")(), f"{name}{size}") for name in ("int", "uint") for size in (8, 16, 32, 64)),
        (pa.float16(), "float16"), (pa.float32(), "float32"), (pa.float64(), "float64"),
        *((pa.timestamp(unit), f"datetime64[{unit}]") for unit in ("s", "ms", "us", "ns")),
        *((pa.duration(unit), f"timedelta64[{unit}]") for unit in ("s", "ms", "us", "ns")),
        (pa.time64("us"), "timedelta64[us]"), (pa.time64("ns"), "timedelta64[ns]"), (pa.date64(), "datetime64[ms]"),
    ],
)  # fmt: skip
def test_numbers_share_the_memory_of_the_producer(kind: pa.DataType, dtype: str) -> None:
    source = pa.array(np.arange(5, dtype=np.float16)) if kind == pa.float16() else cast(np.arange(5), kind)
    column, valid = only_leaf(source.slice(1))
    assert (str(column.dtype), valid) == (dtype, None)
    assert isinstance(column, np.ndarray)
    assert column.ctypes.data == address(source, 1) + column.itemsize
    assert not column.flags.writeable
    assert column.astype(np.int64).tolist() == [1, 2, 3, 4]


def cast(numbers: Any, kind: pa.DataType) -> pa.Array:
    """Numbers as another type: some casts lead by way of int64."""
    found = pa.array(numbers)
    return found.view(kind) if pa.types.is_temporal(kind) else found.cast(kind)


def test_narrow_dates_and_times_become_wide() -> None:
    dates = [dt.date(1960, 2, 3), dt.date(2026, 1, 1), None]
    column, valid = only_leaf(pa.array(dates))
    assert (str(column.dtype), rows_of(ArrowLeaf(column, valid))[0]) == ("datetime64[D]", np.datetime64("1960-02-03"))
    column, _ = only_leaf(pa.array([1, 2], pa.int32()).cast(pa.time32("s")))
    assert column.tolist() == [dt.timedelta(seconds=1), dt.timedelta(seconds=2)]  # type: ignore[union-attr]


def test_timestamps_with_a_time_zone_are_utc() -> None:
    moment = dt.datetime(2026, 1, 1, 12, tzinfo=dt.timezone(dt.timedelta(hours=2)))
    column, _ = only_leaf(pa.array([moment], pa.timestamp("us", "Europe/Berlin")))
    assert column[0] == np.datetime64("2026-01-01T10:00")  # type: ignore[index]


def test_missing_rows_and_bits_are_found_at_every_offset() -> None:
    given = [None if i % 5 == 2 else i % 3 == 0 for i in range(40)]
    whole = pa.array(given)
    for start in range(20):
        assert rows_of(only_leaf(whole.slice(start, 13))) == given[start : start + 13]


def test_rows_that_are_all_present_have_no_mask() -> None:
    assert only_leaf(pa.array([1, None, 3, 4]).slice(2)).valid is None


def test_an_array_of_nulls_is_all_missing() -> None:
    column, valid = only_leaf(pa.nulls(3))
    assert column_elements(column) == [None, None, None]
    assert valid is not None
    assert not valid.any()


# -- text --------------------------------------------------------------------------------------------------------------

TEXT = ["a", None, "größe", "", "a text of more than twelve bytes", "twelve bytes", "end"]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
def test_text_is_read_at_every_offset(kind: pa.DataType) -> None:
    whole = pa.array(TEXT, kind)
    for start in range(len(TEXT)):
        leaf = only_leaf(whole.slice(start, 3))
        assert rows_of(leaf) == TEXT[start : start + 3]
        assert isinstance(leaf.column, VarColumn)
        assert leaf.column.kind == "str"
        assert leaf.valid is None or leaf.column.lengths[~leaf.valid].sum() == 0


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view()], ids=str)
def test_bytes_are_read_as_they_are(kind: pa.DataType) -> None:
    given = [b"\xff" * size if size % 4 else None for size in range(20)]
    leaf = only_leaf(pa.array(given, kind).slice(1))
    assert rows_of(leaf) == given[1:]
    assert isinstance(leaf.column, VarColumn)
    assert leaf.column.kind == "bytes"


def test_bytes_of_fixed_length_share_their_memory() -> None:
    given = [b"ab", None, b"cd", b"ef"]
    source = pa.array(given, pa.binary(2))
    leaf = only_leaf(source.slice(1))
    assert rows_of(leaf) == given[1:]
    assert leaf.column.values.ctypes.data == address(source, 1) + 2  # type: ignore[union-attr]


def test_text_with_64_bit_offsets_shares_its_memory_and_its_offsets() -> None:
    source = pa.array(["ab", "cde", "f"], pa.large_string())
    column, _ = only_leaf(source.slice(1))
    assert isinstance(column, VarColumn)
    assert column.values.ctypes.data == address(source, 2)
    assert column.starts.ctypes.data == address(source, 1) + 8


def test_views_that_share_bytes_take_no_more_memory_than_their_buffers() -> None:
    word = b"x" * 5_000
    view = np.array([len(word), 0, 0, 0], np.int32)
    made = Made("vu", 2_000, [None, np.tile(view, 2_000), np.frombuffer(word, np.uint8), np.array([len(word)])])
    column, _ = only_leaf(made)
    assert isinstance(column, VarColumn)
    assert column.values.nbytes == 16 * 2_000 + len(word)
    assert column.elements() == [word.decode()] * 2_000


def test_text_of_several_data_buffers_is_gathered() -> None:
    parts = [pa.array([f"{i} {'y' * 100}", "short", None], pa.string_view()) for i in range(3)]
    whole = pa.concat_arrays(parts)
    assert rows_of(only_leaf(whole)) == whole.to_pylist()


def test_text_that_is_no_utf8_is_refused_with_its_row_in_the_source() -> None:
    chunks = [["a", "b"], ["c", b"\xff\xfe", "d"]]
    arrays = [pa.array(rows, pa.binary()).view(pa.string()) for rows in chunks]
    source = read_arrow(pa.chunked_array(arrays))
    assert len(next(source)) == 2
    with pytest.raises(
        ArrowDataError, match=r"'element': row 3: the text b'\\xff\\xfe' is not valid UTF-8.*binary"
    ) as e:
        next(source)
    assert (e.value.column, e.value.row) == ("element", 3)


def test_a_missing_row_may_hold_any_bytes() -> None:
    bad = pa.array([b"a", b"\xff", b"b"], pa.binary())
    mask = pa.py_buffer(np.packbits([1, 0, 1], bitorder="little").tobytes())
    text = pa.Array.from_buffers(pa.string(), 3, [mask, *bad.buffers()[1:]])
    assert rows_of(only_leaf(text)) == ["a", None, "b"]
