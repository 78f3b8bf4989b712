"""Arrow IPC files written by other libraries are read to equal values (``tests/data/make_arrow.py``)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from table_bytes import plain_rows, rows_of

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


def test_there_are_files_of_each_library() -> None:
    assert {"pyarrow", "polars", "pandas"} <= {name.partition("_")[0].partition(".")[0] for name in FILES}
