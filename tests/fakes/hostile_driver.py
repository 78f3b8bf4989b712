"""A DB-API driver that returns the rows of a script, which may break each promise of a database."""

from __future__ import annotations

import random
from typing import Any, Final

__all__ = ["HostileConnection", "with_other_promise"]

_TRICKS: Final = ("unsorted", "unfiltered", "unlimited", "hidden nulls")
"""Names of entries of a script. A true value breaks a promise: ORDER BY, WHERE id > ?, LIMIT and WHERE id IS NULL."""


class HostileConnection:
    """Connection to the table of a script.

    Attributes:
        rows: The rows.
        is_honest: True if statements return what they ask for.
    """

    def __init__(self, script: dict[str, Any]) -> None:
        self._script = script
        names, rows = script.get("names"), script.get("rows")
        self._names: Any = names
        self.rows = [_row(row, names, script.get("shape")) for row in rows] if isinstance(rows, list) else []
        self.is_honest = not any(script.get(trick) for trick in _TRICKS)

    def cursor(self) -> HostileConnection:
        return self

    @property
    def description(self) -> Any:
        return [(name, *[None] * 6) for name in self._names] if isinstance(self._names, list) else self._names

    def execute(self, text: str, params: Any) -> None:
        found = list(self.rows)
        if "IS NULL" in text:
            found = [] if self._script.get("hidden nulls") else [row for row in found if self._key(row) is None]
        if "ORDER BY" in text and not self._script.get("unsorted"):
            found.sort(key=lambda row: _order(self._key(row)))
        if "id > ?" in text and not self._script.get("unfiltered"):
            found = [row for row in found if _order(self._key(row)) > _order(params[0])]
        if not self._script.get("unlimited"):
            found = found[: params[-1]]
        self._found = found

    def fetchall(self) -> Any:
        return self._found

    def close(self) -> None:
        pass

    def _key(self, row: Any) -> Any:
        if isinstance(row, dict):
            return row.get("id")
        place = self._names.index("id") if isinstance(self._names, list) and "id" in self._names else 0
        return row[place] if isinstance(row, (list, tuple)) and place < len(row) else None


def _row(row: Any, names: Any, shape: Any) -> Any:
    values = [_value(value) for value in row] if isinstance(row, list) else row
    if shape == "dict" and isinstance(names, list) and isinstance(values, list):
        return dict(zip(map(str, names), values, strict=False))
    return tuple(values) if shape is None and isinstance(values, list) else values


def _value(value: Any) -> Any:
    return b"\0\xff" if isinstance(value, dict) and "bytes" in value else value


def _order(key: Any) -> tuple[int, Any]:
    if isinstance(key, (int, float)):
        return (1, key) if key == key else (1, float("inf"))
    return (2, key) if isinstance(key, str) else (0, 0)


def with_other_promise(script: dict[str, Any], source: random.Random) -> dict[str, Any]:
    """Return a script that breaks or keeps one promise."""
    return {**script, source.choice(_TRICKS): source.random() < 0.5}
