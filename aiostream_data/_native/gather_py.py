"""Copy rows from where they are to where the order wants them: the clear twin of ``gather.pyx``.

Every index is checked before use; an index outside its array raises ``IndexError``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]


def take_rows(source: NDArray[Any], rows: Rows) -> NDArray[Any]:
    """Return a new array with ``source[rows[i]]`` at i. Negative rows are out of range."""
    _check(rows, len(source))
    return source[rows]


def take_rows_many(sources: Sequence[NDArray[Any]], which: NDArray[np.int32], rows: Rows) -> NDArray[Any]:
    """Return a new array with ``sources[which[i]][rows[i]]`` at i. All sources share dtype and row shape."""
    first = sources[0]
    out = np.empty((len(rows), *first.shape[1:]), first.dtype)
    _check(which, len(sources))
    for k, source in enumerate(sources):
        mine = np.flatnonzero(which == k)
        if len(mine):
            _check(rows[mine], len(source))
            out[mine] = source[rows[mine]]
    return out


def compact(values: NDArray[Any], starts: Rows, lengths: Rows) -> tuple[NDArray[Any], Rows]:
    """Copy variable rows one after another; return the new values and the new starts."""
    return compact_many([values], np.zeros(len(starts), np.int32), starts, lengths)


def compact_many(
    sources: Sequence[NDArray[Any]], which: NDArray[np.int32], starts: Rows, lengths: Rows
) -> tuple[NDArray[Any], Rows]:
    """Copy ``sources[which[i]][starts[i] : starts[i] + lengths[i]]`` one after another."""
    _check(which, len(sources))
    new_starts = np.zeros(len(starts), np.int64)
    if len(starts) > 1:
        np.cumsum(lengths[:-1], out=new_starts[1:])
    first = sources[0]
    total = int(lengths.sum()) if len(lengths) else 0
    out = np.empty((total, *first.shape[1:]), first.dtype)
    for k, start, length, at in zip(
        which.tolist(), starts.tolist(), lengths.tolist(), new_starts.tolist(), strict=True
    ):
        if start < 0 or length < 0 or start + length > len(sources[k]):
            raise IndexError(f"row {start}+{length} is outside an array of {len(sources[k])}")
        out[at : at + length] = sources[k][start : start + length]
    return out, new_starts


def exchange_rows(buffer: NDArray[Any], slots: Rows, incoming: NDArray[Any]) -> NDArray[Any]:
    """For each i in order: give out ``buffer[slots[i]]`` and put ``incoming[i]`` in its place."""
    _check(slots, len(buffer))
    if len(slots) != len(incoming):
        raise IndexError(f"{len(slots)} slots for {len(incoming)} rows")
    out = np.empty_like(incoming)
    for i, slot in enumerate(slots.tolist()):
        out[i] = buffer[slot]
        buffer[slot] = incoming[i]
    return out


def _check(indices: NDArray[Any], size: int) -> None:
    if len(indices) and (int(indices.min()) < 0 or int(indices.max()) >= size):
        raise IndexError(f"an index from {indices.min()} to {indices.max()} is outside 0 to {size - 1}")
