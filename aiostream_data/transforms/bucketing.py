"""Group rows of similar length into buckets and emit a batch when a bucket is full."""

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
    """Batch of one bucket: the ascending numbers of its rows, and the bucket number."""

    rows: Numbers
    bucket: int


class BucketOrder:
    """Batches of tf.data's ``bucket_by_sequence_length``. Resumable.

    Bucket i receives the rows with ``boundaries[i - 1] <= length < boundaries[i]``. Batches are emitted in the order in
    which their buckets become full. Incomplete batches follow at the end of the stream, in the order of their buckets.

    Args:
        boundaries: Ascending row lengths that separate the buckets.
        batch_sizes: Batch size of each bucket, at least 1; one more entry than ``boundaries``.
        drop_remainder: Drop incomplete batches at the end of the stream.
        least: Minimum number of rows of an incomplete batch at the end; smaller batches are dropped.

    Attributes:
        pushed: Number of rows received so far.
        dropped: Number of rows dropped at the end of the stream.
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
        """Return the bucket number of each row length."""
        return np.searchsorted(self.boundaries, lengths, side="right")

    def push(self, lengths: NDArray[np.int64], limit: int | None = None) -> list[Bucketful]:
        """Add rows of these lengths to their buckets. Return the batches completed by the new rows, in order.

        Args:
            lengths: Length of each row, int64.
            limit: Maximum number of complete batches, after which no more rows are added; ``pushed`` counts the added
                rows.
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
        """End the stream. Return up to ``limit`` incomplete batches; further calls return the remaining batches."""
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
        """Return the numbers of the rows that are not in a batch yet, ascending."""
        return np.sort(np.concatenate(self._open))

    def rows_held(self) -> int:
        """Return the number of rows that are not in a batch yet."""
        return sum(map(len, self._open))

    def state(self) -> dict[str, Any]:
        """Return the current position as JSON-compatible data.

        Restoring the position also requires the rows that :meth:`held` lists.
        """
        return {"held": self.rows_held()}

    def restore(self, state: dict[str, Any], lengths: NDArray[np.int64]) -> None:
        """Restore a position saved by :meth:`state`. The buffered rows are renumbered from 0.

        Args:
            state: Result of :meth:`state`.
            lengths: Lengths of the buffered rows, in the same order as the result of :meth:`held`.

        Raises:
            ValueError: The lengths do not match the saved state.
        """
        self.pushed = 0
        self._open = [_NONE] * len(self.batch_sizes)
        if len(lengths) != state["held"] or self.push(lengths):
            raise ValueError(f"the buckets held {state['held']} rows, but the {len(lengths)} recomputed rows differ")

    def copy(self) -> BucketOrder:
        """Return a copy of this bucket order at the same position."""
        other = BucketOrder(self.boundaries.tolist(), self.batch_sizes, self.drop_remainder, self.least)
        other.pushed, other.dropped, other._open = self.pushed, self.dropped, list(self._open)
        return other

    def _filled(self, lengths: NDArray[np.int64]) -> tuple[list[Bucketful], list[Numbers]]:
        """Return the batches completed by these rows, sorted by last row, and the remaining rows of each bucket."""
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
