"""Fuzz the CSV parser: hostile records give values or a CsvParseError, the same from the kernel and its twin.

If atheris is installed, it chooses inputs by the code that they reach::

    python tests/fuzz/fuzz_csv.py corpus/

Without atheris, a loop makes random mutations from a seed::

    python tests/fuzz/fuzz_csv.py --runs 100000 --seed 1
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from fuzzing import Target, run_target

from aiostream_data import _native
from aiostream_data._native import csv_rows_py

KINDS = (csv_rows_py.SKIPPED, csv_rows_py.TEXT, *csv_rows_py.KINDS.values())
MISSING: tuple[list[bytes], ...] = ([], [b""], [b"", b"NA", b"-"])
TEXT = b'1,"a ""b"" c",2.5e-3\n-7,,NA\n\n"8",x,-0.1234567890123456789012\r\n9223372036854775808,true,inf\n'


def check(data: bytes) -> None:
    """Parse ``data``, its first bytes say how; fail on a difference or a foreign exception."""
    if len(data) < 6:
        return
    kinds = [KINDS[byte % len(KINDS)] for byte in data[: 1 + data[4] % 4]]
    quote = -1 if data[5] % 4 == 0 else ord('"')
    stream = np.frombuffer(data[6:], np.uint8)
    found, expected = (
        kernel(stream, 0, len(stream), ord(","), quote, 7)
        for kernel in (_native.find_csv_records, csv_rows_py.find_csv_records)
    )
    assert [array.tolist() for array in found[:2]] == [array.tolist() for array in expected[:2]]
    assert found[2:] == expected[2:]
    asked = (stream, found[0], found[1], kinds, ord(","), quote, MISSING[data[5] % 3])
    assert plain(_native.parse_csv(*asked)) == plain(csv_rows_py.parse_csv(*asked))
    order = np.arange(len(kinds))[::-1].copy()
    moved = (stream, found[0], found[1], order, ord(","), quote)
    assert plain(_native.reorder_csv(*moved)) == plain(csv_rows_py.reorder_csv(*moved))


def plain(found: Any) -> Any:
    """Return the arrays of a result as bytes; all NaNs are equal."""
    if isinstance(found, np.ndarray):
        if found.dtype.kind == "f":
            found = np.where(np.isnan(found), np.array(0, found.dtype), found), np.isnan(found)
            return [plain(part) for part in (found[0].view(np.uint8), found[1])]
        return found.dtype, found.tobytes()
    return [plain(part) for part in found] if isinstance(found, (list, tuple)) else found


def seeds() -> list[bytes]:
    """Return one valid input per type of a column."""
    return [bytes([kind, 1, kind, 2, 2, kind + 1]) + TEXT for kind in range(len(KINDS))]


def mutate(data: bytes, source: random.Random) -> bytes:
    """Return ``data`` with a few bytes flipped, dropped, repeated or replaced."""
    body = bytearray(data)
    for _ in range(source.randint(1, 5)):
        at = source.randrange(len(body) + 1)
        end = min(len(body), at + source.choice((1, 1, 4, 30)))
        change = source.randrange(4)
        if change == 0 and at < len(body):
            body[at] ^= 1 << source.randrange(8)
        elif change == 1:
            del body[at:end]
        elif change == 2:
            body[at:at] = body[at:end]
        else:
            body[at:end] = bytes(source.choice(b'",\n\r0123456789eE+-. naif\xff\x00') for _ in range(end - at))
    return bytes(body)


def main(arguments: Sequence[str]) -> None:
    """Run the fuzzer with arguments of the command line."""
    run_target(Target(__doc__, check, seeds, mutate), arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
