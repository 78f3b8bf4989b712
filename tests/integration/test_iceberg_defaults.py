"""``Dataset.from_iceberg``: columns of format version 3 that have default values in older files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from aiostream_data import Dataset
from aiostream_data.errors import TableSnapshotError
from aiostream_data.testing.resume import resumes_everywhere

pytest.importorskip("pyiceberg")

from equality_deletes import append, delete_equal, lake
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable
from pyiceberg.types import LongType, NestedField, StructType

BOX = StructType(NestedField(3, "x", LongType()))


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Any]:
    with lake(tmp_path) as catalog:
        made = catalog.create_table("db.old", Schema(NestedField(1, "id", LongType()), NestedField(2, "box", BOX)))
        append(made, [{"id": 1, "box": {"x": 1}}, {"id": 2, "box": None}])
        yield made


def with_columns(table: Any, *columns: tuple[str, Any, Any], inner: tuple[str, Any, Any] | None = None) -> Any:
    """Return the table with more columns, each with its name, type and default. pyiceberg writes no version 3."""
    path = Path(table.metadata_location.removeprefix("file://"))
    metadata = json.loads(path.read_text())
    fields = metadata["schemas"][0]["fields"]
    places = [*((each, fields) for each in columns), *([(inner, fields[1]["type"]["fields"])] if inner else [])]
    for number, ((name, kind, value), place) in enumerate(places, 10):
        place.append({"id": number, "name": name, "type": kind, "required": True, "initial-default": value})
    metadata |= {"format-version": 3, "next-row-id": 10, "last-column-id": 10 + len(places)}
    (path.parent / "3.metadata.json").write_text(json.dumps(metadata))
    return StaticTable.from_metadata(f"file://{path.parent}/3.metadata.json")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("string", "text"),
        ("int", 7),
        ("long", -(2**63)),
        ("float", 0.5),
        ("double", 0.1),
        ("boolean", False),
        ("date", "2024-01-02"),
        ("timestamp", "2024-01-02T03:04:05.000006"),
        ("timestamptz", "2024-01-02T03:04:05.000006+00:00"),
        ("binary", "00ff"),
        ("fixed[2]", "00ff"),
        ("uuid", "00000000-0000-0000-0000-000000000005"),
    ],
)
def test_older_files_have_the_default_as_if_it_was_written(table: Any, kind: str, value: Any) -> None:
    changed = with_columns(table, ("v", kind, value))
    (default, *_) = found = [row["v"] for row in Dataset.from_iceberg(changed)]
    (expected, *_) = changed.scan().to_arrow()["v"].cast(changed.schema().as_arrow().field("v").type)
    assert found[1] == default
    plain = default.item() if hasattr(default, "item") else default
    if kind == "timestamptz":
        plain = plain.replace(tzinfo=expected.as_py().tzinfo)
    assert plain == (expected.as_py().bytes if kind == "uuid" else expected.as_py())


def test_defaults_of_fields_of_structs_and_filters_on_defaults(table: Any) -> None:
    changed = with_columns(table, ("text", "string", "long " * 100), ("part", "int", 5), inner=("y", "double", 0.5))
    rows = list(Dataset.from_iceberg(changed, columns=["id", "box"]))
    assert rows[0] == {"id": 1, "box": {"x": 1, "y": 0.5}}
    assert rows[1]["box"]["y"] is None
    assert rows == changed.scan().to_arrow().select(["id", "box"]).to_pylist()[:1] + rows[1:]
    assert len(list(Dataset.from_iceberg(changed, columns=["text"], filters=[("part", ">", 4)]))) == 2
    assert list(Dataset.from_iceberg(changed, filters=[("part", ">", 5)])) == []
    resumes_everywhere(Dataset.from_iceberg(changed, columns=["part", "text"]))


def test_defaults_equal_the_keys_of_equality_deletes(table: Any) -> None:
    delete_equal(table, pa.table({"id": [2], "v": ["other"]}), [1, 10])
    delete_equal(table, pa.table({"id": [1], "v": ["text"]}), [1, 10])
    assert [row["id"] for row in Dataset.from_iceberg(with_columns(table, ("v", "string", "text")))] == [2]


def test_a_default_that_is_no_value_of_its_column_is_an_error(table: Any) -> None:
    changed = with_columns(table, ("v", "int", 2**40))
    with pytest.raises(TableSnapshotError, match="the default of column 'v' is no int32") as raised:
        list(Dataset.from_iceberg(changed))
    assert raised.value.feature == "default values"
