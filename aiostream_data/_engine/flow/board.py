"""The counters of all stages of a loader, by their places in the plan."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from aiostream_data.metrics.counters import StageCounters


class Board:
    """The counters of every stage, sources first."""

    def __init__(self) -> None:
        self._counters: dict[str, StageCounters] = {}

    def of(self, key: str, make: Callable[[], StageCounters]) -> StageCounters:
        """Return the counters of a stage, made when first asked for."""
        found = self._counters.get(key)
        return self._counters.setdefault(key, make()) if found is None else found

    def put(self, key: str, counters: StageCounters) -> None:
        """Show the counters of a stage that runs elsewhere, as they are now."""
        self._counters[key] = counters

    def items(self) -> list[tuple[str, StageCounters]]:
        """Return the counters of every stage with the name of its place."""
        return list(self._counters.copy().items())

    def __iter__(self) -> Iterator[StageCounters]:
        known = dict(self._counters)  # a copy: the loop may add a stage meanwhile
        entries = sorted(known.items(), key=lambda entry: order_of(entry[0]))
        return iter([counters for _, counters in entries])


def order_of(key: str) -> tuple[float, ...]:
    """Return where the key of a place stands in the plan: inputs, and inner data sets, before what reads them."""
    return (*(int(number) for number in key.split("/")), math.inf)
