"""Write the CSV files of other libraries: the same rows in the dialects of each, and the rows as JSON.

Only needed to make them anew, with ``pip install pyarrow polars pandas``; libraries that are missing are left out::

    python tests/data/make_csv.py

``csv/*.csv`` hold the rows. ``csv/expected.json`` holds the values; a missing value is null.
"""

from __future__ import annotations

import csv
import importlib
import importlib.util
import io
import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "csv"
ROWS: list[dict[str, Any]] = [
    {"i": 1, "f": 0.1, "b": True, "s": "plain"},
    {"i": -(2**63), "f": -1.7976931348623157e308, "b": False, "s": 'quotes "inside", commas'},
    {"i": 2**63 - 1, "f": 5e-324, "b": None, "s": "two\nlines"},
    {"i": None, "f": 1e22, "b": True, "s": "ümlaut 漢字 🙂"},
    {"i": 0, "f": None, "b": False, "s": " spaces "},
    {"i": 42, "f": 123456.789, "b": True, "s": None},
    {"i": 7, "f": -0.0, "b": True, "s": "a\ttab; semicolon"},
]
COLUMNS = {name: [row[name] for row in ROWS] for name in ROWS[0]}


def by_csv(**dialect: Any) -> bytes:
    made = io.StringIO(newline="")
    writer = csv.DictWriter(made, list(ROWS[0]), **dialect)
    writer.writeheader()
    writer.writerows(ROWS)
    return made.getvalue().encode()


def by_pyarrow(quoting: str) -> bytes:
    pa, pc = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.csv")
    sink = pa.BufferOutputStream()
    pc.write_csv(pa.table(COLUMNS), sink, pc.WriteOptions(quoting_style=quoting))
    made: bytes = sink.getvalue().to_pybytes()
    return made


def by_polars(**options: Any) -> bytes:
    made: str = importlib.import_module("polars").DataFrame(COLUMNS).write_csv(**options)
    return made.encode()


def by_pandas(**options: Any) -> bytes:
    pd = importlib.import_module("pandas")
    types = {"i": "Int64", "f": "Float64", "b": "boolean", "s": "string"}
    made: str = pd.DataFrame({name: pd.array(COLUMNS[name], dtype=kind) for name, kind in types.items()}).to_csv(
        index=False, **options
    )
    return made.encode()


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    made = {
        "csv_excel.csv": by_csv(),
        "csv_unix.csv": by_csv(dialect="unix", quoting=csv.QUOTE_MINIMAL),
        "csv_tabs.tsv": by_csv(delimiter="\t"),
        "csv_semicolons_mark.csv": b"\xef\xbb\xbf" + by_csv(delimiter=";"),
    }
    if importlib.util.find_spec("pyarrow"):
        made |= {"pyarrow_needed.csv": by_pyarrow("needed"), "pyarrow_all.csv": by_pyarrow("all_valid")}
    if importlib.util.find_spec("polars"):
        made |= {"polars.csv": by_polars(), "polars_mark.csv": by_polars(include_bom=True, quote_style="non_numeric")}
        made |= {"polars_null.csv": by_polars(quote_style="necessary", line_terminator="\r\n", null_value="NULL")}
    if importlib.util.find_spec("pandas"):
        made |= {"pandas.csv": by_pandas(), "pandas_na.csv": by_pandas(na_rep="NULL")}
    for name, content in made.items():
        (FOLDER / name).write_bytes(content)
    (FOLDER / "expected.json").write_text(json.dumps(ROWS, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
