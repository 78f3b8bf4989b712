"""Gather (copy) rows by index: the pure-Python version of ``gather.pyx``.

Each function checks all indices before it copies any rows. An index outside its array raises ``IndexError``. Arrays
with different dtypes, row shapes or lengths raise ``ValueError``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]
NewArray: TypeAlias = Callable[[tuple[int, ...], np.dtype[Any]], NDArray[Any]]


def take_rows(source: NDArray[Any], rows: Rows) -> NDArray[Any]:
    """Return a new array with ``source[rows[i]]`` at index i. Negative row numbers are not allowed."""
    _check_inside(rows, len(source))
    return source[rows]


def take_rows_many(sources: Sequence[NDArray[Any]], which: NDArray[np.int32], rows: Rows) -> NDArray[Any]:
    """Return a new array with ``sources[which[i]][rows[i]]`` at index i.

    All sources must have the same dtype and row shape.
    """
    check_alike(sources)
    check_lengths(which, rows)
    first = sources[0]
    _check_inside(which, len(sources))
    out = np.empty((len(rows), *first.shape[1:]), first.dtype)
    for k, source in enumerate(sources):
        mine = np.flatnonzero(which == k)
        if len(mine):
            _check_inside(rows[mine], len(source))
            out[mine] = source[rows[mine]]
    return out


def compact(
    values: NDArray[Any], starts: Rows, lengths: Rows, new_array: NewArray = np.empty
) -> tuple[NDArray[Any], Rows]:
    """Copy rows of variable length to contiguous memory. Return the copied values and the new start of each row.

    Args:
        new_array: Function ``new_array(shape, dtype)`` that returns an uninitialized array for the values.
    """
    return compact_many([values], np.zeros(len(starts), np.int32), starts, lengths, new_array)


def compact_many(
    sources: Sequence[NDArray[Any]],
    which: NDArray[np.int32],
    starts: Rows,
    lengths: Rows,
    new_array: NewArray = np.empty,
) -> tuple[NDArray[Any], Rows]:
    """Concatenate ``sources[which[i]][starts[i] : starts[i] + lengths[i]]`` for all i. Return values and starts.

    Args:
        new_array: Function ``new_array(shape, dtype)`` that returns an uninitialized array for the values.
    """
    check_alike(sources)
    check_lengths(which, starts, lengths)
    _check_inside(which, len(sources))
    spans = list(zip(which.tolist(), starts.tolist(), lengths.tolist(), strict=True))
    for k, start, length in spans:
        if start < 0 or length < 0 or start + length > len(sources[k]):
            raise IndexError(f"row {start}+{length} is outside an array of {len(sources[k])}")
    stops = np.cumsum(lengths)
    first = sources[0]
    out = new_array((int(stops[-1]) if len(stops) else 0, *first.shape[1:]), first.dtype)
    for (k, start, length), stop in zip(spans, stops.tolist(), strict=True):
        out[stop - length : stop] = sources[k][start : start + length]
    return out, stops - lengths


def copy_arrays(targets: Sequence[NDArray[Any]], sources: Sequence[NDArray[Any]]) -> None:
    """Copy each source to its target. All arrays are contiguous, and they do not overlap.

    Raises:
        ValueError: A target does not fit its source, is read-only, or an array has gaps.
    """
    check_copies(targets, sources)
    for target, source in zip(targets, sources, strict=True):
        target[...] = source


def check_copies(targets: Sequence[NDArray[Any]], sources: Sequence[NDArray[Any]]) -> None:
    """Check the arguments of :func:`copy_arrays`."""
    if len(targets) != len(sources):
        raise ValueError(f"{len(targets)} targets and {len(sources)} sources go together")
    for target, source in zip(targets, sources, strict=True):
        if target.shape != source.shape or target.dtype != source.dtype:
            raise ValueError(f"cannot copy {source.dtype} {source.shape} to {target.dtype} {target.shape}")
        if not (target.flags.c_contiguous and source.flags.c_contiguous and target.flags.writeable):
            raise ValueError("an array has gaps, or a target is read-only")


def exchange_rows(buffer: NDArray[Any], slots: Rows, incoming: NDArray[Any]) -> NDArray[Any]:
    """Replace ``buffer[slots[i]]`` by ``incoming[i]``, for each i in order. Return the replaced rows."""
    check_alike([buffer, incoming])
    check_lengths(slots, incoming)
    _check_inside(slots, len(buffer))
    incoming = incoming.copy() if np.may_share_memory(buffer, incoming) else incoming
    out = np.empty(incoming.shape, incoming.dtype)
    for i, slot in enumerate(slots.tolist()):
        out[i] = buffer[slot]
        buffer[slot] = incoming[i]
    return out


def exchange_spans(
    arena: NDArray[Any],
    used: int,
    held_starts: Rows,
    held_lengths: Rows,
    slots: Rows,
    values: NDArray[Any],
    starts: Rows,
    lengths: Rows,
) -> tuple[NDArray[Any], Rows, Rows, int]:
    """Replace the span of slot ``slots[i]`` by ``values[starts[i] : starts[i] + lengths[i]]``, for each i in order.

    Slot k holds ``arena[held_starts[k] : held_starts[k] + held_lengths[k]]``. The incoming spans are appended to the
    arena behind row ``used``, so there must be room for them.

    Returns:
        The replaced rows in contiguous memory, their starts and lengths, and the number of used rows of the arena.
    """
    check_alike([arena, values])
    check_arena(arena, held_starts, held_lengths)
    check_lengths(slots, starts, lengths)
    _check_inside(slots, len(held_starts))
    packed, new_starts = compact(values, starts, lengths)
    if not 0 <= used <= len(arena) - len(packed):
        raise IndexError(f"{len(packed)} rows do not fit behind row {used} of an arena of {len(arena)}")
    arena[used : used + len(packed)] = packed
    old_starts = exchange_rows(held_starts, slots, new_starts + used)
    old_lengths = exchange_rows(held_lengths, slots, lengths)
    out, out_starts = compact(arena, old_starts, old_lengths)
    return out, out_starts, old_lengths, used + len(packed)


def check_arena(arena: NDArray[Any], held_starts: Rows, held_lengths: Rows) -> None:
    """Raise ``ValueError`` unless the arrays of :func:`exchange_spans` are contiguous, writable and of one length."""
    for array in (arena, held_starts, held_lengths):
        if not array.flags.c_contiguous or not array.flags.writeable:
            raise ValueError("the arena and its spans must be contiguous and writable")
    if held_starts.dtype != np.int64 or held_lengths.dtype != np.int64 or held_starts.shape != held_lengths.shape:
        raise ValueError("the spans must be two int64 arrays of one length")


def total_length(lengths: NDArray[np.int64]) -> int:
    """Return the sum of all lengths."""
    return int(lengths.sum())


def length_range(lengths: NDArray[np.int64]) -> tuple[int, int]:
    """Return the least and the greatest length.

    Raises:
        ValueError: There are no lengths.
    """
    return int(lengths.min()), int(lengths.max())


def are_packed(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> bool:
    """Return True if each row begins where the row before it ends.

    Raises:
        ValueError: The arrays differ in length.
    """
    if len(starts) != len(lengths):
        raise ValueError(f"{len(starts)} starts and {len(lengths)} lengths")
    return bool((starts[1:] == starts[:-1] + lengths[:-1]).all())


def check_alike(arrays: Sequence[NDArray[Any]]) -> None:
    """Raise ``ValueError`` unless ``arrays`` is non-empty and all arrays share dtype and row shape."""
    if not arrays:
        raise ValueError("expected at least one array")
    first = arrays[0]
    for array in arrays:
        if array.ndim == 0 or array.dtype != first.dtype or array.shape[1:] != first.shape[1:]:
            raise ValueError(f"rows {array.dtype}{array.shape[1:]} beside rows {first.dtype}{first.shape[1:]}")


def check_lengths(*arrays: NDArray[Any]) -> None:
    """Raise ``ValueError`` unless all arrays have the same number of rows."""
    if len({len(array) for array in arrays}) > 1:
        raise ValueError(f"arrays of {[len(array) for array in arrays]} rows go together")


def _check_inside(indices: NDArray[Any], size: int) -> None:
    if len(indices) and (int(indices.min()) < 0 or int(indices.max()) >= size):
        raise IndexError(f"an index from {indices.min()} to {indices.max()} is outside 0 to {size - 1}")
