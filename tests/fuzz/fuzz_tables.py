"""Fuzz the readers of Arrow, NumPy and token files: hostile files give rows or a typed error, in bounded memory.

If atheris is installed, it chooses inputs by the code that they reach::

    python tests/fuzz/fuzz_tables.py corpus/

Without atheris, a loop makes random mutations from a seed::

    python tests/fuzz/fuzz_tables.py --runs 100000 --seed 1
"""

from __future__ import annotations

import io
import random
import sys
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain, repeat
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from fuzzing import Target, run_target

sys.path.append(str(Path(__file__).parents[1] / "fakes"))
from table_bytes import rows_of

from aiostream_data.errors import AiostreamError
from aiostream_data.formats import arrow_directory
from aiostream_data.formats.arrow_files import ArrowFormat
from aiostream_data.formats.npy import NpyFormat
from aiostream_data.formats.row_groups import TableFormat
from aiostream_data.formats.tokens import TokensFormat

LIMIT = 1 << 24
MOST_ROWS = 10_000
FORMATS: tuple[TableFormat, ...] = (
    ArrowFormat(),
    ArrowFormat(columns=("words", "values")),
    NpyFormat(),
    NpyFormat(fields=("n",)),
    TokensFormat(length=3, stride=2, dtype="<u2"),
)
HOSTILE = (b"\xff" * 8, bytes(8), b"\xff" * 7 + b"\x7f", b"\xff\xff\xff\x7f", (1 << 33).to_bytes(8, "little"))


def check(data: bytes) -> None:
    """Read ``data`` in one of several formats.

    Its first bytes say which, from which row, and whether record batches behind the first are read together.
    """
    if len(data) < 2:
        return
    later = 1 << (data[1] // 4 % 2 * 20)
    with (
        patch.object(arrow_directory, "joined_sizes", lambda: chain([1], repeat(later))),
        suppress(AiostreamError),
    ):
        for number, _ in enumerate(rows_of(FORMATS[data[0] % len(FORMATS)], data[2:], data[1] % 4, LIMIT)):
            if number > MOST_ROWS:
                break


def seeds() -> list[bytes]:
    """Return valid files of each format, with the bytes in front that select the format."""
    rows = 12
    table = pa.table(
        {
            "n": pa.array(range(rows), pa.int32()),
            "text": [None if n % 5 == 3 else f"text {n}" for n in range(rows)],
            "words": pa.array([["a", "b"][n % 2] for n in range(rows)]).dictionary_encode(),
            "values": [list(range(n % 4)) for n in range(rows)],
            "box": [{"x": n / 2, "y": None if n % 3 else n} for n in range(rows)],
            "view": pa.array([f"long text number {n}" for n in range(rows)], pa.string_view()),
            "pair": pa.array([[n, n + 1] for n in range(rows)], pa.list_(pa.float32(), 2)),
            "nothing": pa.nulls(rows),
            "fixed": pa.array([b"abcd"] * rows, pa.binary(4)),
            "day": pa.array([1, 2, None] * (rows // 3), pa.date32()),
            "turns": [[{"who": f"user {n}", "said": ["a", None] * turn} for turn in range(n % 3)] for n in range(rows)],
            "price": pa.array(range(rows)).cast(pa.decimal128(21, 2)),
            "counts": pa.array([[("a", n)] * (n % 2) for n in range(rows)], pa.map_(pa.string(), pa.int8())),
            "shared": pa.array([[["a"]], [["b"], None], []] * (rows // 3), pa.list_view(pa.list_(pa.string()))),
            "spans": pa.array([[1], [2, 3], []] * (rows // 3), pa.list_view(pa.int64())),
        }
    )
    found: list[bytes] = []
    nested = table.select(["turns", "price", "counts", "shared"])
    plain = table.drop_columns(["words", "view"])  # its batches behind the first are read without PyArrow
    selected = table.select(["words", "values", "view"])
    simple = table.select(["n", "values", "pair"]).append_column("text", [[f"text {n}" for n in range(rows)]])
    tables = [(table, (0, 1)), (selected, (0, 1)), (nested, (0,)), *[(some, (0,)) for some in [plain, simple] * 2]]
    for some, formats in tables:
        for kind in (pa.ipc.new_file, pa.ipc.new_stream):
            for compression in (None, "lz4", "zstd"):
                made = io.BytesIO()
                options = pa.ipc.IpcWriteOptions(compression=compression)
                with kind(made, some.schema, options=options) as writer:
                    writer.write_table(some, max_chunksize=5)
                later = 4 if some is simple else 4 * (len(found) % 2)  # the later batches together
                found += [bytes([which, later]) + made.getvalue() for which in formats]
    records = np.array(
        [(n, f"t{n}", b"b", [n, n]) for n in range(5)], [("n", "<i2"), ("t", "U3"), ("b", "S2"), ("p", ">f8", 2)]
    )
    for save, values in ((np.save, (records,)), (np.save, (np.asfortranarray(np.ones((4, 3))),))):
        found.append(bytes([2 + (values[0] is records), 1]) + _saved(save, *values))
    found += [b"\4\1" + tokens for tokens in (bytes(40), _saved(np.save, np.arange(9, dtype=">u4")))]
    for save in (np.savez, np.savez_compressed):
        found.append(bytes([2, 1]) + _saved(save, n=np.arange(5), x=np.ones((5, 2)), r=records))
    return found


def _saved(save: Any, *arrays: Any, **named: Any) -> bytes:
    made = io.BytesIO()
    save(made, *arrays, **named)
    return made.getvalue()


def mutate(data: bytes, source: random.Random) -> bytes:
    """Return ``data`` with a few bytes flipped, replaced by hostile numbers, dropped or cut off."""
    body = bytearray(data)
    for _ in range(source.randint(1, 4)):
        at = source.randrange(2, len(body)) if len(body) > 2 else 0
        change = source.randrange(8)
        if change < 3:
            body[at : at + 1] = bytes([source.randrange(256)])
        elif change < 6:
            number = source.choice(HOSTILE)[: len(body) - at]
            body[at : at + len(number)] = number
        elif change == 6:
            del body[at : at + source.choice((1, 4, 8))]
        elif source.random() < 0.3:
            del body[at:]
    return bytes(body)


def main(arguments: Sequence[str]) -> None:
    """Run the fuzzer with arguments of the command line."""
    run_target(Target(__doc__, check, seeds, mutate), arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
