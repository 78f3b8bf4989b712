"""``Dataset.from_delta``: features of tables that deltalake reads, and other libraries write."""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import delta_logs as logs
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from aiostream_data import Dataset
from aiostream_data.errors import (
    CorruptRecordError,
    PlanError,
    StateMismatchError,
    TableSchemaError,
    TableSnapshotError,
)
from aiostream_data.testing.resume import resumes_everywhere
from aiostream_data.testing.servers import ObjectServer

pytest.importorskip("deltalake")
pytest.importorskip("pyroaring")

from puffin_files import vector as puffin_vector

MAPPED = logs.struct_of(
    logs.field("the id", "long", "col-1", 1),
    logs.field("day", "date", "col-2", 2),
    logs.field(
        "box", logs.struct_of(logs.field("x", "long", "col-4", 4), logs.field("y", "string", "col-5", 5)), "col-3", 3
    ),
    logs.field("later", "string", "col-6", 6),
)


def mapped_rows(with_ids: bool) -> pa.Table:
    def field(name: str, kind: pa.DataType, number: int) -> pa.Field:
        return pa.field(name if not with_ids else f"f{number}", kind, metadata={"PARQUET:field_id": str(number)})

    box = pa.struct([field("col-5", pa.string(), 5), field("col-4", pa.int64(), 4)])  # in another order
    names = [each.name for each in box]
    boxes = [None if row == 3 else dict(zip(names, (f"y{row}", 10 * row), strict=True)) for row in range(5)]
    schema = pa.schema([field("col-3", box, 3), field("col-1", pa.int64(), 1)])
    return pa.table([pa.array(boxes, box), pa.array(range(5))], schema=schema)


@pytest.mark.parametrize("mode", ["name", "id"])
def test_mapped_columns_are_found_by_name_or_by_id(tmp_path: Path, mode: str) -> None:
    added = logs.add(tmp_path, "0.parquet", mapped_rows(mode == "id"), {"col-2": "2024-01-02"})
    configuration = {"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "6"}
    options: Any = {"partition_columns": ["day"], "features": ["columnMapping"], "configuration": configuration}
    logs.write_log(tmp_path, MAPPED, [added], **options)
    rows = list(Dataset.from_delta(tmp_path))
    assert rows[1] == {"the id": 1, "day": np.datetime64("2024-01-02"), "box": {"x": 10, "y": "y1"}, "later": None}
    assert [row["the id"] for row in rows] == list(range(5))
    assert rows[3]["box"] == {"x": None, "y": None}
    picked = Dataset.from_delta(tmp_path, columns=["box.y"], filters=[("the id", ">", 2)])
    assert list(picked) == [{"box": {"y": None}}, {"box": {"y": "y4"}}]
    with pytest.raises(PlanError, match="column 'box' has no column 'z'"):
        list(Dataset.from_delta(tmp_path, columns=["box.z"]))
    with pytest.raises(PlanError, match="column 'day' has no field 'z', because it is no struct"):
        list(Dataset.from_delta(tmp_path, columns=["day.z"]))


def test_deleted_rows_are_never_returned(tmp_path: Path) -> None:
    rows = pa.table({"id": range(7)})
    vectors = {"0.parquet": [1, 2, 3, 6], "1.parquet": [], "2.parquet": list(range(7))}
    added = [
        logs.add(tmp_path, name, rows, **({"deletionVector": logs.deletion_vector(deleted)} if deleted else {}))
        for name, deleted in vectors.items()
    ]
    schema = logs.struct_of(logs.field("id", "long"))
    logs.write_log(tmp_path, schema, added, features=["deletionVectors"])
    dataset = Dataset.from_delta(tmp_path).map(lambda row: int(row["id"]))
    assert list(dataset) == [0, 4, 5, *range(7)]
    resumes_everywhere(dataset)
    assert [row["id"] for row in Dataset.from_delta(tmp_path, filters=[("id", ">", 3)])] == [4, 5, 4, 5, 6]


def test_a_row_of_an_older_version_is_fetched_unless_it_was_deleted_since(tmp_path: Path) -> None:
    before = logs.add(tmp_path, "0.parquet", pa.table({"id": range(5)}))
    after = {"add": {**before["add"], "deletionVector": logs.deletion_vector([1, 3])}}
    removed = {"remove": {"path": "0.parquet", "deletionTimestamp": 1, "dataChange": True}}
    schema = logs.struct_of(logs.field("id", "long"))
    logs.write_log(tmp_path, schema, [before], [removed, after], features=["deletionVectors"])
    with Dataset.from_delta(tmp_path, 0).open() as loader:
        origins = [loader.origins(row)[0] for row in loader]
    assert [origin.index for origin in origins] == list(range(5))
    newest = Dataset.from_delta(tmp_path)
    assert [newest.fetch(origins[row])["id"] for row in (0, 2, 4)] == [0, 2, 4]
    with pytest.raises(StateMismatchError, match=r"row 3 of .*0.parquet is deleted in version 1 of"):
        newest.fetch(origins[3])


def test_a_deletion_of_rows_that_do_not_exist_is_an_error(tmp_path: Path) -> None:
    more: Any = {"deletionVector": logs.deletion_vector([1, 3]), "stats": json.dumps({"numRecords": 4})}
    added = logs.add(tmp_path, "0.parquet", pa.table({"id": range(3)}), **more)
    logs.write_log(tmp_path, logs.struct_of(logs.field("id", "long")), [added], features=["deletionVectors"])
    with pytest.raises(CorruptRecordError, match="deletes rows that the file, which has 3 rows, does not have"):
        list(Dataset.from_delta(tmp_path))


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        ("long", pa.array([1, None], pa.int8())),
        ("integer", pa.array([1, None], pa.int16())),
        ("double", pa.array([0.5, None], pa.float32())),
        ("double", pa.array([3, None], pa.int32())),
        ("long", pa.array([-(2**31), None], pa.int32())),
        ("timestamp_ntz", pa.array([date(2024, 1, 2), None])),
    ],
)
def test_columns_of_older_files_get_the_wider_type_of_the_table(tmp_path: Path, wide: str, narrow: pa.Array) -> None:
    schema = logs.struct_of(logs.field("v", wide))
    features = ["typeWidening", *(["timestampNtz"] if "ntz" in wide else [])]
    logs.write_log(tmp_path, schema, [logs.add(tmp_path, "0.parquet", pa.table({"v": narrow}))], features=features)
    first, second = [row["v"] for row in Dataset.from_delta(tmp_path)]
    assert second is None
    if wide == "timestamp_ntz":
        assert first == np.datetime64("2024-01-02T00:00:00.000000")
    else:
        assert first == narrow[0].as_py()
        assert np.asarray(first).dtype == {"long": np.int64, "integer": np.int32, "double": np.float64}[wide]


def test_elements_of_lists_get_the_wider_type_of_the_table(tmp_path: Path) -> None:
    kind = {"type": "array", "elementType": "long", "containsNull": True}
    narrow = pa.table({"v": pa.array([[1, 2], [], [-3]], pa.list_(pa.int16()))})
    added = [logs.add(tmp_path, "0.parquet", narrow), logs.add(tmp_path, "1.parquet", pa.table({"v": [[2**40]]}))]
    logs.write_log(tmp_path, logs.struct_of(logs.field("v", kind)), added, features=["typeWidening"])
    found = [np.asarray(row["v"]) for row in Dataset.from_delta(tmp_path)]
    assert [each.tolist() for each in found] == [[1, 2], [], [-3], [2**40]]
    assert {each.dtype for each in found} == {np.dtype(np.int64)}


@pytest.mark.parametrize(
    "narrow", [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.decimal128(5, 1), pa.decimal128(20, 0)], ids=str
)
def test_numbers_of_older_files_are_compared_as_wider_decimals(tmp_path: Path, narrow: Any) -> None:
    values = pa.table({"id": [0, 1, 2], "v": pa.array([1, 50, None], narrow)})
    schema = logs.struct_of(logs.field("id", "long"), logs.field("v", "decimal(22,2)"))
    logs.write_log(tmp_path, schema, [logs.add(tmp_path, "0.parquet", values)], features=["typeWidening"])
    filters = [("v", ">", Decimal("1.25"))]
    assert [row["id"] for row in Dataset.from_delta(tmp_path, columns=["id"], filters=filters)] == [1]


def test_statistics_of_older_files_do_not_round_what_wider_numbers_are_compared_with(tmp_path: Path) -> None:
    """The float32 next to 0.1 is larger than 0.1."""
    values = pa.table({"v": pa.array([0.1, None, 0.1], pa.float32())})
    schema = logs.struct_of(logs.field("v", "double"))
    logs.write_log(tmp_path, schema, [logs.add(tmp_path, "0.parquet", values)], features=["typeWidening"])
    rounded = float(np.float32(0.1))
    for operator, value, wanted in (
        (">", 0.1, 2),
        ("=", 0.1, 0),
        ("=", rounded, 2),
        ("<=", 0.1, 0),
        (">=", rounded, 2),
    ):
        rows = list(Dataset.from_delta(tmp_path, filters=[("v", operator, value)]))
        assert rows == [{"v": rounded}] * wanted


def test_a_decimal_that_could_lose_digits_is_refused(tmp_path: Path) -> None:
    for number, (narrow, wide) in enumerate([(pa.int64(), "decimal(20,2)"), (pa.decimal128(9, 3), "decimal(9,2)")]):
        folder = tmp_path / str(number)
        folder.mkdir()
        added = logs.add(folder, "0.parquet", pa.table({"v": pa.array([1], narrow)}))
        logs.write_log(folder, logs.struct_of(logs.field("v", wide)), [added], features=["typeWidening"])
        with pytest.raises(TableSchemaError, match="column 'v' is"):
            list(Dataset.from_delta(folder))


@pytest.mark.parametrize(
    ("kind", "values"),
    [("integer", [2**40]), ("integer", ["text"]), ("string", [5]), ("float", [0.1]), ("boolean", [1])],
)
def test_a_column_of_another_type_is_refused(tmp_path: Path, kind: str, values: list[Any]) -> None:
    added = logs.add(tmp_path, "0.parquet", pa.table({"v": values}))
    logs.write_log(tmp_path, logs.struct_of(logs.field("v", kind)), [added])
    with pytest.raises(TableSchemaError, match=r"0\.parquet: column 'v' is .*, but .* in the table"):
        list(Dataset.from_delta(tmp_path))


def test_an_unknown_feature_is_named(tmp_path: Path) -> None:
    added = logs.add(tmp_path, "0.parquet", pa.table({"id": [1]}))
    logs.write_log(tmp_path, logs.struct_of(logs.field("id", "long")), [added], features=["variantType"])
    with pytest.raises(TableSnapshotError, match="variantType") as raised:
        list(Dataset.from_delta(tmp_path))
    assert raised.value.url == str(tmp_path)


@pytest.mark.parametrize("path", ["../0.parquet", "a/../../0.parquet", "%2e%2e/0.parquet", "s3://bucket/0.parquet"])
def test_a_data_file_elsewhere_is_refused(tmp_path: Path, path: str) -> None:
    added = logs.add(tmp_path, "0.parquet", pa.table({"id": [1]}))
    added["add"]["path"] = path
    (tmp_path / "table").mkdir()
    logs.write_log(tmp_path / "table", logs.struct_of(logs.field("id", "long")), [added])
    with pytest.raises(TableSnapshotError, match="the log names the data file"):
        list(Dataset.from_delta(tmp_path / "table"))


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz"])
def test_timestamps_of_older_writers_are_read_as_utc(tmp_path: Path, kind: str) -> None:
    times = pa.table({"v": pa.array([datetime(2024, 1, 2, 3, 4, 5, 6), None], pa.timestamp("ns"))})
    added = logs.add(tmp_path, "0.parquet", times)
    parquet.write_table(times, tmp_path / "0.parquet", use_deprecated_int96_timestamps=True)
    added["add"]["size"] = (tmp_path / "0.parquet").stat().st_size
    features = ["timestampNtz"] if kind == "timestamp_ntz" else []
    logs.write_log(tmp_path, logs.struct_of(logs.field("v", kind)), [added], features=features)
    first, second = [row["v"] for row in Dataset.from_delta(tmp_path)]
    assert (first, second) == (np.datetime64("2024-01-02T03:04:05.000006"), None)


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_the_files_of_a_shallow_clone_are_elsewhere(tmp_path: Path, scheme: str) -> None:
    vector = logs.deletion_vector([1])
    added = logs.add(tmp_path, "a b.parquet", pa.table({"id": [1, 2]}), deletionVector=vector)
    added["add"]["path"] = f"{scheme}{tmp_path}/a%20b.parquet"
    (tmp_path / "clone").mkdir()
    logs.write_log(tmp_path / "clone", logs.struct_of(logs.field("id", "long")), [added], features=["deletionVectors"])
    assert list(Dataset.from_delta(tmp_path / "clone")) == [{"id": 1}]


def test_deleted_rows_of_a_table_on_s3(s3_endpoint: ObjectServer, tmp_path: Path) -> None:
    vectors = [logs.deletion_vector([1]), *logs.stored_vectors(tmp_path, [(puffin_vector([2]), 1)], "ab")]
    names = ["a b%20c.parquet", "1.parquet"]
    first, second = (
        logs.add(tmp_path, name, pa.table({"id": range(at, at + 4)}), deletionVector=vector)
        for name, at, vector in zip(names, (0, 10), vectors, strict=True)
    )
    first["add"]["path"] = "a%20b%2520c.parquet"
    schema = logs.struct_of(logs.field("id", "long"))
    logs.write_log(tmp_path, schema, [first, second], features=["deletionVectors"])
    for path in (each for each in tmp_path.rglob("*") if each.is_file()):
        s3_endpoint.put(f"s3://test-bucket/deleted/{path.relative_to(tmp_path)}", path.read_bytes())
    url, options = "s3://test-bucket/deleted", s3_endpoint.storage_options
    expected = [0, 2, 3, 10, 11, 13]
    assert sorted(int(row["id"]) for row in Dataset.from_delta(url, storage_options=options)) == expected
    assert sorted(int(row["id"]) for row in Dataset.from_delta(tmp_path)) == expected
