"""Process many rows with one call of a function.

If the call fails, find the failing row and process the rows before it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Leading(NamedTuple, Generic[T]):
    """Results for all rows before the first row that fails.

    Attributes:
        done: Results for consecutive ranges of rows. If no row fails, a single result for all rows.
        rows: Number of processed rows, which is also the index of the failing row.
        error: Error of the failing row; None if no row fails.
    """

    done: list[T]
    rows: int
    error: Exception | None


def leading(rows: int, work: Callable[[int, int], T]) -> Leading[T]:
    """Process all rows with one call of ``work``. If the call fails, search for the failing row by bisection.

    Each row before the failing row is processed about three times at most.

    Args:
        work: Function that is called with a range of rows: first (inclusive) and stop (exclusive). ``work`` may be
            called again for any row.

    Raises:
        Exception: ``work`` fails for all rows together, but not for any single row.
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
    # Leave the except block before the next attempt: otherwise this error becomes the context of later errors.
    try:
        return [work(first, stop)], None
    except Exception as error:  # noqa: BLE001 - returned
        return [], error
