"""Delta and Iceberg tables with structs in lists and maps: their fields are found as those of other structs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import delta_logs as logs
import pyarrow as pa
import pytest

from aiostream_data import Dataset
from aiostream_data.errors import TableSchemaError
from aiostream_data.testing.resume import resumes_everywhere

BOX = pa.struct([("y", pa.int32()), ("x", pa.int32())])
IDS = (10, 20, 30)
"""Field ids of ``y`` in the boxes of the columns."""

BOXES = [{"y": 1, "x": 2}, None, {"y": 3, "x": None}]
NESTED = pa.table(
    {
        "list": pa.array([BOXES, None, [], BOXES[2:]], pa.list_(BOX)),
        "map": pa.array([[("a", BOXES[0])], [], None, [("b", None), ("c", BOXES[2])]], pa.map_(pa.string(), BOX)),
        "deep": pa.array([[BOXES], [None, []], None, [BOXES[:1], BOXES[1:]]], pa.list_(pa.list_(BOX))),
    }
)


def plain(value: Any) -> Any:
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return {key: plain(inner) for key, inner in value}
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    return value


def changed(value: Any, change: Any) -> Any:
    """Return a plain value whose boxes are changed."""
    if isinstance(value, dict) and "y" in value:
        return change(value)
    if isinstance(value, dict):
        return {key: changed(inner, change) for key, inner in value.items()}
    return [changed(each, change) for each in value] if isinstance(value, list) else value


def expected(change: Any) -> list[Any]:
    rows = [{name: plain(value) for name, value in row.items()} for row in NESTED.to_pylist()]
    rows[1]["map"] = {}
    return [{name: changed(value, change) for name, value in row.items()} for row in rows]


@pytest.fixture
def deltalake() -> Any:
    return pytest.importorskip("deltalake")


def test_maps_that_deltalake_wrote_are_read(deltalake: Any, tmp_path: Path) -> None:
    numbers = pa.array([[("one", 1), ("none", None)], None, []], pa.map_(pa.string(), pa.int64()))
    deltalake.write_deltalake(tmp_path, pa.table({"numbers": numbers}))
    dataset = Dataset.from_delta(tmp_path)
    assert [row["numbers"] for row in dataset] == [{"one": 1, "none": None}, None, {}]
    resumes_everywhere(dataset)


def test_a_field_that_older_files_lack_is_none_in_lists_and_maps(tmp_path: Path) -> None:
    pytest.importorskip("deltalake")
    box = logs.struct_of(logs.field("x", "long"), logs.field("y", "long"), logs.field("new", "string"))
    log_of(tmp_path, dict.fromkeys(NESTED.column_names, box), NESTED, features=["typeWidening"])
    assert list(Dataset.from_delta(tmp_path)) == expected(lambda box: {"x": box["x"], "y": box["y"], "new": None})
    resumes_everywhere(Dataset.from_delta(tmp_path))


@pytest.mark.parametrize("mode", ["name", "id"])
def test_mapped_fields_are_found_in_lists_and_maps(tmp_path: Path, mode: str) -> None:
    pytest.importorskip("deltalake")
    columns = ("list", "map", "deep")
    fields = [[logs.field("width", "integer", "y", at), logs.field("later", "long", "z", at + 1)] for at in IDS]
    boxes = dict(zip(columns, (logs.struct_of(*each) for each in fields), strict=True))
    x, y = pa.field("x", pa.int32()), pa.field("y", pa.int32())
    inner = [pa.struct([x.with_metadata(number(99)), y.with_metadata(number(at))]) for at in IDS]
    kinds = [pa.list_(inner[0]), pa.map_(pa.string(), inner[1]), pa.list_(pa.list_(inner[2]))]
    schema = pa.schema(
        [
            pa.field(name, kind, metadata=number(at))
            for at, (name, kind) in enumerate(zip(columns, kinds, strict=True), 1)
        ]
    )
    rows = pa.table([pa.array(NESTED[each.name].to_pylist(), each.type) for each in schema], schema=schema)
    configuration = {"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "40"}
    log_of(tmp_path, boxes, rows, features=["columnMapping"], configuration=configuration)
    assert list(Dataset.from_delta(tmp_path)) == expected(lambda box: {"width": box["y"], "later": None})


def test_values_of_maps_get_the_wider_type_of_the_table(tmp_path: Path) -> None:
    pytest.importorskip("deltalake")
    narrow = pa.table({"v": pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int16()))})
    kind = {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True}
    added = logs.add(tmp_path, "0.parquet", narrow)
    logs.write_log(tmp_path, logs.struct_of(logs.field("v", kind)), [added], features=["typeWidening"])
    assert [row["v"] for row in Dataset.from_delta(tmp_path)] == [{"a": 1}, None, {}]


def test_a_field_of_another_type_in_a_list_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("deltalake")
    box = logs.struct_of(logs.field("y", "string"))
    log_of(tmp_path, dict.fromkeys(NESTED.column_names, box), NESTED)
    with pytest.raises(TableSchemaError, match=r"0\.parquet: column 'list' is list<.*y: int32.* in the table"):
        list(Dataset.from_delta(tmp_path, columns=["list"]))


def test_iceberg_finds_fields_in_lists_and_maps_by_id(tmp_path: Path) -> None:
    pyiceberg = pytest.importorskip("pyiceberg.catalog")
    types = pytest.importorskip("pyiceberg.types")
    uri, warehouse = f"sqlite:///{tmp_path}/catalog.db", f"file://{tmp_path}/warehouse"
    (tmp_path / "warehouse").mkdir()
    catalog = pyiceberg.load_catalog("local", type="sql", uri=uri, warehouse=warehouse)
    catalog.create_namespace("db")
    table = catalog.create_table("db.boxes", NESTED.schema)
    table.append(NESTED)
    (written,) = Path(tmp_path / "warehouse").rglob("*.parquet")
    before = list(Dataset.from_parquet(written))  # pyiceberg may write empty lists for missing ones
    paths = ["list.element", "map.value", "deep.element.element"]
    with table.update_schema(allow_incompatible_changes=True) as update:
        for path in paths:
            update.delete_column(f"{path}.x")
            update.rename_column(f"{path}.y", "old")
            update.update_column(f"{path}.y", types.LongType())
    with table.update_schema() as update:
        for column in ("list", "map"):
            update.add_column((column, "x"), types.IntegerType())
    rows = list(Dataset.from_iceberg(table))
    for name in ("list", "map", "deep"):
        added = {} if name == "deep" else {"x": None}
        old = [changed(row[name], lambda box, added=added: {"old": box["y"], **added}) for row in before]
        assert [row[name] for row in rows] == old
    resumes_everywhere(Dataset.from_iceberg(table))
    catalog.close()


def number(value: int) -> dict[str, str]:
    return {"PARQUET:field_id": str(value)}


def log_of(folder: Path, boxes: dict[str, Any], rows: pa.Table, **options: Any) -> None:
    """Write a Delta table of one file with a list, a map, and a list of lists of these structs."""
    by_name = {"type": "map", "keyType": "string", "valueType": boxes["map"], "valueContainsNull": True}
    kinds = {"list": array_of(boxes["list"]), "map": by_name, "deep": array_of(array_of(boxes["deep"]))}
    fields = [logs.field(name, kind, name, at) for at, (name, kind) in enumerate(kinds.items(), 1)]
    logs.write_log(folder, logs.struct_of(*fields), [logs.add(folder, "0.parquet", rows)], **options)


def array_of(kind: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": kind, "containsNull": True}
