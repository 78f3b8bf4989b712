"""Row ids as int64 arrays of shape (rows, columns), with :data:`UNUSED` to the right of shorter ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

UNUSED: Final = -1
"""Padding value of unused columns to the right of an id. Valid numbers are at least 0."""

SPLIT_BITS: Final = 40
SPLIT_MASK: Final = (1 << SPLIT_BITS) - 1
"""Number, and mask, of the low bits of a split number, which count within a namespace. The high bits are the number of
the namespace (see ``origins.py``)."""

Numbers = NDArray[np.int64]
Mask = NDArray[np.bool_]


class Pairs(NamedTuple):
    """Id pairs of several rows, all at the same position in their ids.

    Attributes:
        splits: First number of each pair, int64 of shape (rows,), undefined where ``exists`` is False.
        ordinals: Second number of each pair, int64 of shape (rows,), undefined where ``exists`` is False.
        exists: Mask of the rows that have this pair, bool of shape (rows,).
    """

    splits: Numbers
    ordinals: Numbers
    exists: Mask

    @property
    def namespaces(self) -> Numbers:
        """Namespace number of each pair. The number is 0 for a pair appended by an operator, and -1 for a missing
        pair."""
        return self.splits >> SPLIT_BITS


def pair_column(rows: int, firsts: Numbers | int, seconds: Sequence[int] | Numbers | int) -> Numbers:
    """Return one pair for each row."""
    pairs = np.empty((rows, 2), np.int64)
    pairs[:, 0], pairs[:, 1] = firsts, seconds
    return pairs


def beside(*columns: Numbers) -> Numbers:
    return np.concatenate(columns, axis=1)


def joined_columns(left: Numbers, right: Numbers, kind: int) -> Numbers:
    """Return the columns of both arrays and a pair of this kind. ``right`` may have a single row."""
    end, width = left.shape[1], right.shape[1]
    joined = np.empty((len(left), end + width + 2), np.int64)
    joined[:, :end], joined[:, end : end + width] = left, right
    joined[:, -2], joined[:, -1] = kind, width
    return joined


def used(columns: Numbers, widths: Numbers) -> Mask:
    used: Mask = np.arange(columns.shape[1]) < widths[:, None]
    return used


def alike(arrays: Sequence[Numbers]) -> list[Numbers]:
    """Return all arrays, widened to the same number of columns."""
    width = max(array.shape[1] for array in arrays)
    return [array if array.shape[1] == width else widened(array, width) for array in arrays]


def widened(columns: Numbers, width: int) -> Numbers:
    """Return a copy with ``width`` columns. Columns after ``width`` must be unused in ``columns``."""
    wide = np.full((len(columns), width), UNUSED, np.int64)
    common = min(width, columns.shape[1])
    wide[:, :common] = columns[:, :common]
    return wide
