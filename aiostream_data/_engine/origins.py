"""Where rows came from: the split numbers in row ids, and what they stand for.

A row id is (split, ordinal). The upper bits of the split number name a *namespace* (one run of one
source in one epoch), the lower bits the split inside it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from aiostream_data.records import Ids

SPLIT_BITS: Final = 40
_SPLIT_MASK: Final = (1 << SPLIT_BITS) - 1
_REMEMBERED: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Namespace:
    """One run of one source.

    Attributes:
        source: The stage's number in the plan, the same in every run.
        epoch: Which repetition this run is.
        url_of: Name of a split, for messages.
        base: What to add to a split's number inside the run.
    """

    source: int
    epoch: int
    url_of: Callable[[int], str]
    base: int


_FORGOTTEN: Final = Namespace(-1, 0, lambda _: "<forgotten source>", 0)


class Origins:
    """Hands out namespaces and explains row ids. Reading is safe from any thread."""

    def __init__(self) -> None:
        self._known: OrderedDict[int, Namespace] = OrderedDict()
        self._next = 0

    def open(self, source: int, epoch: int, url_of: Callable[[int], str]) -> Namespace:
        """Return a new namespace. Call from the loop."""
        number, self._next = self._next, self._next + 1
        namespace = Namespace(source, epoch, url_of, number << SPLIT_BITS)
        self._known[number] = namespace
        if len(self._known) > _REMEMBERED:  # millions of tiny inner data sets must not pile up
            self._known.popitem(last=False)
        return namespace

    def adopt(self, ids: Ids, other: Origins, moved: dict[int, int]) -> Ids:
        """Return ids that name the same rows as these, which ``other`` handed out. Call from the loop.

        Args:
            moved: Which of the other's namespaces became which of these; kept between calls.
        """
        adopted = ids.copy()
        numbers = ids[:, 0] >> SPLIT_BITS
        for number in np.unique(numbers).tolist():
            if number not in moved:
                known = other._known.get(number, _FORGOTTEN)
                moved[number] = self.open(known.source, known.epoch, known.url_of).base
            rows = numbers == number
            adopted[rows, 0] = moved[number] | (ids[rows, 0] & _SPLIT_MASK)
        return adopted

    def url_and_index(self, split: int, ordinal: int) -> tuple[str, int]:
        """Return the URL (or source name) and the record index of a row."""
        namespace = self._known.get(split >> SPLIT_BITS)
        return (namespace or _FORGOTTEN).url_of(split & _SPLIT_MASK), ordinal

    def describe(self, ids: Ids, row: int) -> str:
        """Return "URL record N" of row ``row`` of ``ids``."""
        if not 0 <= row < len(ids):
            return "an unknown record"
        url, index = self.url_and_index(int(ids[row, 0]), int(ids[row, 1]))
        return f"{url} record {index}"

    def stable(self, split: int) -> tuple[int, int, int]:
        """Return (source, epoch, split inside the source): the same in every run of the plan."""
        namespace = self._known.get(split >> SPLIT_BITS)
        return (namespace.source, namespace.epoch, split & _SPLIT_MASK) if namespace else (-1, 0, split)
