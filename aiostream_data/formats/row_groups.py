"""Interface of file formats with a directory of row groups, such as Parquet: only the bytes needed are read.

A footer at the end of the file lists groups of rows and the byte ranges of their columns. Groups can be read in any
order, so a run resumes at the group of its next row. No function here waits: the engine reads the ranges.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, Self, TypeAlias, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import MemoryBudgetError, PlanError
from aiostream_data.rows.columns import Column, column_nbytes
from aiostream_data.rows.lent_memory import LendsMemory
from aiostream_data.rows.records import ByteRange
from aiostream_data.rows.structure import LEAF, Structure

T = TypeVar("T")

Ranges: TypeAlias = Sequence[ByteRange]

Steps: TypeAlias = Generator[Ranges, Sequence[memoryview], T]
"""Generator that yields byte ranges of a file, receives their bytes, and returns a result."""


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

    @classmethod
    def of(cls, columns: Mapping[str, Column] | Column, first_row: int) -> Self:
        """Return consecutive rows of a file from ``first_row`` on.

        Args:
            columns: Columns of equal length by name, for rows that are dicts; or one column, whose elements are the
                rows.
        """
        if isinstance(columns, Mapping):
            structure, leaves = Structure("dict", tuple(columns), (LEAF,) * len(columns)), tuple(columns.values())
        else:
            structure, leaves = LEAF, (columns,)
        return cls(structure, leaves, first_row + np.arange(len(leaves[0]), dtype=np.int64))

    @property
    def nbytes(self) -> int:
        return sum(map(column_nbytes, self.leaves)) + self.rows.nbytes


class Directory(Protocol):
    """Directory of the row groups of one file."""

    @property
    def rows(self) -> int:
        """Number of rows in the file."""

    @property
    def types(self) -> Mapping[str, str | None]:
        """Types of the columns for error messages, which all files share, or None for a column without values.

        Empty if the types of files may differ.
        """

    def groups_from(self, first_row: int) -> Iterable[RowGroup]:
        """Iterate over the row groups that contain row ``first_row`` of the file or later rows, in the file's order.

        Groups that a filter excludes are absent. Runs on the event loop, and must not raise: the groups are checked
        before, in :meth:`.TableFormat.directory`.
        """

    def decoded_nbytes(self, group: RowGroup, parts: Sequence[memoryview]) -> int:
        """Return the memory that decoding of a group needs in addition to its stored bytes, as the file declares it.

        Raises:
            CorruptRecordError: The bytes are damaged.
        """

    def decode(self, group: RowGroup, parts: Sequence[memoryview], *, filtered: bool = True) -> list[TableRows]:
        """Decode the rows of a group. Call it on a worker thread.

        Args:
            parts: Bytes of the ranges of the group, in order.
            filtered: False to also return the rows that a filter excludes.

        Raises:
            CorruptRecordError: The bytes are damaged.
            ArrowTypeError: A column has a type that this package cannot read.
        """


@runtime_checkable
class JoinsGroups(Protocol):
    """Directory that reads small row groups together. If one of them is damaged, they are read one by one."""

    def separated(self, group: RowGroup) -> Sequence[RowGroup]:
        """Return the row groups that a group from :meth:`Directory.groups_from` consists of."""


@runtime_checkable
class UsesPool(Protocol):
    """Directory that copies columns to memory of a pool.

    Attributes:
        pool: The pool, which the engine sets; None to use new memory.
    """

    pool: LendsMemory | None


@runtime_checkable
class DeletesRows(Protocol):
    """Directory of a file of which some rows are deleted. :meth:`Directory.decode` omits them if it filters rows."""

    def check_not_deleted(self, rows: NDArray[np.int64]) -> None:
        """Check that rows of the file are not deleted by their numbers.

        Raises:
            StateMismatchError: A row is deleted.
        """

    def check_kept(self, group: RowGroup, parts: Sequence[memoryview], rows: NDArray[np.int64]) -> None:
        """Check that rows of a group are not deleted by their values. Call it on a worker thread.

        Args:
            parts: Bytes of the ranges of the group, in order.
            rows: Numbers of the rows in the file.

        Raises:
            StateMismatchError: A row is deleted.
            CorruptRecordError: The bytes are damaged.
        """


@runtime_checkable
class TableFormat(Protocol):
    """Description of a file format with a directory. Frozen, hashable and picklable."""

    @property
    def name(self) -> str:
        """Short name of the format, such as ``parquet``."""

    def directory(self, url: str, nbytes: int) -> Steps[Directory]:
        """Return a generator that reads and parses the directory of a file of ``nbytes`` bytes.

        The generator yields lists of byte ranges, and receives their bytes, or a :class:`MemoryBudgetError` if they
        exceed the memory limit. It may then yield fewer bytes. Run each step on a worker thread.

        Raises:
            CorruptRecordError: The file is damaged, or has another format.
            PlanError: A requested column does not exist.
        """


@runtime_checkable
class DeclaresTypes(Protocol):
    """Format to whose columns the user can give types with ``schema=``."""

    @property
    def declared(self) -> Sequence[tuple[str, str]]:
        """Names of columns, and the types to which their values are converted."""


def joined(ranges: Iterable[ByteRange], gap: int = 0) -> tuple[ByteRange, ...]:
    """Return ascending ranges in which overlapping and near ranges are joined.

    Args:
        gap: Maximum number of bytes between joined ranges.
    """
    found: list[ByteRange] = []
    for part in sorted(ranges, key=lambda each: each.start):
        if found and part.start <= found[-1].stop + gap:
            found[-1] = ByteRange(found[-1].start, max(part.stop, found[-1].stop))
        else:
            found.append(part)
    return tuple(found)


def advance(steps: Steps[T], parts: Sequence[memoryview] | MemoryBudgetError | None) -> tuple[Ranges, T | None]:
    """Run a generator up to the next ranges that it needs, or up to its result.

    Args:
        parts: Bytes of the ranges before, or the error to raise instead; None in the first call.

    Raises:
        PlanError: The generator returned nothing.
        MemoryBudgetError: The generator needs the ranges that exceed the memory limit.
    """
    try:
        if isinstance(parts, MemoryBudgetError):
            ranges = steps.throw(parts)
        else:
            ranges = next(steps) if parts is None else steps.send(parts)
    except StopIteration as end:
        if end.value is None:
            raise PlanError(
                f"{getattr(steps, '__qualname__', 'a generator')}() returned None. Return the result."
            ) from None
        return (), end.value
    return ranges, None
