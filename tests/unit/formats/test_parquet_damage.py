"""Parquet files whose metadata are damaged: each is an error that names the file, and none ends the process."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from parquet_bytes import with_field, with_page_field
from pyarrow import parquet
from table_bytes import directory_of, rows_of

from aiostream_data import CorruptRecordError, MemoryBudgetError
from aiostream_data.formats.parquet import ParquetFormat
from aiostream_data.formats.snapshot_files import SnapshotFormat
from aiostream_data.formats.thrift_fields import DamagedThriftError, read_fields

NUMBER, TEXT, LIST = range(3)
TABLE = pa.table(
    {"n": pa.array(range(6), pa.int32()), "text": [f"t{n}" for n in range(6)], "values": [[n] * n for n in range(6)]}
)
TYPE, VALUES, DATA_OFFSET, STATISTICS, SIZES = 1, 5, 9, 12, 16
"""Numbers of fields in the metadata of a column."""

FILTERED = ParquetFormat(filters=((("n", ">=", 5),),))


def written(**options: Any) -> bytes:
    made = io.BytesIO()
    parquet.write_table(TABLE, made, compression="none", **options)
    return made.getvalue()


@pytest.mark.parametrize(
    ("column", "path", "value", "said"),
    [
        (LIST, (SIZES, 3), None, "cannot read the file: .* histogram"),
        (NUMBER, (VALUES,), -1, "places column 'n'"),
        (NUMBER, (DATA_OFFSET,), -1, "cannot read the file|places column"),
        (NUMBER, (TYPE,), 5, "a chunk of column 'n' has the type"),
    ],
)
def test_damaged_metadata_of_a_column_are_an_error(column: int, path: Sequence[int], value: Any, said: str) -> None:
    import thrift_compact as thrift

    changed = with_field(written(), column, path, thrift.List(thrift.I64, [0] * 9) if value is None else value)
    with pytest.raises(CorruptRecordError, match=f"file.*{said}"):
        list(rows_of(FILTERED, changed))


@pytest.mark.parametrize(("bound", "value"), [(5, b""), (6, b"\0\0\0")])
def test_statistics_of_numbers_that_are_too_short_are_an_error(bound: int, value: bytes) -> None:
    changed = with_field(written(), NUMBER, (STATISTICS, bound), value)
    with pytest.raises(CorruptRecordError, match="cannot read the file"):
        list(rows_of(FILTERED, changed))


def test_statistics_of_long_values_may_be_shortened() -> None:
    made = io.BytesIO()
    values = pa.array([bytes([n]) * 100 for n in range(6)], pa.binary(100))
    parquet.write_table(pa.table({"key": values}), made, compression="none")
    shortened = with_field(made.getvalue(), 0, (STATISTICS, 5), bytes([5]) * 64)
    shortened = with_field(shortened, 0, (STATISTICS, 6), bytes(64))
    format = ParquetFormat(filters=((("key", ">=", bytes([4]) * 100),),))
    assert [row["key"][0] for row in rows_of(format, shortened)] == [4, 5]


def test_damaged_metadata_of_a_column_that_is_not_read_do_not_count() -> None:
    changed = with_field(written(), NUMBER, (STATISTICS, 5), b"")
    assert len(list(rows_of(ParquetFormat(columns=("text",)), changed))) == len(TABLE)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ((2,), -1, "a page of column 'text' is damaged: it has .* bytes, and -1 decoded ones"),
        ((3,), 1 << 20, "it has 1048576 bytes"),
        ((7, 1), (1 << 31) - 1, "the dictionary of 36 bytes has 2147483647 values"),
        ((7, 1), -1, "the dictionary of 36 bytes has -1 values"),
    ],
)
def test_a_damaged_page_header_is_an_error(path: Sequence[int], value: int, said: str) -> None:
    with pytest.raises(CorruptRecordError, match=said):
        list(rows_of(ParquetFormat(), with_page_field(written(), TEXT, path, value)))


def test_pages_with_more_values_than_the_column_are_an_error() -> None:
    changed = with_page_field(written(use_dictionary=False), LIST, (5, 1), (1 << 31) - 1)
    with pytest.raises(CorruptRecordError, match="it has 2147483647 values, but the column 16"):
        list(rows_of(ParquetFormat(), changed))


def test_a_page_that_is_larger_than_the_memory_limit_is_not_decoded() -> None:
    changed = with_page_field(written(), TEXT, (2,), (1 << 31) - 1)
    with pytest.raises(MemoryBudgetError):
        list(rows_of(ParquetFormat(), changed, limit=1 << 24))


def repeated(values: pa.Array) -> bytes:
    made = io.BytesIO()
    parquet.write_table(pa.table({"text": values}), made, compression="zstd", dictionary_pagesize_limit=1 << 22)
    return made.getvalue()


LONG = "x" * (1 << 20)


@pytest.mark.parametrize(
    "values",
    [
        pa.array([LONG] * 100),
        pa.array([[LONG] * 20] * 5),
        pa.array([{"a": LONG}] * 100),
        pa.array([[("key", LONG)]] * 100, pa.map_(pa.string(), pa.string())),
    ],
    ids=["text", "list", "struct", "map"],
)
def test_a_dictionary_that_repeats_a_long_text_does_not_exceed_the_memory_limit(values: pa.Array) -> None:
    with pytest.raises(MemoryBudgetError, match=r"^[12]\d{8} bytes are more"):
        list(rows_of(ParquetFormat(), repeated(values), limit=1 << 24))


def test_one_long_text_among_many_short_ones_fits_into_the_memory_limit() -> None:
    values = pa.array(["short"] * 1000 + [LONG, None])
    assert len(list(rows_of(ParquetFormat(), repeated(values), limit=1 << 24))) == len(values)


def test_rows_without_columns_count_against_the_memory_limit() -> None:
    """A file without the columns of its table has only a number of rows, which can be any."""
    made = io.BytesIO()
    parquet.write_table(pa.table({"other": pa.nulls(100_000)}), made)
    schema = pa.schema([pa.field("n", pa.int64())])
    format = SnapshotFormat(table="delta", version="v", schema=schema.serialize().to_pybytes(), columns=("n",))
    (group,) = directory_of(format, made.getvalue()).groups_from(0)
    assert group.nbytes >= 8 * 100_000


def test_a_group_whose_rows_are_all_deleted_is_not_read() -> None:
    file = written(row_group_size=2)
    schema = pa.schema([pa.field("n", pa.int64())]).serialize().to_pybytes()
    deleted = np.array([0, 2, 3, 5]).tobytes()
    format = SnapshotFormat(table="delta", version="v", schema=schema, columns=("n",), deleted=deleted)
    assert [group.first_row for group in directory_of(format, file).groups_from(0)] == [0, 4]
    assert [row["n"] for row in rows_of(format, file)] == [1, 4]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "end inside"),
        (b"\x15", "end inside"),
        (b"\x15" + b"\xff" * 11, "too long"),
        (b"\x18\x05ab", "longer than the bytes"),
        (b"\x19\xfc\xff\x7f", "longer than the bytes"),
        (b"\x15\x02\x05\x02\x02\0", "is repeated"),
        (b"\x1b\0", "not supported"),
        (b"\x2e\0", "not supported"),
        (b"\x2c" * 64, "nested too deeply"),
        (b"\x29\x19" * 64, "nested too deeply"),
    ],
)
def test_damaged_structs_are_an_error(data: bytes, said: str) -> None:
    with pytest.raises(DamagedThriftError, match=said):
        read_fields(data, 0, {1: None})
