"""Interfaces of formats that find large records in a file, so that each record is read into an object of its own.

A framer receives blocks of bytes, and the records of a block are copied into ``bytes`` objects later. For large records
these two copies take most of the time. If the headers of a local file are in the page cache, a format can find the
places of records before their bytes are read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeGuard

import numpy as np
from numpy.typing import NDArray

from aiostream_data.formats.base import Format
from aiostream_data.formats.cutting import CuttingFramer
from aiostream_data.rows.columns import LARGE_ROW_NBYTES, Column
from aiostream_data.rows.structure import Structure

OBJECT_NBYTES = LARGE_ROW_NBYTES
"""Minimum mean size in bytes of values that are read into an object each."""

RECORD_NBYTES = 1 << 20
"""Maximum size in bytes of a record that is a run of its own although runs are smaller."""

MOST_OBJECTS = 480
"""Maximum number of objects in a run. With the bytes between them, they must fit into one call of ``preadv``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordRun:
    """Consecutive records of a file, and the places of the large values in them.

    Attributes:
        start, stop: Range of bytes in the file.
        rows: Number of records.
        values: Offset in the file and size in bytes of each large value, in ascending order; int64, shape (values, 2).
        structure: Structure of the decoded records.
        columns: Function that returns the leaves of the structure, from the objects of the large values and an array of
            all bytes between them.
    """

    start: int
    stop: int
    rows: int
    values: NDArray[np.int64]
    structure: Structure
    columns: Callable[[Sequence[bytes], NDArray[np.uint8]], tuple[Column, ...]]

    @property
    def nbytes(self) -> int:
        """Number of bytes to read."""
        return self.stop - self.start

    @property
    def other_nbytes(self) -> int:
        """Number of bytes between the large values."""
        return self.nbytes - int(self.values[:, 1].sum())


def places_of(run: RecordRun, objects: Sequence[memoryview], others: memoryview) -> list[memoryview]:
    """Return the memory of all bytes of a run, in the order of the file.

    Args:
        objects: Memory of each large value.
        others: Memory of the bytes between them.
    """
    places: list[memoryview] = []
    at, used = run.start, 0
    for (value_at, nbytes), place in zip(run.values.tolist(), objects, strict=True):
        places += [others[used : used + value_at - at], place]
        used += value_at - at
        at = value_at + nbytes
    return [*places, others[used:]]


class RunFinder(Protocol):
    """Finder of large records in one file.

    Attributes:
        framer: A framer that knows what the finder knows of the records before the end of the last run.
    """

    framer: CuttingFramer

    def find(self, file: int, start: int, stop: int, sizes: Sequence[int]) -> list[RecordRun]:
        """Return runs from byte ``start`` on, without gaps. Call it on a worker thread.

        The result is empty if the bytes at ``start`` are not a record, or damaged, or no large record, or not in the
        page cache. A framer then reads the rest of the file.

        Args:
            file: Descriptor of the open file.
            stop: Size of the file in bytes.
            sizes: Maximum size in bytes of each run, except of a run of one record. The last also limits all later
                runs and, if it exceeds ``RECORD_NBYTES``, the size of records.
        """


class FindsRuns(Format, Protocol):
    """A format that finds large records."""

    def run_finder(self, url: str, decoder: object) -> RunFinder | None:
        """Return a finder for one uncompressed file; None if ``decoder`` does not decode records as the finder does."""


def finds_runs(format: Format) -> TypeGuard[FindsRuns]:
    """Return True if a format finds large records, in less time than ``isinstance()`` of a protocol."""
    return hasattr(format, "run_finder")
