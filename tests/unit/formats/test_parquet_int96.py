"""Timestamps of 96 bits in Parquet: nanoseconds where they fit, and microseconds in row groups with other years."""

from __future__ import annotations

import io
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from table_bytes import rows_of

from aiostream_data import BatchShapeError, CorruptRecordError, Dataset
from aiostream_data.formats.parquet import ParquetFormat
from aiostream_data.formats.snapshot_files import SnapshotFormat
from aiostream_data.testing.resume import resumes_everywhere

DAY_OF_2000 = (2451545).to_bytes(4, "little")
"""Number of the day 2000-01-01 in a timestamp of 96 bits. It follows eight bytes for the nanoseconds."""


def written(table: pa.Table, **options: Any) -> bytes:
    made = io.BytesIO()
    parquet.write_table(table, made, use_deprecated_int96_timestamps=True, **options)
    return made.getvalue()


def of_years(*years: int) -> pa.Array:
    return pa.array([datetime(year, 1, 2, 3, 4, 5, 600) for year in years], pa.timestamp("us"))


@pytest.mark.parametrize("year", [1, 1676, 2263, 3000, 9999])
def test_years_beyond_nanoseconds_are_read_in_microseconds(year: int) -> None:
    (row,) = rows_of(ParquetFormat(), written(pa.table({"t": of_years(year)})))
    assert row["t"] == np.datetime64(datetime(year, 1, 2, 3, 4, 5, 600), "us")
    assert row["t"].dtype == "M8[us]"


@pytest.mark.parametrize("nanoseconds", [0, 1_700_000_000_123_456_789, 2**63 - 1, -(2**63) + 1])
def test_other_timestamps_keep_their_nanoseconds(nanoseconds: int) -> None:
    times = np.array([nanoseconds], "M8[ns]")
    (row,) = rows_of(ParquetFormat(), written(pa.table({"t": times})))
    assert row["t"] == times[0]
    assert row["t"].dtype == "M8[ns]"


def test_timestamps_inside_of_other_values_are_read() -> None:
    far = datetime(9999, 1, 1)
    kinds = {"l": pa.list_(pa.timestamp("us")), "s": pa.struct({"t": pa.timestamp("us"), "n": pa.int64()})}
    kinds["m"] = pa.map_(pa.string(), pa.timestamp("us"))
    rows = [{"l": [far], "s": {"t": far, "n": 1}, "m": {"k": far}}, {"l": None, "s": {"t": None, "n": 2}, "m": None}]
    file = written(pa.Table.from_pylist(rows, schema=pa.schema(kinds)))
    first, second = rows_of(ParquetFormat(), file)
    assert first == {"l": [np.datetime64(far)], "s": {"t": np.datetime64(far), "n": 1}, "m": {"k": np.datetime64(far)}}
    assert second["s"] == {"t": None, "n": 2}


def test_the_type_depends_on_the_row_group_and_not_on_those_read_with_it(tmp_path: Path) -> None:
    table = pa.table({"t": of_years(2000, 2001, 2002, 9999, 2004), "o": of_years(*[2000] * 5)})
    (tmp_path / "x.parquet").write_bytes(written(table, row_group_size=2))
    dataset = Dataset.from_parquet(tmp_path / "x.parquet")
    rows = list(dataset)
    assert [row["t"].astype("M8[Y]").astype(int) + 1970 for row in rows] == [2000, 2001, 2002, 9999, 2004]
    assert [np.datetime_data(row["t"].dtype)[0] for row in rows] == ["ns", "ns", "us", "us", "ns"]
    assert {row["o"].dtype for row in rows} == {np.dtype("M8[ns]")}
    resumes_everywhere(dataset)
    with pytest.raises(BatchShapeError, match=r"datetime64\[ns\] .* but .* datetime64\[us\]"):
        list(dataset.batch(5))


def test_filters_compare_years_of_both_kinds() -> None:
    file = written(pa.table({"t": of_years(2000, 9999), "n": [0, 1]}))
    for operator, kept in ((">", [1]), ("<", [0])):
        format = ParquetFormat(columns=("n",), filters=((("t", operator, datetime(5000, 1, 1)),),))
        assert list(rows_of(format, file)) == [{"n": number} for number in kept]


def test_a_table_has_the_type_of_its_schema_for_all_years() -> None:
    schema = pa.schema([pa.field("t", pa.timestamp("us"))]).serialize().to_pybytes()
    format = SnapshotFormat(table="delta", version="v", schema=schema, columns=("t",))
    rows = list(rows_of(format, written(pa.table({"t": of_years(2000, 2001, 9999)}), row_group_size=2)))
    assert [row["t"] for row in rows] == of_years(2000, 2001, 9999).to_numpy().tolist()
    assert {row["t"].dtype for row in rows} == {np.dtype("M8[us]")}


@pytest.mark.parametrize(
    ("day", "nanoseconds", "said"),
    [
        (2**31 - 5, 0, "column 't' has a timestamp outside the range of datetime64"),
        (2451545 + 3_000_000, 123, "column 't' has years outside 1677 to 2262, and nanoseconds"),
    ],
)
def test_a_timestamp_that_fits_into_neither_unit_is_an_error(day: int, nanoseconds: int, said: str) -> None:
    file = written(pa.table({"t": pa.array([datetime(2000, 1, 1)])}), compression="none", use_dictionary=False)
    stored = bytes(8) + DAY_OF_2000
    assert file.count(stored) == 1
    changed = file.replace(stored, nanoseconds.to_bytes(8, "little") + day.to_bytes(4, "little"))
    with pytest.raises(CorruptRecordError, match=f"file at byte 4: {said}"):
        list(rows_of(ParquetFormat(), changed))
