"""Interface of file formats with a directory of row groups, such as Parquet: only the bytes needed are read.

A footer at the end of the file lists groups of rows and the byte ranges of their columns. Groups can be read in any
order, so a run resumes at the group of its next row. No function here waits: the engine reads the ranges.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from aiostream_data.rows.columns import Column
from aiostream_data.rows.records import ByteRange
from aiostream_data.rows.structure import Structure


class RowGroup(NamedTuple):
    """A group of consecutive rows of a file.

    Attributes:
        first_row: Number of the first row in the file.
        rows: Number of rows.
        ranges: Byte ranges that the wanted columns occupy.
        nbytes: Size of the wanted columns in memory, in bytes, as the file declares it.
    """

    first_row: int
    rows: int
    ranges: tuple[ByteRange, ...]
    nbytes: int

    @property
    def stored_nbytes(self) -> int:
        return sum(part.nbytes for part in self.ranges)


class TableRows(NamedTuple):
    """Decoded rows of a group.

    Attributes:
        structure: Structure of a row.
        leaves: One column per leaf of the structure.
        rows: Numbers of the rows in the file, ascending int64. Rows that a filter excludes are absent.
    """

    structure: Structure
    leaves: tuple[Column, ...]
    rows: NDArray[np.int64]

    @property
    def nbytes(self) -> int:
        return sum(leaf.nbytes for leaf in self.leaves) + self.rows.nbytes


class Directory(Protocol):
    """Directory of the row groups of one file."""

    @property
    def rows(self) -> int:
        """Number of rows in the file."""

    @property
    def groups(self) -> Sequence[RowGroup]:
        """The row groups to read, in the order of the file. Groups that a filter excludes are absent."""

    def decode(self, group: RowGroup, parts: Sequence[memoryview], *, filtered: bool = True) -> list[TableRows]:
        """Decode the rows of a group. Call it on a worker thread.

        Args:
            parts: Bytes of the ranges of the group, in order.
            filtered: False to also return the rows that a filter excludes.

        Raises:
            CorruptRecordError: The bytes are damaged.
            ArrowTypeError: A column has a type that this package cannot read.
        """


class TableFormat(Protocol):
    """Description of a file format with a directory. Frozen, hashable and picklable."""

    @property
    def name(self) -> str:
        """Short name of the format, such as ``parquet``."""

    @property
    def tail_nbytes(self) -> int:
        """Number of bytes at the end of a file that usually contain the directory."""

    def directory(self, url: str, nbytes: int, tail: memoryview) -> Directory | int:
        """Parse the directory of a file of ``nbytes`` bytes, given the last bytes of the file.

        Return the number of last bytes that the directory needs if ``tail`` is too short.

        Raises:
            CorruptRecordError: The file is damaged, or has another format.
            PlanError: A requested column does not exist.
        """


def groups_from(directory: Directory, first_row: int) -> list[RowGroup]:
    """Return the row groups that contain row ``first_row`` of the file or later rows."""
    return [group for group in directory.groups if group.first_row + group.rows > first_row]
