"""Arrow IPC files written by other libraries are read to equal values (``tests/data/make_arrow.py``)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import feather
from table_bytes import plain_rows, rows_of

from aiostream_data import ArrowTypeError, Dataset
from aiostream_data.formats.arrow_files import ArrowFormat

FOLDER = Path(__file__).parents[2] / "data" / "arrow"
FILES = sorted(path.name for path in FOLDER.glob("*.arrow"))
EXPECTED = json.loads((FOLDER / "expected.json").read_text())


@pytest.mark.parametrize("name", FILES)
def test_rows_are_those_that_the_library_wrote(name: str) -> None:
    data = (FOLDER / name).read_bytes()
    assert plain_rows(rows_of(ArrowFormat(), data)) == EXPECTED
    assert plain_rows(rows_of(ArrowFormat(), data, 7)) == EXPECTED[7:]
    some = [{"c": row["c"], "p": {"y": row["p"]["y"]}} for row in EXPECTED]
    assert plain_rows(rows_of(ArrowFormat(columns=("c", "p.y")), data)) == some


EMPTY = pa.struct([])


@pytest.mark.parametrize("kind", [EMPTY, pa.struct([("x", EMPTY)])])
def test_columns_without_any_value_are_refused_alone_and_read_beside_others(kind: Any, tmp_path: Path) -> None:
    table = pa.table({"empty": pa.array([{}, {}], kind), "n": [1, 2]})
    feather.write_feather(table.select(["empty"]), str(tmp_path / "a.arrow"))
    feather.write_feather(table, str(tmp_path / "b.arrow"))
    with pytest.raises(ArrowTypeError, match="'empty': the column is a struct without fields"):
        list(Dataset.from_arrow(tmp_path / "a.arrow").batch(2))
    with pytest.raises(ArrowTypeError, match="'empty': the column is a struct without fields"):
        list(Dataset.from_arrow(tmp_path / "b.arrow", columns=["empty"]))
    assert list(Dataset.from_arrow(tmp_path / "b.arrow"))[1]["n"] == 2


def test_there_are_files_of_each_library() -> None:
    assert {"pyarrow", "polars", "pandas"} <= {name.partition("_")[0].partition(".")[0] for name in FILES}
