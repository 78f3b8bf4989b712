"""Write the JSON lines files of other libraries: the same rows as each writes them, and the rows as JSON.

Only needed to make them anew, with ``pip install polars pandas duckdb msgspec``; libraries that are missing are left
out::

    python tests/data/make_jsonl.py

``jsonl/*.jsonl`` hold the rows. ``jsonl/expected.json`` holds the values; a missing value is null.
"""

from __future__ import annotations

import gzip
import importlib
import importlib.util
import json
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "jsonl"
ROWS: list[dict[str, Any]] = [
    {"i": 1, "f": 0.1, "b": True, "s": "plain", "v": [1, 2, 3], "o": {"x": 1.5, "t": "a"}},
    {"i": -(2**63), "f": -1.7976931348623e300, "b": False, "s": 'quotes "inside", \\ /', "v": [], "o": None},
    {"i": 2**63 - 1, "f": 5e-324, "b": None, "s": "two\nlines\t\b\f\r\u0001", "v": [-1], "o": {"x": 2.0, "t": ""}},
    {"i": None, "f": 1e22, "b": True, "s": "ümlaut 漢字 🙂", "v": None, "o": {"x": None, "t": "é"}},
    {"i": 0, "f": None, "b": False, "s": " spaces ", "v": [2**31, 0], "o": {"x": -0.25, "t": None}},
    {"i": 42, "f": 123456.789, "b": True, "s": None, "v": [7], "o": {"x": 0.5, "t": "</script>"}},
]


def by_json(**options: Any) -> bytes:
    return "".join(json.dumps(row, **options) + "\n" for row in ROWS).encode()


def by_polars() -> bytes:
    made: str = importlib.import_module("polars").DataFrame(ROWS).write_ndjson()
    return made.encode()


def by_pandas(**options: Any) -> bytes:
    pd = importlib.import_module("pandas")
    frame = pd.DataFrame({name: pd.Series([row[name] for row in ROWS], dtype=object) for name in ROWS[0]})
    made: str = frame.to_json(orient="records", lines=True, double_precision=15, **options)
    return made.encode()


def by_duckdb() -> bytes:
    pl, duckdb = importlib.import_module("polars"), importlib.import_module("duckdb")
    rows = pl.DataFrame(ROWS)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.jsonl"
        with duckdb.connect() as connection:
            connection.register("rows", rows.to_arrow())
            connection.execute(f"COPY (SELECT * FROM rows) TO '{path}' (FORMAT json)")
        return path.read_bytes()


def by_msgspec() -> bytes:
    made: bytes = importlib.import_module("msgspec").json.Encoder().encode_lines(ROWS)
    return made


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    made = {
        "json.jsonl": by_json(),
        "json_compact.jsonl": by_json(separators=(",", ":"), ensure_ascii=False),
        "json_sorted_mark.jsonl": b"\xef\xbb\xbf" + by_json(sort_keys=True).replace(b"\n", b"\r\n"),
        "json_gzip.jsonl.gz": gzip.compress(by_json(), mtime=0),
    }
    if importlib.util.find_spec("polars"):
        made["polars.jsonl"] = by_polars()
        if importlib.util.find_spec("duckdb"):
            made["duckdb.jsonl"] = by_duckdb()
    if importlib.util.find_spec("pandas"):
        made |= {"pandas.jsonl": by_pandas(), "pandas_utf8.jsonl": by_pandas(force_ascii=False)}
    if importlib.util.find_spec("msgspec"):
        made["msgspec.jsonl"] = by_msgspec()
    for name, content in made.items():
        (FOLDER / name).write_bytes(content)
    (FOLDER / "expected.json").write_text(json.dumps(ROWS, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
