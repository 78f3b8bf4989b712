"""Iterables that a worker process read to their end, because generators cannot be sent to another process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from aiostream_data.executors.failure import Failure


@dataclass(frozen=True)
class ListedRows:
    """Items of an iterator.

    This class is not a list, so the items get the same row ids as those of the iterator itself.

    Attributes:
        rows: The items before the end or the error.
        failure: Error that the iterator raised after these items, or None.
    """

    rows: list[Any]
    failure: Failure | None = None

    def __iter__(self) -> Iterator[Any]:
        yield from self.rows
        if self.failure is not None:
            raise self.failure.as_error()


def listed(value: Any) -> Any:
    """Read an iterator to its end, and return its items. Return any other value unchanged."""
    if not hasattr(type(value), "__next__") or hasattr(value, "plan"):
        return value
    rows: list[Any] = []
    try:
        rows.extend(value)
    except Exception as error:  # noqa: BLE001 - raised after the items before it
        return ListedRows(rows, Failure(error))
    return ListedRows(rows)
