"""Fuzz the reader of Parquet files: hostile files give the rows that PyArrow reads or a typed error, in bounded memory.

Most mutations change single fields of the footer or of a page header, and write the file so that all other fields fit.

If atheris is installed, it chooses inputs by the code that they reach::

    python tests/fuzz/fuzz_parquet.py corpus/

Without atheris, a loop makes random mutations from a seed::

    python tests/fuzz/fuzz_parquet.py --runs 100000 --seed 1
"""

from __future__ import annotations

import io
import random
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from fuzzing import Target, run_target
from pyarrow import parquet

sys.path.append(str(Path(__file__).parents[1] / "fakes"))
from parquet_bytes import with_changed_metadata
from table_bytes import plain_rows, rows_of

from aiostream_data.errors import AiostreamError
from aiostream_data.formats.arrow_rows import table_rows
from aiostream_data.formats.parquet import ParquetFormat
from aiostream_data.formats.row_groups import TableFormat
from aiostream_data.formats.snapshot_files import SnapshotFormat
from aiostream_data.rows.columns import column_elements

LIMIT = 1 << 24
MOST_ROWS = 2_000
POOL = pa.proxy_memory_pool(pa.default_memory_pool())
"""Memory pool of PyArrow that counts. It lives as long as the process, because arrays refer to it."""

ROWS = 12
TABLE = pa.table(
    {
        "n": pa.array(range(ROWS), pa.int32()),
        "text": [None if n % 5 == 3 else f"text {n}" for n in range(ROWS)],
        "words": pa.array([["a", "b"][n % 2] for n in range(ROWS)]).dictionary_encode(),
        "values": [list(range(n % 4)) for n in range(ROWS)],
        "box": [{"x": n / 2, "y": None if n % 3 else n} for n in range(ROWS)],
        "day": pa.array([1, 2, None] * (ROWS // 3), pa.date32()),
        "flag": [n % 2 == 0 for n in range(ROWS)],
        "fixed": pa.array([b"abcd"] * ROWS, pa.binary(4)),
        "turns": [[{"who": f"user {n}", "said": ["a", None] * turn} for turn in range(n % 3)] for n in range(ROWS)],
        "price": pa.array(range(ROWS)).cast(pa.decimal128(21, 2)),
        "counts": pa.array([[("a", n)] * (n % 2) for n in range(ROWS)], pa.map_(pa.string(), pa.int8())),
    }
)
FORMATS: tuple[TableFormat, ...] = (
    ParquetFormat(),
    ParquetFormat(columns=("words", "box.x", "turns.list.element.who")),
    ParquetFormat(columns=("text",), filters=((("n", ">=", 5), ("flag", "==", True)),)),
    SnapshotFormat(
        table="delta",
        version="version 1 of memory",
        schema=pa.schema([pa.field("n", pa.int64()), pa.field("text", pa.string())]).serialize().to_pybytes(),
        columns=("text", "n"),
        deleted=np.array([1, 7]).tobytes(),
    ),
)


def check(data: bytes) -> None:
    """Read ``data`` in one of several formats. Its first bytes choose the format and the first row."""
    if len(data) < 2:
        return
    format, first, file = FORMATS[data[0] % len(FORMATS)], data[1] % 4, data[2:]
    before = pa.default_memory_pool()
    pa.set_memory_pool(POOL)
    try:
        found = plain_rows(islice(rows_of(format, file, first, LIMIT), MOST_ROWS))
        if format == FORMATS[0] and len(found) < MOST_ROWS:
            _check_rows(found, first, file)
    except AiostreamError:
        pass
    finally:
        pa.set_memory_pool(before)
    most = POOL.max_memory()
    assert most is None or most <= 2 * LIMIT, f"PyArrow has allocated {most} bytes"


def _check_rows(found: list[Any], first: int, file: bytes) -> None:
    """Compare the rows with those that PyArrow reads from each row group."""
    expected: list[Any] = []
    try:
        source = parquet.ParquetFile(io.BytesIO(file))
        groups = [source.read_row_group(number, use_threads=False) for number in range(source.num_row_groups)]
    except (pa.ArrowException, OSError):
        return
    for table in groups:
        for part in table_rows(table, np.arange(len(table))):
            expected += part.structure.rows([column_elements(leaf) for leaf in part.leaves])
    assert repr(found) == repr(plain_rows(expected[first:]))


def seeds() -> list[bytes]:
    """Return valid files, with the bytes in front that select the format."""
    files = [_file(compression=each) for each in ("none", "snappy", "zstd", "gzip", "lz4", "brotli")]
    files.append(_file(compression="none", data_page_version="2.0", data_page_size=1, write_statistics=False))
    files.append(_file(compression="zstd", data_page_version="2.0", write_page_index=True, write_page_checksum=True))
    files.append(_file(compression="none", use_dictionary=False, store_schema=False))
    encodings = {"n": "DELTA_BINARY_PACKED", "text": "DELTA_BYTE_ARRAY", "box.x": "BYTE_STREAM_SPLIT", "flag": "RLE"}
    files.append(_file(compression="none", use_dictionary=False, column_encoding=encodings))
    return [bytes([number % len(FORMATS), 0]) + data for number, data in enumerate([*files[:1] * 4, *files])]


def _file(**options: Any) -> bytes:
    made = io.BytesIO()
    parquet.write_table(TABLE, made, row_group_size=5, **options)
    return made.getvalue()


def mutate(data: bytes, source: random.Random) -> bytes:
    """Return ``data`` with a few fields of its metadata changed, or a few bytes."""
    head, file = bytearray(data[:2].ljust(2, b"\0")), data[2:]
    if source.random() < 0.1:
        head[source.randrange(2)] = source.randrange(256)
    for _ in range(source.randint(1, 3)):
        file = with_changed_metadata(file, source) if source.random() < 0.7 else _with_changed_bytes(file, source)
    return bytes(head) + file


def _with_changed_bytes(file: bytes, source: random.Random) -> bytes:
    body = bytearray(file)
    at = source.randrange(max(1, len(body)))
    size = source.choice((1, 1, 1, 4, 8))
    if source.random() < 0.1:
        del body[at : at + size]
    else:
        body[at : at + size] = source.choice((b"\xff" * size, bytes(size), source.randbytes(size)))[: len(body) - at]
    return bytes(body)


def main(arguments: Sequence[str]) -> None:
    """Run the fuzzer with arguments of the command line."""
    run_target(Target(__doc__, check, seeds, mutate), arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
