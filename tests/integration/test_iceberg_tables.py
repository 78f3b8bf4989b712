"""``Dataset.from_iceberg``: tables that pyiceberg wrote, with changed schemas and partitions."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from traceback import format_exception_only
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from aiostream_data import Dataset
from aiostream_data.errors import (
    ArgumentTypeError,
    MissingExtraError,
    NoMatchError,
    PlanError,
    RankError,
    StateMismatchError,
    TableSchemaError,
    TableSnapshotError,
)
from aiostream_data.testing.resume import resumes_everywhere
from aiostream_data.testing.servers import ObjectServer

pytest.importorskip("pyiceberg")

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

BOX = StructType(NestedField(4, "x", FloatType()), NestedField(5, "y", StringType()))
SCHEMA = Schema(NestedField(1, "id", IntegerType()), NestedField(2, "part", StringType()), NestedField(3, "box", BOX))
BY_PART = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))
FIRST: list[dict[str, Any]] = [
    {"id": 1, "part": "a b", "box": {"x": 1.5, "y": "one"}},
    {"id": 2, "part": "ä/ö", "box": {"x": None, "y": "two"}},
    {"id": 3, "part": None, "box": {"x": 2.5, "y": None}},
]


@pytest.fixture
def properties(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "warehouse").mkdir()
    uri = f"sqlite:///{tmp_path}/catalog.db"
    return {"name": "local", "type": "sql", "uri": uri, "warehouse": f"file://{tmp_path}/warehouse"}


@pytest.fixture
def catalog(properties: dict[str, str]) -> Iterator[Catalog]:
    opened = load_catalog(**properties)
    opened.create_namespace("db")
    yield opened
    opened.close()


def append(table: Any, *rows: dict[str, Any]) -> None:
    table.append(pa.Table.from_pylist(list(rows), schema=table.schema().as_arrow()))


@pytest.fixture
def table(catalog: Catalog) -> Any:
    made = catalog.create_table("db.events", SCHEMA, partition_spec=BY_PART)
    append(made, *FIRST)
    return made


def by(name: str, dataset: Dataset[Any]) -> list[dict[str, Any]]:
    return sorted(dataset, key=lambda row: int(row[name]))


def evolve(table: Any) -> None:
    with table.update_schema() as update:
        update.update_column("id", LongType())
        update.update_column(("box", "x"), DoubleType())
    with table.update_schema() as update:
        update.rename_column("id", "key")
        update.rename_column("box.x", "wide")
        update.add_column("added", StringType())
        update.move_first("part")


def test_rows_are_those_that_pyiceberg_reads(table: Any) -> None:
    append(table, {"id": 4, "part": "a b", "box": {"x": 4.5, "y": ""}})
    expected = table.scan().to_arrow().sort_by("id").to_pylist()
    assert by("id", Dataset.from_iceberg(table)) == expected
    assert [row["part"] for row in expected] == ["a b", "ä/ö", None, "a b"]


def test_renamed_promoted_and_added_columns_are_found_by_id(table: Any) -> None:
    evolve(table)
    append(table, {"key": 2**40, "part": "z", "box": {"wide": 0.1, "y": "new"}, "added": "text"})
    rows = by("key", Dataset.from_iceberg(table))
    assert rows == table.scan().to_arrow().sort_by("key").to_pylist()
    assert list(rows[0]) == ["part", "key", "box", "added"]
    assert [type(row["key"]) for row in rows] == [int] * 4
    assert rows[0]["box"] == {"wide": 1.5, "y": "one"}
    assert rows[3]["box"]["wide"] == 0.1


def test_a_column_that_was_dropped_and_added_again_is_another_one(table: Any) -> None:
    with table.update_schema() as update:
        update.delete_column("id")
    with table.update_schema() as update:
        update.add_column("id", StringType())
    assert {row["id"] for row in Dataset.from_iceberg(table)} == {None}


def test_an_older_snapshot_has_its_own_schema(table: Any) -> None:
    first = table.current_snapshot().snapshot_id
    evolve(table)
    append(table, {"key": 9, "part": "z", "box": None, "added": "text"})
    assert by("id", Dataset.from_iceberg(table, first)) == FIRST
    assert list(by("key", Dataset.from_iceberg(table))[0]) == ["part", "key", "box", "added"]
    with pytest.raises(TableSnapshotError, match=r"db\.events: there is no snapshot 12345"):
        list(Dataset.from_iceberg(table, 12345))


@pytest.mark.parametrize(
    ("filters", "keys"),
    [
        ([("part", "=", "a b")], [1]),
        ([("key", ">", 1), ("part", "!=", "z")], [2]),
        ([[("part", "=", "z")], [("key", "<=", 2)]], [1, 2, 4]),
        ([("added", "=", "text")], [4]),
        ([("part", "in", ["nowhere"])], []),
    ],
)
def test_filters_have_the_names_of_the_schema(table: Any, filters: Any, keys: list[int]) -> None:
    evolve(table)
    append(table, {"key": 4, "part": "z", "box": None, "added": "text"})
    found = by("key", Dataset.from_iceberg(table, filters=filters, columns=["key", "box.wide"]))
    assert [row["key"] for row in found] == keys
    assert all(list(row) == ["key", "box"] and list(row["box"]) == ["wide"] for row in found)


@pytest.mark.parametrize(("operator", "value", "ids"), [("=", 1.5, [1]), ("in", [2.5, 10**400], [3]), (">", 2, [3])])
def test_a_filter_may_name_a_field_of_a_struct(table: Any, operator: str, value: Any, ids: list[int]) -> None:
    rows = by("id", Dataset.from_iceberg(table, filters=[("box.x", operator, value)], columns=["id", "box.y"]))
    assert [row["id"] for row in rows] == ids
    assert all(list(row["box"]) == ["y"] for row in rows)


def test_files_of_excluded_partitions_are_not_opened(table: Any) -> None:
    for task in table.scan().plan_files():
        if task.file.partition[0] != "a b":
            Path(task.file.file_path.removeprefix("file://")).unlink()
    assert [row["id"] for row in Dataset.from_iceberg(table, filters=[("part", "=", "a b")])] == [1]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (DateType(), date(2024, 1, 2)),
        (TimestampType(), datetime(2024, 1, 2, 3, 4, 5, 6)),
        (TimestamptzType(), datetime(2024, 1, 2, 3, 4, 5, 6, UTC)),
        (LongType(), -(2**40)),
        (BooleanType(), True),
        (DoubleType(), 0.25),
        (StringType(), "text"),
        (BinaryType(), b"\x00\xff"),
    ],
    ids=str,
)
def test_partition_values_have_the_types_of_their_columns(catalog: Catalog, kind: Any, value: Any) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "v", kind))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "v"))
    found = []
    for name, partitions in (("db.parts", spec), ("db.plain", PartitionSpec())):
        made = catalog.create_table(name, schema, partition_spec=partitions)
        append(made, {"id": 1, "v": value})
        found += list(Dataset.from_iceberg(made))
    assert found[0] == found[1]
    assert type(found[0]["v"]) is type(found[1]["v"])


def test_files_of_several_partition_specs_are_read(catalog: Catalog) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "part", StringType()))
    made = catalog.create_table("db.specs", schema)
    append(made, {"id": 0, "part": "x"}, {"id": 1, "part": "y"})
    with made.update_spec() as update:
        update.add_identity("part")
    append(made, {"id": 2, "part": "x"}, {"id": 3, "part": "z"})
    with made.update_spec() as update:
        update.remove_field("part")
        update.add_identity("id")
    append(made, {"id": 4, "part": "x"})
    assert [row["part"] for row in by("id", Dataset.from_iceberg(made))] == ["x", "y", "x", "z", "x"]
    assert [row["id"] for row in by("id", Dataset.from_iceberg(made, filters=[("part", "=", "x")]))] == [0, 2, 4]


def test_a_table_without_snapshots_has_no_rows(catalog: Catalog) -> None:
    made = catalog.create_table("db.empty", SCHEMA)
    dataset = Dataset.from_iceberg(made)
    with dataset.open() as loader:
        state = loader.state_dict()
        assert list(loader) == []
    append(made, *FIRST)
    with Dataset.from_iceberg(made).open(state) as loader:
        assert list(loader) == []


def test_a_table_without_columns_is_an_error(catalog: Catalog) -> None:
    with pytest.raises(TableSnapshotError, match=r"db\.empty: version 0 has no columns"):
        list(Dataset.from_iceberg(catalog.create_table("db.empty", Schema())))


# -- snapshots and states


def test_a_table_is_loaded_by_name_from_its_catalog(table: Any, properties: dict[str, str]) -> None:
    dataset = pickle.loads(pickle.dumps(Dataset.from_iceberg("db.events", catalog=properties)))
    assert by("id", dataset) == FIRST
    append(table, {"id": 4, "part": "z", "box": None})
    assert len(list(dataset)) == 4
    with pytest.raises(NoMatchError, match=r"db\.nothing: the catalog has no such table"):
        list(Dataset.from_iceberg("db.nothing", catalog=properties))


def test_a_state_names_the_snapshot_and_a_resumed_run_reads_its_files(table: Any, properties: dict[str, str]) -> None:
    evolve(table)  # the snapshot has an older schema than the table

    def keys(source: Any, **options: Any) -> Dataset[int]:
        return Dataset.from_iceberg(source, **options).map(lambda row: int(row["key"]))

    for source, options in ((table, {}), ("db.events", {"catalog": properties})):
        with keys(source, **options).open() as loader:
            first = [next(loader)]
            state = loader.state_dict()
        (entry, *_) = state["pipeline"]["plan"]
        snapshot = table.current_snapshot().snapshot_id
        assert entry["args"] == {"table": "'db.events'", "snapshot_id": str(snapshot), "schema_id": "2"}
        expected = sorted(int(row["key"]) for row in Dataset.from_iceberg(table))
        append(table, {"key": 10 + len(expected), "part": "z", "box": None, "added": None})
        with keys(source, **options).open(state) as loader:
            assert sorted([*first, *loader]) == expected
        with pytest.raises(StateMismatchError, match=r"from_iceberg .*snapshot_id was"):
            keys(table, snapshot_id=table.current_snapshot().snapshot_id).open(state)


def test_a_loaded_table_is_read_as_it_was_loaded(table: Any) -> None:
    dataset = Dataset.from_iceberg(table)
    append(table, {"id": 4, "part": "z", "box": None})
    assert len(list(dataset)) == 3


def test_runs_resume_at_every_row(table: Any) -> None:
    resumes_everywhere(Dataset.from_iceberg(table, cycle_length=2).shuffle(3, seed=1))


def test_several_ranks_need_a_snapshot_and_then_share_its_rows(table: Any) -> None:
    snapshot = table.current_snapshot().snapshot_id
    with pytest.raises(RankError, match=rf"Pass snapshot_id= to all of them; the newest is now {snapshot}\."):
        Dataset.from_iceberg(table).open(rank=0, world_size=2)
    found = []
    for rank in range(2):
        with Dataset.from_iceberg(table, snapshot).open(rank=rank, world_size=2, policy="file") as loader:
            found += [row["id"] for row in loader]
    assert sorted(found) == [1, 2, 3]


# -- files without ids, errors and stores


def test_files_without_ids_are_read_by_the_name_mapping(catalog: Catalog, tmp_path: Path) -> None:
    made = catalog.create_table(
        "db.added", Schema(NestedField(1, "id", LongType()), NestedField(2, "text", StringType()))
    )
    parquet.write_table(pa.table({"text": ["a", "b"], "id": [1, 2]}), tmp_path / "0.parquet")
    made.add_files([f"file://{tmp_path}/0.parquet"])
    with made.update_schema() as update:
        update.rename_column("text", "words")
    assert list(Dataset.from_iceberg(made)) == [{"id": 1, "words": "a"}, {"id": 2, "words": "b"}]
    with made.transaction() as changes:
        changes.remove_properties("schema.name-mapping.default")
    with pytest.raises(TableSchemaError, match="the file has no field ids, and the table has no name mapping"):
        list(Dataset.from_iceberg(made))


def test_invalid_arguments_are_refused(table: Any, properties: dict[str, str]) -> None:
    for wrong in ("", None, ["db.events"]):
        with pytest.raises(ArgumentTypeError, match="table must be a Table of pyiceberg or the name of one"):
            Dataset.from_iceberg(wrong)
    with pytest.raises(ArgumentTypeError, match="catalog must be the properties or the name of a catalog"):
        Dataset.from_iceberg("db.events")
    with pytest.raises(PlanError, match="catalog must be None"):
        Dataset.from_iceberg(table, catalog=properties)
    with pytest.raises(PlanError, match="has no column 'nope'"):
        list(Dataset.from_iceberg(table, columns=["nope"]))


def test_a_missing_metadata_file_is_an_error(table: Any) -> None:
    dataset = Dataset.from_iceberg(table)
    Path(table.metadata_location.removeprefix("file://")).unlink()
    with pytest.raises(TableSnapshotError, match="pyiceberg cannot read the metadata"):
        list(dataset)


def test_an_error_of_the_catalog_shows_no_secrets(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/no folder/catalog.db"
    with pytest.raises(TableSnapshotError, match=r"db\.events: pyiceberg cannot read the metadata") as raised:
        list(Dataset.from_iceberg("db.events", catalog={"type": "sql", "uri": uri, "s3.secret-access-key": uri[-20:]}))
    assert uri[-20:] not in "".join(format_exception_only(raised.value))


def test_a_missing_library_is_named(properties: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyiceberg.catalog", None)
    with pytest.raises(MissingExtraError, match=r"aiostream-data\[iceberg\]"):
        list(Dataset.from_iceberg("db.events", catalog=properties))


def test_tables_on_s3_are_read_with_the_properties_of_the_catalog(s3_endpoint: ObjectServer, tmp_path: Path) -> None:
    account = {"s3.endpoint": s3_endpoint.endpoint_url, "s3.access-key-id": "testing", "s3.region": "us-east-1"}
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": "s3://test-bucket/warehouse"}
    catalog = load_catalog("remote", **properties, **account, **{"s3.secret-access-key": "testing"})
    catalog.create_namespace("db")
    made = catalog.create_table("db.events", SCHEMA, partition_spec=BY_PART)
    append(made, *FIRST)
    assert by("id", Dataset.from_iceberg(made)) == FIRST
    assert by("id", Dataset.from_iceberg(made, storage_options=s3_endpoint.storage_options)) == FIRST
    catalog.close()
