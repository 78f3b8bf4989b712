"""Measure shuffle quality from row ids in the order of delivery.

The module computes two metrics, each for all rows of the stream, for the first 5 % and for the last 5 %.

*Rank distance* measures how far rows have moved. ``r(i)`` is the source position of the row that was delivered at
position ``i``.

For a set ``P`` of positions, the rank distance is::

    sum of |r(i) - i| over P  /  sum of E(i) over P,    E(i) = (i (i + 1) + (n - 1 - i) (n - i)) / 2n

``E(i)`` is the expected value of ``|r(i) - i|`` in a uniformly random order of all ``n`` rows. A rank distance of 1
means fully shuffled, and 0 means unchanged order. The mean of ``E`` over all positions is about n / 3.

*Same-shard adjacency* is the fraction of adjacent row pairs whose rows come from one shard. In a uniformly random
order, the expected same-shard adjacency is the sum of s (s - 1) / n (n - 1) over all shards. Here, s is the row count
of a shard. This expected value is about one divided by the number of shards.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from aiostream_data.arguments import integer
from aiostream_data.rows.id_arrays import widened

PART: Final = 0.05
"""Fraction of all rows in the first part, and in the last part, of the stream."""


@dataclass(frozen=True, slots=True)
class PartQuality:
    """Shuffle quality of one part of a stream.

    Attributes:
        rank_distance: Mean distance between source and delivery positions, relative to a uniformly random order (1.0).
        same_shard: Fraction of adjacent row pairs that come from one shard, from 0 to 1.
    """

    rank_distance: float
    same_shard: float


@dataclass(frozen=True, slots=True)
class ShuffleQuality:
    """Shuffle quality of a dataset, computed from its row ids. ``str()`` returns a table.

    Attributes:
        rows: Number of rows that were measured.
        shards: Number of files (or other splits) that the measured rows came from.
        complete: True if all rows of the dataset were measured. If False, ``last`` does not describe the end of an
            epoch.
        uniform_same_shard: Expected value of ``same_shard`` for a uniformly random order of the same rows.
        whole: Shuffle quality of all rows.
        first: Shuffle quality of the first 5 % of the rows.
        last: Shuffle quality of the last 5 % of the rows.
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
    """Compute the shuffle quality of a stream from the row ids of its elements.

    Args:
        ids_of_elements: Row ids of each element in order of delivery, int64 of shape (rows, 2 or more). Iteration stops
            when the number of rows exceeds ``max_rows``.
        max_rows: Maximum number of rows to measure; None for all rows.
    """
    if max_rows is not None:
        max_rows = integer("max_rows", max_rows, 1)
    parts: list[NDArray[np.int64]] = [np.empty((0, 2), np.int64)]
    rows = 0
    for ids in ids_of_elements:
        if ids is None:
            continue
        parts.append(ids.copy())
        rows += len(ids)
        if max_rows is not None and rows > max_rows:
            break
    width = max(part.shape[1] for part in parts)
    all_ids = np.concatenate([widened(part, width) for part in parts])
    return quality_of(all_ids[:max_rows], complete=max_rows is None or rows <= max_rows)


def quality_of(ids: NDArray[np.int64], complete: bool = True) -> ShuffleQuality:
    """Compute the shuffle quality of a sequence of rows from their ids.

    Args:
        ids: Row ids in order of delivery, int64 of shape (rows, 2 or more). The first pair (split, ordinal) is the
            place of a row in its source, such as a file. The pairs behind it are the ids of the row for which an
            ``interleave`` opened the source. Sorting by the last pair first gives the source order.
        complete: True if ``ids`` contains all rows of the dataset.
    """
    n = len(ids)
    shards = np.unique(np.delete(ids, 1, axis=1), axis=0, return_inverse=True)[1].reshape(-1)
    sizes = np.bincount(shards).astype(np.float64)
    ranks = np.empty(n, np.int64)
    ordinal_then_split = [ids[:, column ^ 1] for column in range(ids.shape[1])]  # the last key is the first to sort by
    ranks[np.lexsort(ordinal_then_split)] = np.arange(n)
    part = max(1, round(n * PART))
    return ShuffleQuality(
        rows=n,
        shards=len(sizes),
        complete=complete,
        uniform_same_shard=float((sizes * (sizes - 1)).sum() / (n * (n - 1))) if n > 1 else 0.0,
        whole=_part(ranks, shards, 0, n),
        first=_part(ranks, shards, 0, part),
        last=_part(ranks, shards, max(0, n - part), n),
    )


def _part(ranks: NDArray[np.int64], shards: NDArray[np.int64], start: int, stop: int) -> PartQuality:
    n = len(ranks)
    places = np.arange(start, min(stop, n), dtype=np.float64)
    after = n - 1 - places
    expected = float((places * (places + 1) + after * (after + 1)).sum()) / (2 * max(1, n))
    moved = float(np.abs(ranks[start:stop] - places).sum())
    same = shards[start:stop][1:] == shards[start:stop][:-1]
    return PartQuality(moved / expected if expected else 1.0, float(same.mean()) if len(same) else 0.0)
