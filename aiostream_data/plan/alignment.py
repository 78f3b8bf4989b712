"""Align two sequences: pair their entries so that the total cost is minimal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

ALONE = 1.0
"""Cost of an entry that has no partner in the other sequence. Two entries are never paired if their pairing costs more
than twice ``ALONE``."""


def align(old: Sequence[T], new: Sequence[T], cost: Callable[[T, T], float]) -> list[tuple[int | None, int | None]]:
    """Return the cheapest pairing as ascending pairs (index in old, index in new).

    A missing partner has the index None.

    Args:
        old, new: The sequences. Keep both sequences short, because time and memory grow with the product of their
            lengths.
        cost: Function that returns the cost of pairing two entries, at least 0. The cost function is called for each
            combination of an old and a new entry.
    """
    # least[i][j]: cost of pairing old[i:] with new[j:].
    pairs = [[cost(before, after) for after in new] for before in old]
    least = [[0.0] * (len(new) + 1) for _ in range(len(old) + 1)]
    for i in range(len(old), -1, -1):
        for j in range(len(new), -1, -1):
            ways = [least[i + 1][j] + ALONE] if i < len(old) else []
            ways += [least[i][j + 1] + ALONE] if j < len(new) else []
            ways += [least[i + 1][j + 1] + pairs[i][j]] if i < len(old) and j < len(new) else []
            least[i][j] = min(ways, default=0.0)
    found: list[tuple[int | None, int | None]] = []
    i = j = 0
    while i < len(old) or j < len(new):
        if i < len(old) and j < len(new) and least[i][j] == least[i + 1][j + 1] + pairs[i][j]:
            found.append((i, j))
            i, j = i + 1, j + 1
        elif i < len(old) and least[i][j] == least[i + 1][j] + ALONE:
            found.append((i, None))
            i += 1
        else:
            found.append((None, j))
            j += 1
    return found
