"""Lost records of one open shard, used to compute the shard's saved position and to count losses.

Every loss (damaged part of a shard) has its own record number, like a record. Therefore, the rows after a loss have the
same ids, no matter where reading began. The number of the next record is the number of emitted rows plus the number of
earlier losses.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from threading import Lock
from typing import Final, NamedTuple

from aiostream_data._engine.failures.failed_row import DamagedPart, Failed, ShardError
from aiostream_data.errors import CorruptRecordError
from aiostream_data.formats.base import Loss
from aiostream_data.rows.row_ids import RowIds

MOST_AT_ONCE: Final = 1024
"""Maximum losses of one shard that a hop may find, and maximum losses that may wait to be logged."""


class Lost(NamedTuple):
    """One loss (lost records of a shard). Losses are stored compactly, because a shard can have millions of losses.

    Attributes:
        url: URL of the shard.
        split, ordinal: Row id that the lost record would have had.
        what: The damaged bytes, or the error that ended the reading of the shard.
    """

    url: str
    split: int
    ordinal: int
    what: Loss | ShardError

    @property
    def error(self) -> ShardError:
        """Error that the reader would raise if the source had no error policy."""
        if isinstance(self.what, Loss):
            return CorruptRecordError(self.url, self.what.offset, self.what.reason)
        return self.what

    def told(self) -> Failed:
        """Describe the loss for the log of failed records."""
        what = self.what
        offset = what.offset if isinstance(what, (Loss, CorruptRecordError)) else None
        if isinstance(what, Loss) and what.nbytes is not None:
            damage = DamagedPart("records", offset, what.nbytes)
        else:
            damage = DamagedPart("rest of the shard", offset, None) if self.ordinal else DamagedPart("shard", 0, None)
        return Failed.lost(self.error, RowIds.of_source(self.split, [self.ordinal]), damage)


class ShardLosses:
    """Losses (lost records) of one open shard.

    The reader of the shard adds losses, and the operation that merges all shards removes losses.

    Any thread may call :meth:`before` and :meth:`forget`.

    Args:
        url, split: URL and split number of the shard.
        given: Number of the shard's rows that were emitted before this reader opened the shard.
        before: Number of losses before the next row of the shard.
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
        """Number of losses that the merge has not removed."""
        return len(self._waiting)

    def add(self, ordinal: int, what: Loss | ShardError) -> None:
        """Add a loss that has the record number ``ordinal``."""
        rows = ordinal - self._added
        self._added += 1
        with self._lock:
            self._behind.append(rows)
        self.put(rows, Lost(self._url, self._split, ordinal, what))

    def put(self, rows: int, lost: Lost) -> None:
        """Add a loss behind the first ``rows`` rows, for a reader whose saved position needs no losses."""
        self._waiting.append((rows, lost))

    def rows_before_next(self, received: int) -> int | None:
        """Return the number of rows between row ``received`` and the next loss, or None if no loss is stored."""
        return self._waiting[0][0] - self._opened_at - received if self._waiting else None

    def take(self, received: int) -> list[Lost]:
        """Remove and return the losses that precede row number ``received`` (counted from 0) of this reader."""
        taken = []
        while self._waiting and self._waiting[0][0] <= self._opened_at + received:
            taken.append(self._waiting.popleft()[1])
        return taken

    def before(self, given: int) -> int:
        """Return the number of losses that precede row number ``given`` (counted from 1) of the shard."""
        with self._lock:
            return self._before + bisect_left(self._behind, given)

    def forget(self, given: int) -> None:
        """Discard the stored losses that precede row number ``given`` (counted from 1), and keep only their number."""
        with self._lock:
            count = bisect_left(self._behind, given)
            self._before += count
            del self._behind[:count]
