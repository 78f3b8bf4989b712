"""How well rows are shuffled, told from their ids in the order of delivery.

Two numbers, each of the whole and of its first and last twentieth:

*Rank distance*: how far rows have moved. ``r(i)`` is the rank, in the order of the source, of the row
delivered in place ``i``; over the places ``P`` of a part it is::

    sum of |r(i) - i| over P  /  sum of E(i) over P,    E(i) = (i (i + 1) + (n - 1 - i) (n - i)) / 2n

``E(i)`` is what a uniformly random order of all ``n`` rows gives on average, so 1 means as far as in
such an order, and 0 means not at all. Over all places the mean of E is about n / 3.

*Same-shard adjacency*: the share of pairs of neighbours in a part that come from one shard. A uniformly
random order gives the sum over shards of s (s - 1) / n (n - 1), s being a shard's rows: about one over
the number of shards.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from aiostream_data.arguments import integer

PART: Final = 0.05
"""Share of the rows that the first and the last part have."""


@dataclass(frozen=True, slots=True)
class PartQuality:
    """How well the rows of one part of a stream are shuffled.

    Attributes:
        rank_distance: Mean distance from the place in the source; 1 is what a uniform order gives.
        same_shard: Share of neighbours that come from one shard, 0 to 1.
    """

    rank_distance: float
    same_shard: float


@dataclass(frozen=True, slots=True)
class ShuffleQuality:
    """How well a data set is shuffled; print it with ``str``.

    Attributes:
        rows: Rows looked at.
        shards: Files (or other splits) that they came from.
        complete: False when there were more rows, so that the last part is not the end of an epoch.
        uniform_same_shard: ``same_shard`` of a uniformly random order of the same rows.
        whole, first, last: All rows, the first 5 % of them, and the last 5 %.
    """

    rows: int
    shards: int
    complete: bool
    uniform_same_shard: float
    whole: PartQuality
    first: PartQuality
    last: PartQuality

    def __str__(self) -> str:
        beginning = "" if self.complete else ", the beginning of the stream"
        uniform = PartQuality(1.0, self.uniform_same_shard)
        parts = {"all rows": self.whole, "first 5 %": self.first, "last 5 %": self.last, "uniform order": uniform}
        lines = [f"shuffle quality of {self.rows:,} rows of {self.shards:,} shards{beginning}"]
        lines.append(f"{'':15}{'rank distance':>14}{'same-shard neighbours':>24}")
        lines += [f"{name:15}{part.rank_distance:14.3f}{part.same_shard:24.3%}" for name, part in parts.items()]
        return "\n".join(lines)


def quality_of_elements(ids_of_elements: Iterable[NDArray[np.int64] | None], max_rows: int | None) -> ShuffleQuality:
    """Return the quality of a stream, given the ids of the rows of each element in order of delivery.

    Args:
        ids_of_elements: int64 (rows, 2 or more) each; not asked for more once ``max_rows`` are exceeded.
        max_rows: Rows to look at, at most; None for all there are.
    """
    if max_rows is not None:
        max_rows = integer("max_rows", max_rows, 1)
    parts: list[NDArray[np.int64]] = [np.empty((0, 2), np.int64)]
    rows = 0
    for ids in ids_of_elements:
        if ids is None:
            continue
        parts.append(ids[:, :2].copy())
        rows += len(ids)
        if max_rows is not None and rows > max_rows:
            break
    return quality_of(np.concatenate(parts)[:max_rows], complete=max_rows is None or rows <= max_rows)


def quality_of(ids: NDArray[np.int64], complete: bool = True) -> ShuffleQuality:
    """Return how well rows are shuffled.

    Args:
        ids: int64 (rows, 2), (shard, ordinal) of every row in order of delivery. Sorted, they are the
            order of the source.
        complete: Whether these are all rows.
    """
    n = len(ids)
    sizes = np.unique(ids[:, 0], return_counts=True)[1].astype(np.float64)
    ranks = np.empty(n, np.int64)
    ranks[np.lexsort((ids[:, 1], ids[:, 0]))] = np.arange(n)
    part = max(1, round(n * PART))
    return ShuffleQuality(
        rows=n,
        shards=len(sizes),
        complete=complete,
        uniform_same_shard=float((sizes * (sizes - 1)).sum() / (n * (n - 1))) if n > 1 else 0.0,
        whole=_part(ranks, ids[:, 0], 0, n),
        first=_part(ranks, ids[:, 0], 0, part),
        last=_part(ranks, ids[:, 0], max(0, n - part), n),
    )


def _part(ranks: NDArray[np.int64], shards: NDArray[np.int64], start: int, stop: int) -> PartQuality:
    n = len(ranks)
    places = np.arange(start, min(stop, n), dtype=np.float64)
    after = n - 1 - places
    expected = float((places * (places + 1) + after * (after + 1)).sum()) / (2 * max(1, n))
    moved = float(np.abs(ranks[start:stop] - places).sum())
    same = shards[start:stop][1:] == shards[start:stop][:-1]
    return PartQuality(moved / expected if expected else 1.0, float(same.mean()) if len(same) else 0.0)
