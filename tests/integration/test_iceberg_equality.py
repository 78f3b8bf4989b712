"""``Dataset.from_iceberg``: rows that equality deletes delete."""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyarrow import parquet

from aiostream_data import Dataset
from aiostream_data.errors import StateMismatchError, TableSnapshotError
from aiostream_data.testing.resume import resumes_everywhere

pytest.importorskip("pyiceberg")

from equality_deletes import SCHEMA, append, commit_deletes, delete_equal, delete_file, ints, lake, named_rows
from iceberg_deletes import POSITION
from pyiceberg.manifest import DataFileContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
    UUIDType,
)

NAN = float("nan")


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Any]:
    with lake(tmp_path) as opened:
        yield opened


@pytest.fixture
def table(catalog: Any) -> Any:
    return named_rows(catalog)


def ids(source: Any, **arguments: Any) -> list[int | None]:
    found = [row["id"] for row in Dataset.from_iceberg(source, **arguments)]
    return sorted(
        (None if each is None else int(each) for each in found), key=lambda each: -1 if each is None else each
    )


def test_equal_rows_of_older_files_are_never_returned(table: Any) -> None:
    before = table.current_snapshot().snapshot_id
    delete_equal(table, ints(3, 3, 4, None, 99), [1])
    append(table, [{"id": 3, "name": "again"}, {"id": None, "name": "again"}])
    assert ids(table) == [None, 0, 1, 2, 3, 5, 6, 7]
    assert ids(table, filters=[("id", "<=", 5)]) == [0, 1, 2, 3, 5]
    assert len(ids(table, snapshot_id=before)) == 11
    resumes_everywhere(Dataset.from_iceberg(table, cycle_length=2).shuffle(3, seed=1))


def test_a_row_equals_a_key_in_all_of_its_columns(table: Any) -> None:
    keys = pa.table({"name": ["n1", "n0", None, "n1", None], "id": pa.array([3, 3, None, 6, 4], pa.int32())})
    delete_equal(table, keys, [2, 1])
    assert ids(table) == [0, 1, 2, 4, 4, 5, 6, 7]


def test_columns_of_the_keys_need_not_be_selected(table: Any) -> None:
    delete_equal(table, ints(*range(1, 7)), [1])
    rows = list(Dataset.from_iceberg(table, columns=["name"]))
    assert sorted(str(row["name"]) for row in rows) == ["None", "n0", "n1"]
    found = list(Dataset.from_iceberg(table, columns=["name"], filters=[("name", "=", "n1")]))
    assert found == [{"name": "n1"}]


def test_deletes_of_the_same_or_an_older_commit_delete_nothing(table: Any) -> None:
    append(table, [{"id": 9, "name": "new"}])
    sequence = table.metadata.last_sequence_number
    older = delete_file(table, ints(9, 3), [1])
    commit_deletes(table, older, [1])
    append(table, [{"id": 9, "name": "newer"}])
    assert sequence < table.metadata.last_sequence_number
    assert ids(table).count(9) == 1
    assert 3 not in ids(table)


def test_extra_columns_of_a_delete_file_are_ignored(table: Any) -> None:
    keys = ints(3, 4).append_column("name", pa.array(["other", "values"]))
    delete_equal(table, keys, [1])
    assert ids(table) == [None, 0, 1, 2, 5, 6, 7]


def test_an_empty_delete_file_deletes_nothing(table: Any) -> None:
    delete_equal(table, ints(), [1])
    assert len(ids(table)) == 11


def test_all_rows_can_be_deleted(table: Any) -> None:
    delete_equal(table, ints(None, *range(8)), [1])
    assert ids(table) == []


def test_ranks_share_the_keys(table: Any) -> None:
    delete_equal(table, ints(3, 4), [1])
    dataset = Dataset.from_iceberg(table, table.current_snapshot().snapshot_id)
    found = []
    for rank in range(2):
        with dataset.open(rank=rank, world_size=2, policy="file") as loader:
            found += [row["id"] for row in loader]
    assert len(found) == 7


def test_a_row_is_fetched_unless_it_was_deleted(table: Any) -> None:
    with Dataset.from_iceberg(table, table.current_snapshot().snapshot_id).open() as loader:
        origins = {int(row["id"]): loader.origins(row)[0] for row in loader if row["id"] is not None}
    delete_equal(table, ints(3), [1])
    newest = Dataset.from_iceberg(table, columns=["name"])
    assert newest.fetch(origins[4])["name"] == "n0"
    with pytest.raises(StateMismatchError, match=r"row . of .*\.parquet is deleted in version"):
        newest.fetch(origins[3])


def test_origins_are_row_numbers_of_the_file(table: Any) -> None:
    delete_equal(table, ints(0, 2, 3, 4, 5, 6, 7), [1])
    with Dataset.from_iceberg(table).open() as loader:
        assert [loader.origins(row)[0].index for row in loader] == [1, 5]


# -- partitions


def test_deletes_concern_their_partition_unless_their_spec_has_none(catalog: Any) -> None:
    made = catalog.create_table("db.parts", SCHEMA)
    append(made, [{"id": 0, "name": "a"}])
    with made.update_spec() as update:
        update.add_identity("name")
    append(made, [{"id": row, "name": name} for row in range(3) for name in ("a", "b", None)])
    delete_equal(made, ints(1), [1], partition=("a",))
    delete_equal(made, ints(2), [1], partition=(None,))
    delete_equal(made, ints(0), [1], partition=("elsewhere",))
    found = sorted((str(row["name"]), int(row["id"])) for row in Dataset.from_iceberg(made))
    assert found == [("None", 0), ("None", 1), ("a", 0), ("a", 0), ("a", 2), ("b", 0), ("b", 1), ("b", 2)]
    delete_equal(made, ints(0), [1], spec_id=0)
    found = sorted((str(row["name"]), int(row["id"])) for row in Dataset.from_iceberg(made))
    assert found == [("None", 1), ("a", 2), ("b", 1), ("b", 2)]
    assert ids(made, filters=[("name", "=", "b")]) == [1, 2]


def test_partition_values_count_for_files_without_the_column(catalog: Any, tmp_path: Path) -> None:
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"))
    made = catalog.create_table("db.hive", SCHEMA, partition_spec=spec)
    append(made, [{"id": 1, "name": "a"}, {"id": 1, "name": "b"}])
    for task in made.scan().plan_files():
        path = task.file.file_path.removeprefix("file://")
        parquet.write_table(parquet.read_table(path).drop_columns(["name"]), path)
    keys = pa.table({"name": ["a"], "id": pa.array([1], pa.int32())})
    delete_equal(made, keys, [2, 1], partition=("a",))
    delete_equal(made, keys, [2, 1], partition=("b",))
    assert [row["name"] for row in Dataset.from_iceberg(made)] == ["b"]


def test_a_partition_of_nan_equals_itself(catalog: Any) -> None:
    schema = Schema(NestedField(1, "id", IntegerType()), NestedField(2, "x", DoubleType()))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "x"))
    made = catalog.create_table("db.nans", schema, partition_spec=spec)
    append(made, [{"id": 1, "x": 2.0}])
    path = delete_file(made, ints(1).append_column("x", pa.array([NAN])), [1, 2])
    commit_deletes(made, path, None, content=DataFileContent.DATA, partition=(NAN,))
    assert len(list(Dataset.from_iceberg(made))) == 2
    delete_equal(made, ints(1), [1], partition=(float("-nan"),))
    assert [float(row["x"]) for row in Dataset.from_iceberg(made)] == [2.0]


# -- changed schemas


def test_columns_of_keys_are_found_by_id_after_they_changed(table: Any) -> None:
    delete_equal(table, ints(3), [1])
    with table.update_schema() as update:
        update.update_column("id", LongType())
        update.rename_column("id", "key")
    with table.update_schema() as update:
        update.add_column("id", StringType())
    delete_equal(table, ints(4, 2**40, kind=pa.int64()), [1])
    found = sorted(int(row["key"]) for row in Dataset.from_iceberg(table) if row["key"] is not None)
    assert found == [0, 1, 2, 5, 6, 7]
    with table.update_schema() as update:
        update.delete_column("key")
    assert len(list(Dataset.from_iceberg(table, columns=["name"]))) == 7


def test_an_absent_column_equals_null(table: Any) -> None:
    with table.update_schema() as update:
        update.add_column("added", StringType())
    append(table, [{"id": 8, "name": "x", "added": None}, {"id": 8, "name": "x", "added": "text"}])
    keys = pa.table({"id": pa.array([3, 4, 8], pa.int32()), "added": [None, "text", None]})
    delete_equal(table, keys, [1, 3])
    assert ids(table) == [None, 0, 1, 2, 4, 4, 5, 6, 7, 8]


def test_fields_of_structs_are_compared(catalog: Any) -> None:
    box = StructType(NestedField(3, "x", LongType()), NestedField(4, "y", StringType()))
    made = catalog.create_table("db.boxes", Schema(NestedField(1, "id", IntegerType()), NestedField(2, "box", box)))
    append(
        made, [{"id": 0, "box": {"x": 1, "y": "a"}}, {"id": 1, "box": None}, {"id": 2, "box": {"x": None, "y": "b"}}]
    )
    kind = pa.struct([pa.field("x", pa.int64(), metadata={"PARQUET:field_id": "3"})])
    keys = pa.table({"box": pa.array([{"x": None}, {"x": 5}], kind)})
    commit_deletes(made, delete_file(made, keys, [2]), [3])
    assert ids(made, columns=["id", "box.y"]) == [0]
    delete_equal(made, pa.table({"box": pa.array([{"x": 1}], kind)}), [2])  # it names the struct
    with pytest.raises(TableSnapshotError, match="they compare column 'box', which is nested"):
        list(Dataset.from_iceberg(made))


# -- types


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (LongType(), [-(2**63), 2**63 - 1, 0]),
        (FloatType(), [NAN, 0.0, -0.0, 1.5, math.inf]),
        (DoubleType(), [NAN, 0.0, -0.0, 0.1, -math.inf]),
        (BooleanType(), [True, False]),
        (DecimalType(9, 2), [Decimal("1.25"), Decimal("-1.25")]),
        (DecimalType(38, 0), [Decimal(10**37), Decimal(-1)]),
        (BinaryType(), [b"", b"\x00", b"\x00\x00"]),
        (FixedType(2), [b"ab", b"ba"]),
        (StringType(), ["", "a", "a\0", "ä"]),
        (DateType(), [0, -1]),
        (TimestamptzType(), [0, 10**15]),
        (UUIDType(), [UUID(int=1).bytes, UUID(int=2).bytes]),
    ],
    ids=str,
)
def test_values_of_all_types_are_compared_exactly(catalog: Any, kind: Any, values: list[Any]) -> None:
    schema = Schema(NestedField(1, "id", IntegerType()), NestedField(2, "v", kind))
    made = catalog.create_table("db.typed", schema)
    stored = [*values, None]
    arrow = made.schema().as_arrow()
    column = pa.array(stored, arrow.field("v").type)
    made.append(pa.table([pa.array(range(len(stored)), pa.int32()), column], schema=arrow))
    for number in range(len(stored)):
        delete_equal(made, pa.table({"v": column.slice(number, 1)}), [2])
        assert ids(made, columns=["id"]) == list(range(number + 1, len(stored)))


def test_numbers_of_a_float_column_equal_those_of_its_double_column(catalog: Any) -> None:
    schema = Schema(NestedField(1, "id", IntegerType()), NestedField(2, "v", FloatType()))
    made = catalog.create_table("db.promoted", schema)
    append(made, [{"id": 0, "v": 0.1}, {"id": 1, "v": 0.5}, {"id": 2, "v": NAN}])
    delete_equal(made, pa.table({"v": pa.array([NAN], pa.float32())}), [2])
    with made.update_schema() as update:
        update.update_column("v", DoubleType())
    delete_equal(made, pa.table({"v": [0.1, 0.5]}), [2])
    assert ids(made) == [0]


def test_positions_and_keys_delete_together(table: Any) -> None:
    (first, *_) = [task.file.file_path for task in table.scan(row_filter="id == 0").plan_files()]
    path = f"{table.metadata.location}/positions.parquet"
    parquet.write_table(pa.table({"file_path": [first, first], "pos": [0, 3]}), path.removeprefix("file://"))
    commit_deletes(table, path, None, content=POSITION)
    delete_equal(table, ints(3, 7), [1])
    assert ids(table) == [None, 1, 2, 4, 4, 5, 6]
