"""Paths of columns such as ``a.b``: the field ``b`` of the struct ``a``, or a column whose name has a dot."""

from __future__ import annotations

from collections.abc import Container


def top_of(path: str, names: Container[str]) -> str:
    """Return the name of the column that ``path`` begins with, which may have dots in its name, too.

    Return the part before the first dot if there is no such column.
    """
    end = len(path)
    while end > 0 and path[:end] not in names:
        end = path.rfind(".", 0, end)
    return path[:end] if end > 0 else path.partition(".")[0]
