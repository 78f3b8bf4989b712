"""Do work for many rows at once; where it fails, find the row at fault and do it for the rows before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Leading(NamedTuple, Generic[T]):
    """What work gives for the rows before the one that it fails on.

    Attributes:
        done: Of consecutive parts of those rows; of all rows at once where it does not fail.
        rows: How many rows that is: the number of the row at fault.
        error: What it fails with on that row; None where it does not fail.
    """

    done: list[T]
    rows: int
    error: Exception | None


def leading(rows: int, work: Callable[[int, int], T]) -> Leading[T]:
    """Do work for rows; where it fails, again for some of them, until the row at fault is known.

    Each row before that one is given to the work about three times, at most.

    Args:
        work: Called with the first row (included) and the last one (excluded). May be called again for any of them.

    Raises:
        Exception: The work fails on all rows together, and on none of them alone.
    """
    done, error = _attempt(work, 0, rows)
    if error is None:
        return Leading(done, rows, None)
    if rows == 1:
        return Leading([], 0, error)
    found = _search(rows, work)
    if found is None:
        raise error
    return found


def _search(rows: int, work: Callable[[int, int], T]) -> Leading[T] | None:
    done: list[T] = []
    first, stop = 0, rows
    while stop - first > 1:
        middle = (first + stop) // 2
        made, error = _attempt(work, first, middle)
        if error is None:
            done += made
            first = middle
        else:
            stop = middle
    _, error = _attempt(work, first, stop)
    return None if error is None else Leading(done, first, error)


def _attempt(work: Callable[[int, int], T], first: int, stop: int) -> tuple[list[T], Exception | None]:
    # Its error is handled here, or it would be told as the cause of those that follow.
    try:
        return [work(first, stop)], None
    except Exception as error:  # noqa: BLE001 - returned
        return [], error
