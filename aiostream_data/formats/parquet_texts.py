"""Compute the memory of the texts of a Parquet column whose dictionary has far fewer bytes than the texts may take.

A dictionary contains each text once, and the pages refer to it. So a file of some hundred bytes can contain gigabytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aiostream_data.formats.parquet_pages import PagesSize, StoredColumn

REPEATED_NBYTES: Final = 32 << 20
"""Bytes of texts that the dictionaries of groups that are read together may repeat without being measured."""

_REPEATED_SHARE: Final = 4
"""The texts are not measured if they take at most this multiple of the bytes that the footer declares."""

_LENGTH_NBYTES: Final = 4
_MOST_ITEMS: Final = 1 << 14
"""Maximum number of texts that are measured one by one."""

_FEW_NBYTES: Final = 1 << 20
_MOST_RATIO: Final = 64
"""A page that declares more than this multiple of its stored bytes may be damaged. Its size is not reserved."""

_CODECS: Final = {0: None, 1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd"}
"""PyArrow's names of the compressions of pages, by their numbers; None for no compression. LZ4 has several forms."""


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
        leaves = leaves_of(self.pyarrow, table.column(0).chunks)
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
        arrays = [] if batch is None else [*leaves_of(self.pyarrow, [batch.column(0)])]
        if len(arrays) != 1 or not hasattr(arrays[0], "dictionary") or len(arrays[0].dictionary) < items:
            return None
        return int(_lengths(arrays[0]).max(initial=0))

    def _opened(self) -> Any:
        self.file.seek(0)
        open_file = self.pyarrow.parquet.ParquetFile
        return open_file(self.file, metadata=self.metadata, pre_buffer=False, read_dictionary=[self.path])


def leaves_of(pyarrow: Any, chunks: Iterable[Any]) -> Iterator[Any]:
    """Yield the arrays of a column that contain no other arrays."""
    for chunk in chunks:
        yield from _leaves(pyarrow, chunk)


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

    found = compute.binary_length(array.dictionary)
    if found.null_count:
        found = compute.fill_null(found, 0)  # imports pandas
    lengths: NDArray[np.int64] = found.to_numpy()
    return lengths.astype(np.int64)


def _longest_item(pyarrow: Any, stored: memoryview, nbytes: int, items: int, codec: int) -> int | None:
    """Return the size of the longest text of a dictionary in bytes. Return None if only PyArrow can tell.

    Args:
        stored: The dictionary page without its header.
        nbytes: Size of the page after decompression.
        items: Number of texts.
        codec: Number of the compression of the column.

    Raises:
        ArrowException: The page is damaged.
    """
    if items > _MOST_ITEMS or codec not in _CODECS or nbytes > max(_FEW_NBYTES, _MOST_RATIO * len(stored)):
        return None
    name = _CODECS[codec]
    data = stored if name is None else memoryview(pyarrow.decompress(stored, nbytes, name))
    at = longest = 0
    for _ in range(items):
        size = int.from_bytes(data[at : at + _LENGTH_NBYTES], "little")
        at += _LENGTH_NBYTES + size
        longest = max(longest, size)
    return longest if at <= len(data) else None


def texts_nbytes(texts: TextColumn, column: StoredColumn, pages: PagesSize, stored: memoryview, codec: int) -> int:
    """Return the size of the texts of a column in bytes, or more if the difference is small.

    Args:
        stored: Bytes of the column.
        codec: Number of the compression of the column.

    Raises:
        ArrowException: The column is damaged.
    """
    page, items = stored[pages.dictionary.start : pages.dictionary.stop], pages.dictionary_items
    longest = _longest_item(texts.pyarrow, page, pages.dictionary_nbytes, items, codec)
    if longest is None:
        longest = texts.longest_nbytes(items)
    if longest is not None and pages.repeated * longest <= max(REPEATED_NBYTES, _REPEATED_SHARE * column.nbytes):
        return pages.repeated * longest
    return texts.nbytes()
