"""Fuzz the reader of SQL queries: hostile databases give rows in the order of the key, or a typed error.

The first byte of an input chooses the database: a driver that returns the rows of a JSON script, or the file of a
SQLite database.

If atheris is installed, it chooses inputs by the code that they reach::

    python tests/fuzz/fuzz_sql.py corpus/

Without atheris, a loop makes random mutations from a seed::

    python tests/fuzz/fuzz_sql.py --runs 100000 --seed 1
"""

from __future__ import annotations

import json
import random
import sqlite3
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

from fuzzing import Target, run_target

sys.path.append(str(Path(__file__).parents[1] / "fakes"))
from hostile_driver import HostileConnection, with_other_promise
from mutated_json import with_other_value

from aiostream_data._engine.sources.sql_reader import SqlReader
from aiostream_data.dataset.sql import sql_query
from aiostream_data.errors import AiostreamError
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.transforms.collate import collate

IS_SCRIPT, IS_SQLITE = range(2)
FIRST_ROWS = 2
MOST_PAGES = 40


def check(data: bytes) -> None:
    """Read all pages from a hostile database."""
    if not data:
        return
    if data[0] % 2 == IS_SCRIPT:
        try:
            script = json.loads(data[1:])
        except (ValueError, RecursionError):
            return
        if isinstance(script, dict):
            _check_script(script)
    else:
        _read(lambda: _sqlite(data[1:]), _sqlite_rows(data[1:]))


def _check_script(script: dict[str, Any]) -> None:
    """If the database returns what the statements ask for, all of its rows arrive, or an error."""
    connection = HostileConnection(script)
    found, is_whole = _read(lambda: connection, connection.rows)
    if is_whole and connection.is_honest:
        assert len(found) == len(connection.rows), f"{len(connection.rows) - len(found)} rows are lost"


def _read(connect: Callable[[], Any], known: Sequence[Any] | None) -> tuple[list[dict[str, Any]], bool]:
    """Return the rows, and whether the reader has found the end without an error.

    Args:
        known: Rows of the database; None if it cannot be read.
    """
    rows: list[dict[str, Any]] = []
    count = FIRST_ROWS
    reader = SqlReader(sql_query("SELECT * FROM t", connect, "id", (), None), None)
    try:
        for _ in range(MOST_PAGES):
            page = reader.page(count)
            collate(page.rows, RowIds.run(0, len(rows), len(page.rows))).elements()
            assert len(page.rows) == len(page.keys) <= count
            rows += page.rows
            count *= 2
            if page.failure is not None or page.ended:
                break
        _check_rows(rows, known)
        return rows, page.failure is None and page.ended
    except AiostreamError:
        return rows, False
    finally:
        reader.close()


def _check_rows(rows: list[dict[str, Any]], known: Sequence[Any] | None) -> None:
    """Keys ascend, and all rows are rows of the database."""
    keys = [row["id"] for row in rows]
    for before, key in pairwise(keys):
        assert type(key) is not type(before) or type(key) is str or key > before, f"key {key} follows {before}"
    if known is not None:
        expected = {
            repr(tuple(row.values() if isinstance(row, dict) else row)) for row in known if hasattr(row, "__len__")
        }
        assert all(repr(tuple(row.values())) in expected for row in rows)


def _sqlite(file: bytes) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    connection.deserialize(file)
    return connection


def _sqlite_rows(file: bytes) -> list[Any] | None:
    with closing(sqlite3.connect(":memory:")) as connection:
        try:
            connection.deserialize(file)
            if connection.execute("PRAGMA integrity_check").fetchall() != [("ok",)]:
                return None  # SQLite may read other bytes of a damaged page with every statement
            return connection.execute("SELECT * FROM t").fetchall()
        except (sqlite3.Error, OverflowError, UnicodeDecodeError):
            return None


def seeds() -> list[bytes]:
    """Return valid inputs of both kinds."""
    names = ["id", "text", "x"]
    scripts: list[dict[str, Any]] = [
        {"names": names, "rows": [[n, f"t{n}", n / 2 if n % 3 else None] for n in range(-3, 12)]},
        {"names": names, "rows": [[f"k{n:02}", {"bytes": "00ff"}, [n]] for n in range(12)], "shape": "dict"},
        {"names": names, "rows": [[1 << 20 * n, "", True] for n in range(6)], "shape": "list"},
    ]
    found = [bytes([IS_SCRIPT]) + json.dumps(each).encode() for each in scripts]
    for create in ("id INTEGER PRIMARY KEY", "id TEXT UNIQUE", "id INTEGER"):
        with closing(sqlite3.connect(":memory:")) as connection:
            connection.execute("PRAGMA page_size = 512")
            connection.execute(f"CREATE TABLE t ({create}, text TEXT, x REAL)")
            rows = [(n, f"text {n}" * (n % 5), n / 2 if n % 3 else None) for n in range(60)]
            connection.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
            connection.commit()
            found.append(bytes([IS_SQLITE]) + connection.serialize())
    return found


def mutate(data: bytes, source: random.Random) -> bytes:
    """Return ``data`` with other values in the script, or other bytes in the file."""
    kind, body = data[:1] or b"\0", data[1:]
    if kind[0] % 2 == IS_SCRIPT:
        try:
            script = json.loads(body)
        except (ValueError, RecursionError):
            return seeds()[0]
        for _ in range(source.randint(1, 3)):
            is_promise = isinstance(script, dict) and source.random() < 0.2
            script = with_other_promise(script, source) if is_promise else with_other_value(script, source)
        return kind + json.dumps(script).encode()
    changed = bytearray(body)
    for _ in range(source.randint(1, 4)):
        page = source.randrange(1 + len(changed) // 512) * 512
        at = min(len(changed), page + source.randrange(source.choice((12, 120, 512))))
        new = source.choice((b"\0", b"\xff", b"\xff\xff", b"\0\0", source.randbytes(1), source.randbytes(1)))
        changed[at : at + len(new)] = new
    return kind + bytes(changed)


def main(arguments: Sequence[str]) -> None:
    """Run the fuzzer with arguments of the command line."""
    run_target(Target(__doc__, check, seeds, mutate), arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
