"""Compute the memory of the texts of a Parquet column whose dictionary has far fewer bytes than the texts may take.

A dictionary contains each text once, and the pages refer to it. So a file of some hundred bytes can contain gigabytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class TextColumn(NamedTuple):
    """A text column of one row group.

    Attributes:
        pyarrow: The module.
        file: File object that contains the column.
        metadata: Footer of the file, as PyArrow has parsed it.
        group: Number of the row group.
        path: Name of the column, with the names of the columns around it.
    """

    pyarrow: Any
    file: Any
    metadata: Any
    group: int
    path: str

    def nbytes(self) -> int:
        """Return the total size of the texts in bytes. PyArrow decodes the column without repeating texts.

        Raises:
            ArrowException: The column is damaged.
        """
        table = self._opened().read_row_group(self.group, columns=[self.path], use_threads=False)
        leaves = self._leaves_of(table.column(0).chunks)
        return sum(repeated_nbytes(leaf) if hasattr(leaf, "dictionary") else leaf.nbytes for leaf in leaves)

    def longest_nbytes(self, items: int) -> int | None:
        """Return the size of the longest text in the dictionary in bytes, or None if PyArrow has not read all texts.

        This decodes the first page only.

        Args:
            items: Number of texts in the dictionary.

        Raises:
            ArrowException: The column is damaged.
        """
        batch = next(self._opened().iter_batches(1, [self.group], columns=[self.path], use_threads=False), None)
        arrays = [] if batch is None else [*self._leaves_of([batch.column(0)])]
        if len(arrays) != 1 or not hasattr(arrays[0], "dictionary") or len(arrays[0].dictionary) < items:
            return None
        return int(_lengths(arrays[0]).max(initial=0))

    def _opened(self) -> Any:
        self.file.seek(0)
        open_file = self.pyarrow.parquet.ParquetFile
        return open_file(self.file, metadata=self.metadata, pre_buffer=False, read_dictionary=[self.path])

    def _leaves_of(self, chunks: Iterable[Any]) -> Iterator[Any]:
        for chunk in chunks:
            yield from _leaves(self.pyarrow, chunk)


def _leaves(pyarrow: Any, array: Any) -> Iterator[Any]:
    """Yield the arrays of an array that contain no other arrays."""
    kind = array.type
    if isinstance(kind, pyarrow.BaseExtensionType):
        yield from _leaves(pyarrow, array.storage)
    elif pyarrow.types.is_struct(kind):
        for number in range(kind.num_fields):
            yield from _leaves(pyarrow, array.field(number))
    elif pyarrow.types.is_map(kind):
        yield from _leaves(pyarrow, array.keys)
        yield from _leaves(pyarrow, array.items)
    elif pyarrow.types.is_nested(kind):
        yield from _leaves(pyarrow, array.values)
    else:
        yield array


def repeated_nbytes(array: Any) -> int:
    """Return the size of the texts of a dictionary array in bytes, if each text is stored once per row."""
    lengths = _lengths(array)
    counts = np.bincount(array.indices.drop_null().to_numpy(), minlength=len(lengths))
    return int(counts @ lengths)


def _lengths(array: Any) -> NDArray[np.int64]:
    """Return the sizes of the texts in the dictionary of an array in bytes."""
    from pyarrow import compute

    lengths: NDArray[np.int64] = compute.fill_null(compute.binary_length(array.dictionary), 0).to_numpy()
    return lengths.astype(np.int64)
