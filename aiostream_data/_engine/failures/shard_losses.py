"""What one open shard has lost: for its place in a state, and for the account, which goes by the order of the rows.

Every loss takes a record number, as a record does. So the rows behind it have the same ids wherever reading began, and
the number of the next record is the number of rows given plus the number of losses in front of it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from threading import Lock
from typing import Final, NamedTuple

from aiostream_data._engine.failures.failed_row import DamagedPart, Failed
from aiostream_data.errors import CorruptRecordError, DataError, StorageError
from aiostream_data.formats.base import Loss
from aiostream_data.rows.row_ids import RowIds

MOST_AT_ONCE: Final = 1024
"""Losses of one shard that are cut at once, and may wait for the account in front of the next rows."""


class Lost(NamedTuple):
    """One loss, as light as it can be: there may be millions.

    Attributes:
        url: The shard.
        split, ordinal: Name the record in whose place it is.
        what: Damaged bytes, or the error that ended the reading of the shard.
    """

    url: str
    split: int
    ordinal: int
    what: Loss | DataError | StorageError

    @property
    def error(self) -> DataError | StorageError:
        """What would have been raised."""
        if isinstance(self.what, Loss):
            return CorruptRecordError(self.url, self.what.offset, self.what.reason)
        return self.what

    def told(self) -> Failed:
        """Return what is told of it."""
        what = self.what
        offset = what.offset if isinstance(what, (Loss, CorruptRecordError)) else None
        if isinstance(what, Loss) and what.nbytes is not None:
            damage = DamagedPart("records", offset, what.nbytes)
        else:
            damage = DamagedPart("rest of the shard", offset, None) if self.ordinal else DamagedPart("shard", 0, None)
        return Failed.lost(self.error, RowIds.of_source(self.split, [self.ordinal]), damage)


class ShardLosses:
    """Losses of a shard from some record on. Added by the reader, taken by the merge; places from any thread.

    Args:
        url, split: The shard.
        given: Rows of the shard that were given before it was opened.
        before: Losses in front of these rows, and of the next one.
    """

    def __init__(self, url: str = "", split: int = 0, given: int = 0, before: int = 0) -> None:
        self._url = url
        self._split = split
        self._opened_at = given
        self._before = before
        self._added = before
        self._behind: list[int] = []  # of each loss, how many rows of the shard are in front of it
        self._waiting: deque[tuple[int, Lost]] = deque()
        self._lock = Lock()

    @property
    def waiting(self) -> int:
        """Losses that nobody has taken yet."""
        return len(self._waiting)

    def add(self, ordinal: int, what: Loss | DataError | StorageError) -> None:
        """Note a loss in the place of a record."""
        rows = ordinal - self._added
        self._added += 1
        with self._lock:
            self._behind.append(rows)
        self._waiting.append((rows, Lost(self._url, self._split, ordinal, what)))

    def rows_before_next(self, received: int) -> int | None:
        """Return how many more rows come before the next loss, when so many were received; None if none is known."""
        return self._waiting[0][0] - self._opened_at - received if self._waiting else None

    def take(self, received: int) -> list[Lost]:
        """Return the losses up to the next row, when so many were received since the shard was opened."""
        taken = []
        while self._waiting and self._waiting[0][0] <= self._opened_at + received:
            taken.append(self._waiting.popleft()[1])
        return taken

    def before(self, given: int) -> int:
        """Return how many losses are in front of row number ``given - 1``; one right behind it is not counted."""
        with self._lock:
            return self._before + bisect_left(self._behind, given)

    def forget(self, given: int) -> None:
        """Discard what is known of losses before row number ``given``: no state will ask for an earlier row."""
        with self._lock:
            count = bisect_left(self._behind, given)
            self._before += count
            del self._behind[:count]
