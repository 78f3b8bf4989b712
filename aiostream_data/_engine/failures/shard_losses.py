"""Losses of one open shard, for its position in a state and for the loss account.

Every loss uses one record number, as a record does. Later rows therefore have the same ids wherever reading began. The
number of the next record is the number of emitted rows plus the number of losses before it.
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
"""Maximum number of losses of one shard that are found in one hop or wait to be logged before the next rows."""


class Lost(NamedTuple):
    """One loss, in a compact form because a shard can have millions.

    Attributes:
        url: URL of the shard.
        split, ordinal: Row id that the lost record would have.
        what: Damaged bytes, or the error that ended the reading of the shard.
    """

    url: str
    split: int
    ordinal: int
    what: Loss | DataError | StorageError

    @property
    def error(self) -> DataError | StorageError:
        """Error that would be raised without an error policy."""
        if isinstance(self.what, Loss):
            return CorruptRecordError(self.url, self.what.offset, self.what.reason)
        return self.what

    def told(self) -> Failed:
        """Describe the loss for the dead-letter log."""
        what = self.what
        offset = what.offset if isinstance(what, (Loss, CorruptRecordError)) else None
        if isinstance(what, Loss) and what.nbytes is not None:
            damage = DamagedPart("records", offset, what.nbytes)
        else:
            damage = DamagedPart("rest of the shard", offset, None) if self.ordinal else DamagedPart("shard", 0, None)
        return Failed.lost(self.error, RowIds.of_source(self.split, [self.ordinal]), damage)


class ShardLosses:
    """Losses of an open shard. The reader adds losses, and the merge takes them.

    :meth:`before` and :meth:`forget` are safe from any thread.

    Args:
        url, split: URL and split number of the shard.
        given: Rows of the shard emitted before this reader opened it.
        before: Losses before the next row of the shard.
    """

    def __init__(self, url: str = "", split: int = 0, given: int = 0, before: int = 0) -> None:
        self._url = url
        self._split = split
        self._opened_at = given
        self._before = before
        self._added = before
        self._behind: list[int] = []  # for each loss, the number of the shard's rows before it
        self._waiting: deque[tuple[int, Lost]] = deque()
        self._lock = Lock()

    @property
    def waiting(self) -> int:
        """Number of losses that the merge has not taken."""
        return len(self._waiting)

    def add(self, ordinal: int, what: Loss | DataError | StorageError) -> None:
        """Add a loss at the record number ``ordinal``."""
        rows = ordinal - self._added
        self._added += 1
        with self._lock:
            self._behind.append(rows)
        self._waiting.append((rows, Lost(self._url, self._split, ordinal, what)))

    def rows_before_next(self, received: int) -> int | None:
        """Return the number of rows between the first ``received`` rows and the next loss; None without a loss."""
        return self._waiting[0][0] - self._opened_at - received if self._waiting else None

    def take(self, received: int) -> list[Lost]:
        """Remove and return the losses before the row that follows the first ``received`` rows of this reader."""
        taken = []
        while self._waiting and self._waiting[0][0] <= self._opened_at + received:
            taken.append(self._waiting.popleft()[1])
        return taken

    def before(self, given: int) -> int:
        """Return the number of losses before row number ``given - 1``, without losses directly after that row."""
        with self._lock:
            return self._before + bisect_left(self._behind, given)

    def forget(self, given: int) -> None:
        """Discard the positions of losses before row number ``given``."""
        with self._lock:
            count = bisect_left(self._behind, given)
            self._before += count
            del self._behind[:count]
