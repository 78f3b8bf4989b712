"""Format in which each object is one record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import CorruptRecordError, PlanError
from aiostream_data.formats.base import SmallObjects
from aiostream_data.formats.cutting import Bytes
from aiostream_data.formats.long_record import LongRecord, column_of, whole_bytes
from aiostream_data.rows.columns import VarColumn


@dataclass(frozen=True, kw_only=True)
class WholeFileFormat:
    """Format with one ``bytes`` record per file, like ``tf.io.read_file`` mapped over ``Dataset.list_files``.

    An empty object yields one empty record.

    Attributes:
        max_record_nbytes: Maximum decompressed size of an object in bytes. A larger object raises an error.
    """

    max_record_nbytes: int = 1 << 30

    def __post_init__(self) -> None:
        if self.max_record_nbytes < 0:
            raise PlanError(f"max_record_nbytes must be at least 0, got {self.max_record_nbytes}")

    @property
    def name(self) -> str:
        return "whole_file"

    @property
    def whole(self) -> bool:
        return True

    @property
    def largest_nbytes(self) -> int:
        """Maximum size of a record in bytes."""
        return self.max_record_nbytes

    def is_one_record(self, nbytes: int | None) -> bool:
        """Return True unless the object is too long. See :class:`.HoldsOneRecord`."""
        return nbytes is None or nbytes <= self.max_record_nbytes

    def framer(self, url: str) -> WholeFileFramer:
        return WholeFileFramer(self, url)

    @property
    def split_proves_format(self) -> bool:
        """False: any bytes can be records of this format."""
        return False

    def split_objects(self, values: Bytes, bounds: NDArray[np.int64], most_rows: int) -> SmallObjects | None:
        """Return each object as one record; None if an object is too long. See :class:`.SplitsObjects`."""
        lengths = np.diff(bounds)
        if (lengths > self.max_record_nbytes).any() or len(lengths) > most_rows:
            return None
        return SmallObjects(VarColumn(values, bounds[:-1], lengths), np.ones(len(lengths), np.int64))

    def most_rows(self, values: Bytes, bounds: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.ones(len(bounds) - 1, np.int64)


class WholeFileFramer:
    """Framer that collects all bytes of one object into one record.

    If the object arrives as a single block, its bytes are not copied.
    """

    def __init__(self, description: WholeFileFormat, url: str) -> None:
        self._format = description
        self._url = url
        self._only: Bytes | None = None
        self._long: LongRecord | None = None
        self._nbytes = 0

    tail_nbytes = 0

    @property
    def held_nbytes(self) -> int:
        """Number of bytes of the object received so far."""
        return self._nbytes

    @property
    def record_nbytes(self) -> int:
        """Number of bytes of the object received so far."""
        return self._nbytes

    def feed(self, block: Bytes, headroom: int, most_rows: int = 1) -> Iterator[VarColumn]:
        """Buffer the block. Yields no records. See :meth:`.Framer.feed`."""
        fresh = block[headroom:]
        self._nbytes += len(fresh)
        if self._nbytes > self._format.max_record_nbytes:
            limit = self._format.max_record_nbytes
            raise CorruptRecordError(self._url, 0, f"the object is longer than max_record_nbytes={limit}")
        if len(fresh) and self._nbytes == len(fresh):
            self._only = fresh
        elif len(fresh):
            self._gather(fresh)
        yield from ()

    def _gather(self, fresh: Bytes) -> None:
        if self._long is None:
            self._long = LongRecord(None)
        if self._only is not None:
            self._long.take(self._only)
            self._only = None
        self._long.take(fresh)

    def finish(self) -> Iterator[VarColumn]:
        """Yield all bytes of the object as one record."""
        if self._only is not None:
            values, self._only = self._only, None
            data = whole_bytes(values)
            if data is not None:
                yield column_of(data)
            else:
                yield VarColumn(values, np.zeros(1, np.int64), np.array([len(values)], np.int64))
            return
        long, self._long = self._long or LongRecord(None), None
        yield column_of(long.data())
