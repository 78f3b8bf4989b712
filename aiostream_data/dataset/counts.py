"""Checks of the numbers of elements that ``assert_cardinality`` and ``pad_to_cardinality`` receive."""

from __future__ import annotations

from typing import Any

from aiostream_data.arguments import integer
from aiostream_data.errors import PlanError
from aiostream_data.plan.base import INFINITE, UNKNOWN


def asserted_count(count: Any, rows: int) -> int:
    """Return the argument of ``assert_cardinality``.

    Args:
        rows: Cardinality of the dataset.

    Raises:
        PlanError: The argument is invalid, or differs from the known cardinality.
    """
    checked = integer("count", count, INFINITE, what="a number of elements or INFINITE")
    if rows not in (UNKNOWN, checked):
        raise PlanError(
            f"assert_cardinality() expects {_shown(checked)}, but the dataset has {_shown(rows)}. "
            "Pass the right number, or correct the operators before it."
        )
    return checked


def padded_count(count: Any, rows: int) -> int:
    """Return the argument of ``pad_to_cardinality``.

    Args:
        rows: Cardinality of the dataset.

    Raises:
        PlanError: The argument is invalid, or the dataset cannot be extended to this number of elements.
    """
    checked = integer("count", count, 1)
    if rows < 0:
        cure = "Add take(count)." if rows == INFINITE else "Add assert_cardinality(count) if you know the number."
        raise PlanError(
            f"pad_to_cardinality() needs a known number of elements, but the dataset has {_shown(rows)}. {cure}"
        )
    if rows == 0:
        raise PlanError("pad_to_cardinality() repeats the last element, but the dataset is empty.")
    if rows > checked:
        raise PlanError(
            f"pad_to_cardinality() cannot extend {rows} elements to {checked}. Pass a larger count, or add "
            f"take({checked})."
        )
    return checked


def _shown(rows: int) -> str:
    if rows < 0:
        return "an infinite number of elements" if rows == INFINITE else "an unknown number of elements"
    return f"{rows} elements"
