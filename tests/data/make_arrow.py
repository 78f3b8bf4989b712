"""Write the Arrow IPC files of other libraries: the same rows in the layouts of each, and the rows as JSON.

Only needed to make them anew, with ``pip install pyarrow polars pandas``::

    python tests/data/make_arrow.py

``arrow/*.arrow`` hold the rows. ``arrow/expected.json`` holds the values; a missing value is null.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
from pyarrow import feather

FOLDER = Path(__file__).parent / "arrow"
ROWS: list[dict[str, Any]] = [
    {
        "i": None if row == 3 else 2**62 - row,
        "f": None if row == 5 else row / 8,
        "b": row % 3 == 0,
        "s": None if row == 2 else f"row {row}, ümlaut 漢字" * (row % 2 + 1),
        "c": None if row == 6 else ["red", "green", "blue"][row % 3],
        "v": [row + part / 4 for part in range(row % 4)],
        "p": {"x": row, "y": None if row % 3 == 1 else f"y{row}"},
    }
    for row in range(11)
]


def table() -> pa.Table:
    made = pa.Table.from_pylist(ROWS)
    return made.set_column(4, "c", made["c"].dictionary_encode())


def by_pyarrow(kind: Any, compression: str | None = None, **options: Any) -> bytes:
    made = io.BytesIO()
    write = pa.ipc.IpcWriteOptions(compression=compression, **options)
    rows = table()
    with kind(made, rows.schema, options=write) as writer:
        writer.write_table(rows, max_chunksize=4)
    return made.getvalue()


def by_feather(**options: Any) -> bytes:
    made = io.BytesIO()
    feather.write_feather(table(), made, **options)
    return made.getvalue()


def by_polars(rows: pl.DataFrame, **options: Any) -> bytes:
    made = io.BytesIO()
    rows.write_ipc(made, **options)
    return made.getvalue()


def stream_of_polars(rows: pl.DataFrame) -> bytes:
    made = io.BytesIO()
    rows.write_ipc_stream(made)
    return made.getvalue()


def by_pandas() -> bytes:
    made = io.BytesIO()
    frame = pa.Table.from_pylist(ROWS).to_pandas(types_mapper=pd.ArrowDtype)
    frame.to_feather(made)
    return made.getvalue()


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    frame = pl.DataFrame(ROWS).with_columns(pl.col("c").cast(pl.Categorical))
    made = {
        "pyarrow_file.arrow": by_pyarrow(pa.ipc.new_file),
        "pyarrow_file_lz4.arrow": by_pyarrow(pa.ipc.new_file, "lz4"),
        "pyarrow_file_zstd.arrow": by_pyarrow(pa.ipc.new_file, "zstd"),
        "pyarrow_file_v4.arrow": by_pyarrow(pa.ipc.new_file, metadata_version=pa.ipc.MetadataVersion.V4),
        "pyarrow_stream.arrow": by_pyarrow(pa.ipc.new_stream),
        "pyarrow_stream_zstd.arrow": by_pyarrow(pa.ipc.new_stream, "zstd"),
        "pyarrow_feather.arrow": by_feather(),
        "pyarrow_feather_plain.arrow": by_feather(compression="uncompressed"),
        "polars.arrow": by_polars(frame),
        "polars_lz4.arrow": by_polars(frame, compression="lz4"),
        "polars_zstd.arrow": by_polars(frame, compression="zstd"),
        "polars_oldest.arrow": by_polars(frame, compat_level=pl.CompatLevel.oldest()),
        "polars_stream.arrow": stream_of_polars(frame),
        "pandas_feather.arrow": by_pandas(),
    }
    for name, content in made.items():
        (FOLDER / name).write_bytes(content)
    (FOLDER / "expected.json").write_text(json.dumps(ROWS, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
