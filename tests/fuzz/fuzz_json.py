"""Fuzz the JSON parsers: hostile records give values or a fault, the same from the kernel, its twin and both libraries.

If atheris is installed, it chooses inputs by the code that they reach::

    python tests/fuzz/fuzz_json.py corpus/

Without atheris, a loop makes random mutations from a seed::

    python tests/fuzz/fuzz_json.py --runs 100000 --seed 1
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from fuzzing import Target, run_target

from aiostream_data import VarLen, _native
from aiostream_data._native import json_rows_py
from aiostream_data._native.csv_rows_py import KINDS
from aiostream_data.formats import json_values
from aiostream_data.formats.json_schema import checked_json_schema, nodes_of
from aiostream_data.rows.columns import VarColumn

TYPES: tuple[Any, ...] = (str, *KINDS, VarLen(str), VarLen(np.float32), VarLen(np.int8), {"b": int, "é": str})
TEXT = (
    b'{"a": 1, "b": {"b": -7, "\\u00e9": "x\\ud83d\\ude42"}, "c": [1, 2.5e-3], "d": "\xc3\xa9\\n", "e": true}\n'
    b'{"a": null, "a": 300, "b": [], "c": ["a", ""], "d": 9223372036854775807, "e": [[{"a": {}}]]}'
)


def check(data: bytes) -> None:
    """Parse ``data``, its first bytes say how; fail on a difference or a foreign exception."""
    if len(data) < 5:
        return
    schema = {name: TYPES[byte % len(TYPES)] for name, byte in zip("abcde", data[:5], strict=True)}
    records = [record for record in data[5:].split(b"\n") if _is_text(record)]
    lengths = np.array([len(record) for record in records], np.int64)
    asked = (np.frombuffer(b"".join(records), np.uint8), np.cumsum(lengths) - lengths, lengths)
    nodes = nodes_of(checked_json_schema(schema))
    found, expected = _native.parse_json(*asked, nodes), json_rows_py.parse_json(*asked, nodes)
    if isinstance(found, json_rows_py.JsonFault) or isinstance(expected, json_rows_py.JsonFault):
        assert isinstance(found, json_rows_py.JsonFault), expected
        assert isinstance(expected, json_rows_py.JsonFault), found
        assert found.row == expected.row, (found, expected)
    else:
        assert repr([rows_of(one) for one in found]) == repr([rows_of(one) for one in expected])
    for record in records:
        check_value(record)


def check_value(record: bytes) -> None:
    """Compare both libraries on a record."""
    problem = json_values.problem_of(record)
    if problem is not None:
        assert 0 <= problem.place <= len(record), problem
        assert len(problem.reason) < 300
        assert json_rows_py.depth_of(record) > json_rows_py.MOST_DEPTH or loaded(json_values.loader(), record) is None
    else:
        assert loaded(json_values.loader(), record) == loaded(json_values.load, record) is not None


def loaded(load: Callable[[bytes], Any], record: bytes) -> str | None:
    """Return the value of a record as text, or None for an error."""
    try:
        return repr(load(record))
    except (ValueError, OverflowError, RecursionError):
        return None


def rows_of(parsed: json_rows_py.Parsed) -> list[Any]:
    """Return the values of all rows; None for a row without one."""
    values, starts, lengths, valid = parsed
    column: Any = np.array(VarColumn(*values, "str").elements(), object) if isinstance(values, tuple) else values
    rows = column.tolist()
    if starts is not None and lengths is not None:
        rows = [row.tolist() for row in VarColumn(column, starts, lengths, "array").elements()]
    return [row if has else None for row, has in zip(rows, valid.tolist(), strict=True)]


def _is_text(record: bytes) -> bool:
    try:
        record.decode()
    except UnicodeDecodeError:
        return False
    return True


def seeds() -> list[bytes]:
    """Return one valid input per type of a value."""
    return [bytes([kind, 17, kind + 2, kind + 1, 1]) + TEXT for kind in range(len(TYPES))]


def mutate(data: bytes, source: random.Random) -> bytes:
    """Return ``data`` with a few bytes flipped, dropped, repeated or replaced."""
    body = bytearray(data)
    for _ in range(source.randint(1, 5)):
        at = source.randrange(len(body) + 1)
        end = min(len(body), at + source.choice((1, 1, 4, 30)))
        change = source.randrange(5)
        if change == 0 and at < len(body):
            body[at] ^= 1 << source.randrange(8)
        elif change == 1:
            del body[at:end]
        elif change == 2:
            body[at:at] = body[at:end] * source.choice((1, 1, 1, 250))
        elif change == 3:
            body[at:at] = source.choice((b"null", b"true", b"NaN", b"\\ud800", b"1e400", b"[", b"{}", b'"', b"\\u0061"))
        else:
            body[at:end] = bytes(source.choice(b'{}[]",:\\u0123456789eE+-. nltf\xff\x00') for _ in range(end - at))
    return bytes(body)


def main(arguments: Sequence[str]) -> None:
    """Run the fuzzer with arguments of the command line."""
    run_target(Target(__doc__, check, seeds, mutate), arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
