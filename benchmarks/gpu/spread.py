"""Several measurements of one thing as their median and spread."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any


def spread(values: Sequence[float], digits: int = 4) -> dict[str, Any]:
    """Return median, smallest, largest and all values, rounded, as JSON-safe data.

    Raises:
        ValueError: There is no value.
    """
    if not values:
        raise ValueError("no measurement was taken")
    rounded = [round(value, digits) for value in values]
    return {"median": round(median(values), digits), "min": min(rounded), "max": max(rounded), "all": rounded}
