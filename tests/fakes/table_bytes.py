"""Rows of a file with a directory whose bytes are in memory, read without an engine."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from aiostream_data.testing.table_reading import directory_of, rows_of

__all__ = ["directory_of", "plain_rows", "rows_of"]


def plain_rows(rows: Iterable[Any]) -> list[Any]:
    """Return rows with lists in place of arrays, and Python numbers in place of those of NumPy."""
    return [_plain(row) for row in rows]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value
