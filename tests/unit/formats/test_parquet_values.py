"""Damage in the values of Parquet files: checksums of pages, and values that cannot become rows."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from table_bytes import rows_of

from aiostream_data import CorruptRecordError, Dataset
from aiostream_data.formats.parquet import ParquetFormat
from aiostream_data.formats.snapshot_files import SnapshotFormat


def written(table: pa.Table, **options: Any) -> bytes:
    made = io.BytesIO()
    parquet.write_table(table, made, **options)
    return made.getvalue()


def test_a_value_that_does_not_match_the_checksum_of_its_page_is_an_error(tmp_path: Path) -> None:
    table = pa.table({"x": pa.array(range(1000, 1100), pa.int64())})
    options: dict[str, Any] = {
        "write_page_checksum": True,
        "compression": "none",
        "use_dictionary": False,
        "row_group_size": 25,
    }
    data = bytearray(written(table, **options))
    data[data.find((1030).to_bytes(8, "little"))] ^= 1
    (tmp_path / "x.parquet").write_bytes(data)
    with pytest.raises(CorruptRecordError, match=r"x\.parquet at byte \d+: .*checksum verification failed") as raised:
        list(Dataset.from_parquet(tmp_path / "x.parquet"))
    groups = parquet.read_metadata(tmp_path / "x.parquet")
    assert raised.value.offset == groups.row_group(1).column(0).data_page_offset
    rows = [row["x"] for row in Dataset.from_parquet(tmp_path / "x.parquet", on_error="skip")]
    assert rows == [*range(1000, 1025), *range(1050, 1100)]


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["none", "snappy", "zstd"])
def test_each_changed_byte_of_the_values_of_a_page_is_an_error(version: Any, compression: str) -> None:
    table = pa.table({"n": pa.array(range(0, 3000, 100), pa.int64())})
    options: dict[str, Any] = {"data_page_version": version, "compression": compression, "use_dictionary": False}
    data = written(table, write_page_checksum=True, **options)
    column = parquet.read_metadata(io.BytesIO(data)).row_group(0).column(0)
    stop = column.data_page_offset + column.total_compressed_size
    assert len(list(rows_of(ParquetFormat(), data))) == 30
    for place in range(stop - 40, stop):
        changed = data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]
        with pytest.raises(CorruptRecordError, match="file at byte 4: "):
            list(rows_of(ParquetFormat(), changed))


def texts(count: int, bad: int) -> pa.Array:
    """Return texts of which one is not valid UTF-8."""
    values = pa.array([b"\xff\xfe" if number == bad else b"text %d" % number for number in range(count)])
    return pa.Array.from_buffers(pa.string(), count, values.buffers())


def offsets(*stops: int) -> pa.Array:
    return pa.array([0, *stops], pa.int32())


BAD = {
    "a missing item": (pa.array([[1], [1], [1, None], [2]]), 2),
    "text": (texts(4, 2), 2),
    "text in a struct": (pa.StructArray.from_arrays([texts(4, 2)], ["t"]), 2),
    "text in a list": (pa.ListArray.from_arrays(offsets(1, 2, 5, 6), texts(6, 3)), 2),
    "text in a struct of a list": (
        pa.ListArray.from_arrays(offsets(1, 2, 5, 6), pa.StructArray.from_arrays([texts(6, 4)], ["t"])),
        2,
    ),
    "text of a dictionary": (pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 0], pa.int32()), texts(3, 2)), 2),
}


@pytest.mark.parametrize("name", BAD)
def test_a_value_that_cannot_be_read_is_an_error_with_its_row_of_the_file(name: str, tmp_path: Path) -> None:
    column, bad = BAD[name]
    parquet.write_table(pa.table({"c": column, "n": range(4)}), tmp_path / "x.parquet", row_group_size=1)
    message = rf"x\.parquet at byte \d+: Arrow column 'c(\.t)?': row {bad}: "
    with pytest.raises(CorruptRecordError, match=message):
        list(Dataset.from_parquet(tmp_path / "x.parquet"))
    with pytest.raises(CorruptRecordError, match=message):
        list(Dataset.from_parquet(tmp_path / "x.parquet", filters=[("n", ">=", 1)]))
    rows = list(Dataset.from_parquet(tmp_path / "x.parquet", on_error="skip"))
    assert [row["n"] for row in rows] == [0, 1, 3]


def test_a_value_of_a_table_that_cannot_be_read_is_an_error_with_its_row_of_the_file() -> None:
    schema = pa.schema([("c", pa.string())]).serialize().to_pybytes()
    format = SnapshotFormat(table="delta", version="v", schema=schema, columns=("c",))
    with pytest.raises(CorruptRecordError, match="file at byte 4: Arrow column 'c': row 2: the text"):
        list(rows_of(format, written(pa.table({"c": texts(4, 2)}))))


def test_an_invalid_text_of_a_dictionary_that_no_row_uses_is_no_error() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0], pa.int32()), texts(3, 2))
    rows = rows_of(ParquetFormat(), written(pa.table({"c": column})))
    assert [row["c"] for row in rows] == ["text 0", "text 1", "text 0"]
