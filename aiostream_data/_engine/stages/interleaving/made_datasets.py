"""Inner datasets that a user function has returned, until they are opened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.sources.files_read import BegunFile, FileRows, FilesRead
from aiostream_data._engine.stages.interleaving.inner_rows import Inner, rows_of_each
from aiostream_data._engine.stages.interleaving.inner_sizes import mean_nbytes
from aiostream_data.plan.operators import Batch
from aiostream_data.rows.lineage import Lineage
from aiostream_data.rows.records import Chunk


class SmallDatasets(NamedTuple):
    """Consecutive small datasets.

    Attributes:
        inners: The datasets.
        rows: Number of rows of each dataset, int64.
        outer: Lineage of the elements from which they were made.
        files: Rows of each dataset if they are files that were read, else empty.
    """

    inners: Sequence[Inner]
    rows: NDArray[np.int64]
    outer: Lineage
    files: Sequence[FileRows]


class MadeDatasets:
    """Inner datasets that the user's function returned, in order.

    Args:
        inners: The datasets.
        outer: Lineage of the elements from which they were made. It can have more rows, at the end.
        read: Rows of the datasets that are small files; None if they are no files.

    Attributes:
        inners, outer: The arguments.
        rows: Number of rows of each dataset, int64; -1 unless the dataset is small.
        mean_nbytes: Estimated mean size in bytes of a dataset in memory.
    """

    def __init__(self, inners: Sequence[Inner], outer: Lineage, read: FilesRead | None = None) -> None:
        self.inners, self.outer, self._read = inners, outer, read
        self._next = 0
        self.mean_nbytes = 0.0
        if read is None:
            self.rows = rows_of_each(inners)
            self.mean_nbytes = mean_nbytes(inners)
        else:
            self.rows = np.full(len(inners), -1, np.int64)
            for place, file in read.files.items():
                self.rows[place] = file.rows

    @property
    def left(self) -> int:
        """Number of datasets that were not taken."""
        return len(self.inners) - self._next

    def take(self) -> tuple[Inner, Lineage, BegunFile | None]:
        """Take the next dataset. Return it, the lineage of its outer row, and its first rows if it was begun."""
        place, self._next = self._next, self._next + 1
        begun = None if self._read is None else self._read.begun.get(place)
        return self.inners[place], self.outer.slice(place, self._next), begun

    def take_small(self, most_nbytes: int) -> SmallDatasets:
        """Take the small datasets before the next other one: as many as ``most_nbytes`` bytes, and at least one."""
        fitting = max(1, int(most_nbytes / max(self.mean_nbytes, 1.0)))
        rows = self.rows[self._next : self._next + fitting]
        large = np.flatnonzero(rows < 0)
        return self._take(self._next + (int(large[0]) if len(large) else len(rows)))

    def rows_of(self, files: Sequence[FileRows]) -> Chunk | None:
        """Return the rows of consecutive files that were read."""
        if self._read is None or self._read.chunk is None or not files:
            return None
        rows = self._read.chunk.slice(files[0].first, files[-1].first + files[-1].rows)
        return rows if len(rows) else None

    def put_back(self, count: int) -> None:
        """Put back the last ``count`` datasets that were taken. Those with batches, and files, are no longer small."""
        self._next -= count
        for place in range(self._next, self._next + count):
            if self._read is not None or isinstance(self.inners[place], Batch):
                self.rows[place] = -1

    def _take(self, stop: int) -> SmallDatasets:
        start, self._next = self._next, stop
        files = () if self._read is None else [self._read.files[place] for place in range(start, stop)]
        return SmallDatasets(self.inners[start:stop], self.rows[start:stop], self.outer.slice(start, stop), files)
