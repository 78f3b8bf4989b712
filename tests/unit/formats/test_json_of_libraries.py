"""JSON lines files written by other libraries are read to equal values (``tests/data/make_jsonl.py``)."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aiostream_data import Dataset, VarLen

FOLDER = Path(__file__).parents[2] / "data" / "jsonl"
FILES = sorted(path.name for path in FOLDER.iterdir() if ".jsonl" in path.name)
EXPECTED = json.loads((FOLDER / "expected.json").read_text())
SCHEMA = {
    "i": np.int64,
    "f": np.float64,
    "b": np.bool_,
    "s": str,
    "v": VarLen(np.int64),
    "o": {"x": np.float64, "t": str},
}


def assert_equal(found: list[dict[str, Any]], name: str) -> None:
    for row, expected in zip(found, EXPECTED, strict=True):
        if "pandas" in name and row["f"] is not None:  # pandas writes 15 digits
            assert math.isclose(row["f"], expected["f"], rel_tol=1e-14)
            row = {**row, "f": expected["f"]}
        assert row == expected


@pytest.mark.parametrize("name", FILES)
def test_values_are_those_that_the_library_wrote(name: str) -> None:
    assert_equal(list(Dataset.from_jsonl(FOLDER / name)), name)


@pytest.mark.parametrize("name", FILES)
def test_columns_are_those_that_the_library_wrote(name: str) -> None:
    rows = [
        {
            **row,
            "v": None if row["v"] is None else row["v"].tolist(),
            "o": None if row["o"] == {"x": None, "t": None} else row["o"],
        }
        for row in Dataset.from_jsonl(FOLDER / name, SCHEMA)
    ]
    assert_equal(rows, name)


def test_there_are_files_of_each_library() -> None:
    assert {"json", "polars", "pandas", "duckdb", "msgspec"} <= {
        name.partition("_")[0].partition(".")[0] for name in FILES
    }
