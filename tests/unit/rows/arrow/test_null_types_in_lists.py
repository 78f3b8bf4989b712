"""Arrow arrays of the null type inside lists, structs, maps and dictionaries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aiostream_data import Dataset

NULL = pa.null()
TURN = pa.struct([("role", pa.string()), ("name", NULL)])
TURNS = [[{"role": "user", "name": None}], [], None, [None, {"role": None, "name": None}]]

ROWS: list[tuple[list[Any], pa.DataType]] = [
    (TURNS, pa.list_(TURN)),
    (TURNS, pa.large_list(TURN)),
    (TURNS, pa.list_view(TURN)),
    ([[TURNS[0]], [[], None], None], pa.list_(pa.list_(TURN))),
    ([[{"role": "user", "name": None}, None], None], pa.list_(TURN, 2)),
    ([[[None]], [[], None], None], pa.list_(pa.list_(NULL))),
    ([[("a", None)], [], None], pa.map_(pa.string(), NULL)),
]


def read(table: Any) -> list[Any]:
    return [row["a"] for row in Dataset.from_dataframe(table)]


@pytest.mark.parametrize(("rows", "kind"), ROWS, ids=lambda value: str(value) if isinstance(value, pa.DataType) else "")
def test_a_null_field_inside_a_list_is_none(rows: list[Any], kind: pa.DataType) -> None:
    expected = [dict(row) if row is not None and pa.types.is_map(kind) else row for row in rows]
    table = pa.table({"a": pa.array(rows, kind)})
    assert read(table) == expected
    assert read(table.slice(1)) == expected[1:]


def test_files_with_a_null_field_inside_a_list_are_read(tmp_path: Path) -> None:
    table = pa.table({"a": pa.array(TURNS, pa.list_(TURN))})
    pq.write_table(table, tmp_path / "n.parquet")
    with pa.ipc.new_file(str(tmp_path / "n.arrow"), table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    assert [row["a"] for row in Dataset.from_parquet(tmp_path / "n.parquet")] == TURNS
    assert [row["a"] for row in Dataset.from_arrow(tmp_path / "n.arrow")] == TURNS


def test_a_dictionary_of_the_null_type_inside_a_list_is_none() -> None:
    words = pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.int8()), pa.nulls(2))
    fields = pa.StructArray.from_arrays([words], ["x"])
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 3], pa.int32()), fields)
    assert read(pa.table({"a": lists})) == [[{"x": None}, {"x": None}], [{"x": None}]]


def test_polars_lists_with_a_null_field_are_read() -> None:
    pl = pytest.importorskip("polars")
    assert read(pl.DataFrame({"a": [[{"x": None, "y": 1}]]})) == [[{"x": None, "y": 1}]]
