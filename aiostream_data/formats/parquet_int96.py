"""Read row groups of Parquet with timestamps of 96 bits, which reach beyond the range of nanoseconds in 64 bits.

PyArrow reads them in nanoseconds, which reach from 1677 to 2262. Other timestamps wrap around. So the seconds are read
and checked. A column of a row group with a timestamp outside of this range is read in microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import CorruptRecordError
from aiostream_data.formats.parquet_texts import leaves_of

_NS: Final = 10**9
_MOST_NS: Final = (2**63 - 1) // _NS
"""Whole seconds of the largest timestamp in nanoseconds. All seconds between this number and its negative fit."""

_MOST_US: Final = (2**63 - 1) // 10**6


@dataclass(frozen=True)
class GroupsReader:
    """Reader of row groups whose bytes are in memory.

    Attributes:
        pyarrow: The module.
        url: URL of the file, for error messages.
        file: File object that contains the columns.
        metadata: Footer of the file, as PyArrow has parsed it.
        columns: Paths of the columns to read; None for all columns.
        timestamps: Paths of the columns of 96 bits among them.
        offset: Offset of the row groups in the file, for error messages.
    """

    pyarrow: Any
    url: str
    file: Any
    metadata: Any
    columns: Sequence[str] | None
    timestamps: Sequence[str]
    offset: int

    def table(self, numbers: Sequence[int]) -> Any:
        """Return the rows of consecutive row groups as one ``pyarrow.Table``.

        Raises:
            CorruptRecordError: Timestamps do not fit into 64 bits.
            ArrowException: A row group is damaged, or does not match the checksum of a page.
        """
        return self._with_microseconds(numbers, self._too_far(numbers))

    def tables(self, numbers: Sequence[int]) -> list[Any]:
        """Return the rows as one table, or as one table for each row group if a timestamp needs microseconds.

        The type of a column thus depends on its row group, not on the row groups that are read together.

        Raises:
            CorruptRecordError, ArrowException: As for :meth:`table`.
        """
        if len(numbers) > 1 and self._too_far(numbers):
            return [self.table([number]) for number in numbers]
        return [self.table(numbers)]

    def _read(self, numbers: Sequence[int], columns: Sequence[str] | None, unit: str = "ns") -> Any:
        self.file.seek(0)
        source = self.pyarrow.parquet.ParquetFile(
            self.file,
            metadata=self.metadata,
            pre_buffer=False,
            coerce_int96_timestamp_unit=unit,
            page_checksum_verification=True,
        )
        table = source.read_row_groups(list(numbers), columns=columns, use_threads=False)
        return table if len(numbers) == 1 else table.combine_chunks()

    def _with_microseconds(self, numbers: Sequence[int], names: Sequence[str]) -> Any:
        table = self._read(numbers, self.columns)
        coarse = self._read(numbers, self.columns, "us") if names else table
        for name in names:
            at = table.column_names.index(name)
            table = table.set_column(at, coarse.field(at), coarse.column(at))
        return table

    def _too_far(self, numbers: Sequence[int]) -> list[str]:
        """Return the names of the columns with a timestamp that does not fit into 64 bits of nanoseconds.

        Raises:
            CorruptRecordError: Microseconds cannot represent the timestamps either.
        """
        if not self.timestamps:
            return []
        seconds = self._read(numbers, self.timestamps, "s")
        most = max((_farthest(some) for column in seconds.columns for some in self._numbers(column)), default=0)
        if most < _MOST_NS:
            return []
        fine, coarse = (self._read(numbers, self.timestamps, unit) for unit in ("ns", "us"))
        columns = zip(seconds.columns, fine.columns, coarse.columns, strict=True)
        parts = [list(zip(*map(self._numbers, each), strict=True)) for each in columns]
        return [name for name, some in zip(seconds.column_names, parts, strict=True) if self._is_wrapped(name, some)]

    def _is_wrapped(self, name: str, parts: Sequence[Sequence[NDArray[np.int64]]]) -> bool:
        """Return True if a number of nanoseconds wrapped around.

        Args:
            parts: The same timestamps in seconds, nanoseconds and microseconds.
        """
        if any(_farthest(seconds) > _MOST_US for seconds, _, _ in parts):
            raise self._error(name, "has a timestamp outside the range of datetime64[us]. Write the file again")
        if all((fine // _NS == seconds).all() for seconds, fine, _ in parts):
            return False
        if any((fine != 1000 * coarse).any() for _, fine, coarse in parts):  # both wrap around alike
            reason = "has years outside 1677 to 2262, and nanoseconds. Write its timestamps in microseconds"
            raise self._error(name, reason)
        return True

    def _numbers(self, column: Any) -> Iterator[NDArray[np.int64]]:
        """Yield the numbers of all timestamps in a column that are not missing."""
        for leaf in leaves_of(self.pyarrow, column.chunks):
            if self.pyarrow.types.is_timestamp(leaf.type):
                yield leaf.drop_null().cast(self.pyarrow.int64()).to_numpy(zero_copy_only=False)

    def _error(self, name: str, reason: str) -> CorruptRecordError:
        return CorruptRecordError(self.url, self.offset, f"column {name!r} {reason}")


def _farthest(seconds: NDArray[np.int64]) -> int:
    """Return the largest distance from 1970 in seconds."""
    return max(-int(seconds.min()), int(seconds.max())) if len(seconds) else 0
