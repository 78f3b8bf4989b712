"""Find text that UTF-8 cannot store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

SURROGATE: Final = "contains a surrogate, which UTF-8 cannot store"
"""Cause in the errors for text that cannot be encoded."""


def first_surrogate(rows: Sequence[Any]) -> int | None:
    """Return the index of the first text that UTF-8 cannot store, because it contains a surrogate; None without one."""
    return next((number for number, row in enumerate(rows) if isinstance(row, str) and not can_encode(row)), None)


def can_encode(text: str) -> bool:
    """Return True if UTF-8 can store a text, because it contains no surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
