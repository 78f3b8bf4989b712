"""Counters of all stages of a loader, keyed by the stage's position in the plan."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from aiostream_data.metrics.counters import StageCounters


class Board:
    """Counters of every stage; iteration starts with the sources."""

    def __init__(self) -> None:
        self._counters: dict[str, StageCounters] = {}

    def of(self, key: str, make: Callable[[], StageCounters]) -> StageCounters:
        """Return the counters of a stage, and create them on first use."""
        found = self._counters.get(key)
        return self._counters.setdefault(key, make()) if found is None else found

    def put(self, key: str, counters: StageCounters) -> None:
        """Replace the counters of a stage with counters from another process."""
        self._counters[key] = counters

    def items(self) -> list[tuple[str, StageCounters]]:
        """Return the key and the counters of every stage."""
        return list(self._counters.copy().items())

    def __iter__(self) -> Iterator[StageCounters]:
        known = dict(self._counters)  # a copy, because the loop may add a stage during the sort
        entries = sorted(known.items(), key=lambda entry: order_of(entry[0]))
        return iter([counters for _, counters in entries])


def order_of(key: str) -> tuple[float, ...]:
    """Return the sort key of a stage: inputs and inner data sets sort before the stage that reads them."""
    return (*(int(number) for number in key.split("/")), math.inf)
