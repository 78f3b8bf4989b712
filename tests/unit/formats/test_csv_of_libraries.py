"""CSV files written by other libraries are read to equal values (``tests/data/make_csv.py``)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aiostream_data import Dataset

FOLDER = Path(__file__).parents[2] / "data" / "csv"
FILES = sorted(path.name for path in FOLDER.iterdir() if path.suffix in (".csv", ".tsv"))
EXPECTED = json.loads((FOLDER / "expected.json").read_text())
SCHEMA = {"i": np.int64, "f": np.float64, "b": np.bool_, "s": str}


def options_of(name: str) -> dict[str, Any]:
    delimiter = "\t" if "tabs" in name else ";" if "semicolons" in name else ","
    return {"delimiter": delimiter, "na_values": ["", "NULL"]}


@pytest.mark.parametrize("name", FILES)
def test_rows_are_those_that_the_library_wrote(name: str) -> None:
    assert list(Dataset.from_csv(FOLDER / name, SCHEMA, **options_of(name))) == EXPECTED


@pytest.mark.parametrize("name", FILES)
def test_inferred_types_are_those_that_the_library_wrote(name: str) -> None:
    assert list(Dataset.from_csv(FOLDER / name, **options_of(name))) == EXPECTED


def test_there_are_files_of_each_library() -> None:
    assert {"csv", "pyarrow", "polars"} <= {name.partition("_")[0].partition(".")[0] for name in FILES}
