"""Collect rows of like length: which bucket each goes to, and when a bucket is full."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import PlanError

Numbers = NDArray[np.int64]
_NONE = np.empty(0, np.int64)


class Bucketful(NamedTuple):
    """Rows of one bucket that make a batch: their numbers, ascending."""

    rows: Numbers
    bucket: int


class BucketOrder:
    """Batches of tf.data's ``bucket_by_sequence_length``; resumable.

    Bucket i takes the rows of ``boundaries[i - 1] <= length < boundaries[i]``. Batches come out in the order
    in which their buckets fill; what is left at the end comes in the order of buckets.

    Args:
        boundaries: Ascending.
        batch_sizes: One per bucket, thus one more than boundaries; each at least 1.
        drop_remainder: Leave out what is left at the end.
        least: Leave out batches of fewer rows at the end.

    Attributes:
        pushed: How many rows have come.
        dropped: How many were left out at the end.
    """

    def __init__(
        self, boundaries: Sequence[int], batch_sizes: Sequence[int], drop_remainder: bool = False, least: int = 1
    ) -> None:
        if len(batch_sizes) != len(boundaries) + 1:
            raise PlanError(f"{len(boundaries)} bucket boundaries need {len(boundaries) + 1} batch sizes, "
                            f"got {len(batch_sizes)}")  # fmt: skip
        if min(batch_sizes) < 1 or any(a >= b for a, b in pairwise(boundaries)):
            raise PlanError(f"boundaries must ascend and batch sizes be at least 1, got {boundaries}, {batch_sizes}")
        self.boundaries = np.array(boundaries, np.int64)
        self.batch_sizes = tuple(batch_sizes)
        self.drop_remainder = drop_remainder
        self.least = least
        self.pushed = 0
        self.dropped = 0
        self._open: list[Numbers] = [_NONE] * len(batch_sizes)

    def bucket_of(self, lengths: NDArray[np.int64]) -> Numbers:
        """Return the bucket of every length."""
        return np.searchsorted(self.boundaries, lengths, side="right")

    def push(self, lengths: NDArray[np.int64], limit: int | None = None) -> list[Bucketful]:
        """Take in rows of these lengths; return the batches that are full with them, in order.

        Args:
            limit: Take in rows only until so many batches came; ``pushed`` tells how many that were.
        """
        if limit == 0:
            return []
        full, left = self._filled(lengths)
        if limit is not None and len(full) > limit:
            last = int(full[limit - 1].rows[-1])
            lengths = lengths[: last + 1 - self.pushed]
            full, left = self._filled(lengths)
        self._open = left
        self.pushed += len(lengths)
        return full

    def finish(self, limit: int | None = None) -> list[Bucketful]:
        """Return what is left when no row follows, ``limit`` batches at most; call again for what follows."""
        left: list[Bucketful] = []
        for bucket, rows in enumerate(self._open):
            if len(left) == limit:
                break
            if len(rows) and (self.drop_remainder or len(rows) < self.least):
                self.dropped += len(rows)
            elif len(rows):
                left.append(Bucketful(rows, bucket))
            self._open[bucket] = _NONE
        return left

    def held(self) -> Numbers:
        """Return the numbers of the rows that are in no batch yet, ascending."""
        return np.sort(np.concatenate(self._open))

    def rows_held(self) -> int:
        """Return how many rows are in no batch yet."""
        return sum(map(len, self._open))

    def state(self) -> dict[str, Any]:
        """Return the position as plain data; with it belong the rows of :meth:`held`."""
        return {"held": self.rows_held()}

    def restore(self, state: dict[str, Any], lengths: NDArray[np.int64]) -> None:
        """Go to a position. The rows that were held now count as the first that came.

        Args:
            lengths: Of the held rows, in the order of :meth:`held`.

        Raises:
            ValueError: These cannot be the rows that were held.
        """
        self.pushed = 0
        self._open = [_NONE] * len(self.batch_sizes)
        if len(lengths) != state["held"] or self.push(lengths):
            raise ValueError(f"{state['held']} rows were held in buckets, but the {len(lengths)} given back are others")

    def copy(self) -> BucketOrder:
        """Return another order at the same position."""
        other = BucketOrder(self.boundaries.tolist(), self.batch_sizes, self.drop_remainder, self.least)
        other.pushed, other.dropped, other._open = self.pushed, self.dropped, list(self._open)
        return other

    def _filled(self, lengths: NDArray[np.int64]) -> tuple[list[Bucketful], list[Numbers]]:
        """Return the batches that these rows fill, by their last row, and what then is in the buckets."""
        buckets = self.bucket_of(lengths)
        left = list(self._open)
        full: list[Bucketful] = []
        for bucket in np.unique(buckets).tolist():
            size = self.batch_sizes[bucket]
            rows = np.concatenate([left[bucket], self.pushed + np.flatnonzero(buckets == bucket)])
            stops = range(size, len(rows) + 1, size)
            full += [Bucketful(rows[stop - size : stop], bucket) for stop in stops]
            left[bucket] = rows[len(stops) * size :].copy()
        return sorted(full, key=lambda batch: int(batch.rows[-1])), left
