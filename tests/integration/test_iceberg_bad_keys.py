"""``Dataset.from_iceberg``: equality deletes that are damaged, hostile, or not supported."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from aiostream_data import Dataset
from aiostream_data.dataset import iceberg_equality
from aiostream_data.errors import CorruptRecordError, TableSchemaError, TableSnapshotError

pytest.importorskip("pyiceberg")

from equality_deletes import append, commit_deletes, delete_equal, delete_file, ints, lake, named_rows
from pyiceberg.schema import Schema
from pyiceberg.types import (
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Any]:
    with lake(tmp_path) as opened:
        yield opened


@pytest.fixture
def table(catalog: Any) -> Any:
    return named_rows(catalog)


def refused(table: Any, match: str, feature: str = "equality deletes") -> None:
    with pytest.raises(TableSnapshotError, match=match) as raised:
        list(Dataset.from_iceberg(table))
    assert raised.value.feature == feature


def test_a_damaged_delete_file_is_an_error(table: Any) -> None:
    path = delete_file(table, ints(1), [1])
    commit_deletes(table, path, [1])
    file = Path(path.removeprefix("file://"))
    content = file.read_bytes()
    for damaged in (b"", content[:-1], content[:4] + bytes(30) + content[34:]):
        file.write_bytes(damaged)
        refused(table, r"the delete file .*deletes-\d+\.parquet cannot be read", "")
    file.unlink()
    refused(table, r"the delete file .*deletes-\d+\.parquet cannot be read", "")


def test_a_column_of_another_type_is_an_error(table: Any) -> None:
    delete_equal(table, pa.table({"id": ["text"]}), [1])
    refused(table, r"the delete file .* cannot be read: .*column '1' is string, but int32", "")


@pytest.mark.parametrize(
    ("columns", "match"),
    [
        (None, "names no columns"),
        ([], "names no columns"),
        ([2], "lacks the column with the field id 2"),
        ([1, 77], "the field id 77, which no schema of the table has"),
    ],
)
def test_unclear_columns_are_refused(table: Any, columns: Any, match: str) -> None:
    commit_deletes(table, delete_file(table, ints(1), [1]), columns)
    refused(table, match)


def test_a_delete_file_without_field_ids_is_refused(table: Any) -> None:
    commit_deletes(table, delete_file(table, ints(1), []), [1])
    refused(table, "lacks the column with the field id 1")


@pytest.mark.parametrize("format", ["ORC", "AVRO"])
def test_delete_files_of_other_formats_are_refused(table: Any, format: str) -> None:
    commit_deletes(table, delete_file(table, ints(1), [1]), [1], format=format)
    refused(table, "is not supported", f"equality deletes in {format} files")


def test_encrypted_delete_files_are_refused(table: Any) -> None:
    commit_deletes(table, delete_file(table, ints(1), [1]), [1], key_metadata=b"key")
    refused(table, "is encrypted", "encryption")


@pytest.mark.parametrize("kind", [ListType(9, LongType()), MapType(8, StringType(), 9, LongType())], ids=str)
@pytest.mark.parametrize("inner", [False, True])
def test_lists_and_maps_are_refused(catalog: Any, kind: Any, inner: bool) -> None:
    made = catalog.create_table("db.lists", Schema(NestedField(1, "id", IntegerType()), NestedField(2, "v", kind)))
    append(made, [{"id": 1, "v": None}])
    number = max(made.schema().field_ids) if inner else 2
    commit_deletes(made, delete_file(made, ints(1), [1]), [number])
    refused(made, "part of a list or map" if inner else "they compare column 'v', which is nested")


def test_too_many_keys_are_refused(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    delete_equal(table, ints(*range(100)), [1])
    monkeypatch.setattr(iceberg_equality, "MOST_KEYS", 99)
    refused(table, "more than 99 keys")


def test_a_small_file_of_huge_keys_is_refused_before_they_are_copied(table: Any) -> None:
    keys = pa.table({"name": pa.DictionaryArray.from_arrays(pa.array([0] * 200_000, pa.int32()), ["x" * 100_000])})
    path = delete_file(table, keys, [2], write_page_index=False)
    assert Path(path.removeprefix("file://")).stat().st_size < 1 << 20
    commit_deletes(table, path, [2])
    refused(table, "bytes of keys. Compact the table")


def test_a_data_file_with_another_type_is_an_error_that_on_error_can_skip(table: Any) -> None:
    delete_equal(table, ints(3), [1])
    (first, *_) = sorted(task.file.file_path.removeprefix("file://") for task in planned(table))
    rows = parquet.read_table(first)
    fields = [each.with_metadata({"PARQUET:field_id": str(at)}) for at, each in enumerate(rows.schema, 1)]
    schema = pa.schema([pa.field("id", pa.string(), metadata=fields[0].metadata), fields[1]])
    parquet.write_table(pa.table([rows["id"].cast(pa.string()), rows["name"]], schema=schema), first)
    with pytest.raises(TableSchemaError):
        list(Dataset.from_iceberg(table, columns=["name"]))
    Path(first).write_bytes(b"damaged")
    with pytest.raises(CorruptRecordError):
        list(Dataset.from_iceberg(table, columns=["name"]))
    assert 4 <= len(list(Dataset.from_iceberg(table, columns=["name"], on_error="skip"))) <= 5


def planned(table: Any) -> list[Any]:
    return list(table.scan(snapshot_id=table.history()[1].snapshot_id).plan_files())
