"""The function that P2 maps."""

from __future__ import annotations


def add_one(number: int) -> int:
    """Return the next number."""
    return number + 1
