"""``Dataset.from_iceberg``: rows deleted by their positions in a file, in Parquet and ORC files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from aiostream_data import Dataset
from aiostream_data.errors import CorruptRecordError, TableSnapshotError
from aiostream_data.testing.resume import resumes_everywhere

pytest.importorskip("pyiceberg")

from iceberg_deletes import POSITION, numbers_in_two_files, with_deletes


@pytest.fixture
def numbers(tmp_path: Path) -> Iterator[Any]:
    with numbers_in_two_files(tmp_path) as table:
        yield table


def positions(table: Any, *rows: int) -> str:
    """Write a file of position deletes for rows of the data file with the first numbers."""
    found = {task.file.file_path: task for task in table.scan(row_filter="id < 5").plan_files()}
    (url,) = found
    path = f"{table.metadata.location}/deletes.parquet"
    deletes = pa.table({"file_path": [url, "elsewhere", *[url] * (len(rows) - 1)], "pos": [rows[0], 0, *rows[1:]]})
    parquet.write_table(deletes, path.removeprefix("file://"))
    return path


def test_rows_of_position_deletes_are_never_returned(numbers: Any) -> None:
    table = with_deletes(numbers, positions(numbers, 3, 0, 3), POSITION)
    found = sorted(int(row["id"]) for row in Dataset.from_iceberg(table))
    assert found == [1, 2, 4, *range(5, 10)] == sorted(table.scan().to_arrow()["id"].to_pylist())
    assert sorted(int(row["id"]) for row in Dataset.from_iceberg(table, filters=[("id", "<=", 3)])) == [1, 2]
    assert len(list(Dataset.from_iceberg(table, numbers.current_snapshot().snapshot_id))) == 10
    resumes_everywhere(Dataset.from_iceberg(table))


@pytest.mark.parametrize("rows", [(-1,), (5,), (0, 2**62)])
def test_deletes_of_rows_that_do_not_exist_are_an_error(numbers: Any, rows: tuple[int, ...]) -> None:
    table = with_deletes(numbers, positions(numbers, *rows), POSITION)
    with pytest.raises(CorruptRecordError, match="deletes rows that the file, which has 5 rows, does not have"):
        list(Dataset.from_iceberg(table))


def test_a_damaged_delete_file_is_an_error(numbers: Any) -> None:
    path = positions(numbers, 1)
    table = with_deletes(numbers, path, POSITION)
    Path(path.removeprefix("file://")).write_bytes(b"PAR1")
    with pytest.raises(TableSnapshotError, match=r"the delete file .*deletes\.parquet cannot be read"):
        list(Dataset.from_iceberg(table))


def test_position_deletes_in_other_files_are_refused(numbers: Any) -> None:
    table = with_deletes(numbers, positions(numbers, 1), POSITION, "AVRO")
    with pytest.raises(TableSnapshotError, match="table feature 'position deletes in AVRO files'") as raised:
        list(Dataset.from_iceberg(table))
    assert raised.value.feature == "position deletes in AVRO files"


def test_position_deletes_can_be_in_orc_files(numbers: Any) -> None:
    orc = pytest.importorskip("pyarrow.orc")
    path = positions(numbers, 3, 0)
    file = Path(path.removeprefix("file://"))
    deletes = parquet.read_table(file)
    orc.write_table(deletes, file)
    table = with_deletes(numbers, path, POSITION, "ORC")
    assert sorted(int(row["id"]) for row in Dataset.from_iceberg(table)) == [1, 2, 4, *range(5, 10)]
    content = file.read_bytes()
    orc.write_table(deletes.drop_columns(["pos"]), file)
    without = file.read_bytes()
    for damaged in (b"", content[:-9], without):
        file.write_bytes(damaged)
        with pytest.raises(TableSnapshotError, match=r"the delete file .* cannot be read"):
            list(Dataset.from_iceberg(table))
