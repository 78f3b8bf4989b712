"""NumPy files: arrays (``.npy``) and archives of arrays (``.npz``), read by rows of the first axis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from aiostream_data.codecs.npy_header import MAGIC, NpyHeader
from aiostream_data.errors import CorruptRecordError, PlanError
from aiostream_data.formats.compressed_tables import MARKS_NBYTES, compressed_kind, other_kind
from aiostream_data.formats.npy_arrays import StoredArray, types_of
from aiostream_data.formats.npy_steps import first_bytes, header_steps
from aiostream_data.formats.npz_members import members_of
from aiostream_data.formats.row_groups import RowGroup, Steps, TableRows
from aiostream_data.rows.columns import Column
from aiostream_data.rows.structure import Structure
from aiostream_data.safe_url import safe_url

_GROUP_NBYTES: Final = 4 << 20
"""Size of the rows that are read together."""

_GROUP_ROWS: Final = 1 << 18
MAX_EMPTY_ROWS: Final = 1 << 24
"""Maximum number of rows of an array whose rows have no bytes."""


@dataclass(frozen=True, kw_only=True)
class NpyFormat:
    """Format of ``.npy`` and ``.npz`` files.

    Attributes:
        fields: Fields of a structured array, or names of the arrays of an archive, in the order of the elements. None
            for all.
    """

    fields: tuple[str, ...] | None = None

    @property
    def name(self) -> str:
        return "npy"

    def directory(self, url: str, nbytes: int) -> Steps[NpyDirectory]:
        """Read the header of an array, or the directory of an archive and the headers of its arrays."""
        start = yield from first_bytes(nbytes)
        if start[:2] == b"PK":
            arrays = yield from members_of(url, nbytes, self.fields)
            return NpyDirectory(url, arrays, is_archive=True)
        if start[: len(MAGIC)] != MAGIC:
            marks = start[:MARKS_NBYTES]
            reason = f"this is neither a .npy file nor a .npz archive. {other_kind(marks)}"
            raise CorruptRecordError(url, 0, compressed_kind(marks) or reason)
        header = yield from header_steps(url, nbytes, start)
        self._check_size(url, header, nbytes)
        return NpyDirectory(url, [StoredArray(url, "", header, header.nbytes)], self.fields)

    def _check_size(self, url: str, header: NpyHeader, nbytes: int) -> None:
        if header.nbytes + header.data_nbytes != nbytes:
            raise CorruptRecordError(
                url,
                header.nbytes,
                f"an array of shape {header.shape} and {header.dtype} needs {header.data_nbytes} bytes, but the file "
                f"has {nbytes - header.nbytes}",
            )


class NpyDirectory:
    """Arrays of one file that have the same number of rows.

    Args:
        url: URL of the file, for error messages.
        arrays: The arrays.
        fields: Fields of a structured array to read, or None for all.
        is_archive: True if an element is a dict with a row of each array.

    Raises:
        CorruptRecordError: An array has no rows, or two arrays differ in their number of rows.
        PlanError: A requested field does not exist.
    """

    def __init__(
        self, url: str, arrays: list[StoredArray], fields: tuple[str, ...] | None = None, is_archive: bool = False
    ) -> None:
        self._url = url
        self._arrays = arrays
        self._fields = fields
        self._is_archive = is_archive
        for array in arrays:
            self._check_rows(array)
        self._check_fields()

    @property
    def rows(self) -> int:
        return self._arrays[0].rows

    @property
    def types(self) -> Mapping[str, str | None]:
        found: dict[str, str | None] = {}
        for array in self._arrays:
            found |= types_of(array.header.dtype, array.header.shape[1:], array.name)
        wanted = self._fields
        return found if wanted is None else {path: found[path] for path in found if path.partition(".")[0] in wanted}

    def _check_rows(self, array: StoredArray) -> None:
        name = f"the array {array.name!r}" if self._is_archive else "the array"
        cure = ". Choose other arrays with fields=" if self._is_archive else ""
        if not array.header.shape:
            raise CorruptRecordError(self._url, array.start, f"{name} is a single value without rows{cure}")
        if array.rows != self.rows:
            raise CorruptRecordError(
                self._url,
                array.start,
                f"{name} has {array.rows} rows, but {self._arrays[0].name!r} has {self.rows}{cure}",
            )
        if not array.row_nbytes and array.rows > MAX_EMPTY_ROWS:
            raise CorruptRecordError(self._url, array.start, f"{name} has {array.rows} rows without bytes")

    def _check_fields(self) -> None:
        names = self._arrays[0].header.dtype.names or ()
        for name in self._fields or ():
            if name not in names:
                known = f"Its fields are {', '.join(map(repr, names))}." if names else "Its items have no fields."
                raise PlanError(f"{safe_url(self._url)} has no field {name!r}. {known}")

    def groups_from(self, first_row: int) -> Iterator[RowGroup]:
        is_whole = any(array.is_whole for array in self._arrays)
        row_nbytes = sum(array.row_nbytes for array in self._arrays)
        step = max(
            min(_GROUP_ROWS, _GROUP_NBYTES // max(1, row_nbytes)), *(array.min_rows for array in self._arrays), 1
        )
        if is_whole:
            first_row, step = (0, max(1, self.rows)) if first_row < self.rows else (self.rows, 1)
        for first in range(first_row, self.rows, step):
            stop = min(first + step, self.rows)
            ranges = tuple(part for array in self._arrays for part in array.ranges(first, stop))
            copied = sum(array.copied_nbytes for array in self._arrays)
            yield RowGroup(first, stop - first, ranges, copied * (stop - first))

    def decoded_nbytes(self, group: RowGroup, parts: Sequence[memoryview]) -> int:
        return group.nbytes

    def decode(self, group: RowGroup, parts: Sequence[memoryview], *, filtered: bool = True) -> list[TableRows]:
        given = iter(parts)
        structures: list[Structure] = []
        leaves: list[Column] = []
        for array in self._arrays:
            count = len(array.ranges(group.first_row, group.first_row + group.rows))
            structure, columns = array.leaves([next(given) for _ in range(count)], group.rows, self._fields)
            structures.append(structure)
            leaves += columns
        rows = np.arange(group.first_row, group.first_row + group.rows, dtype=np.int64)
        names = tuple(array.name for array in self._arrays)
        structure = Structure("dict", names, tuple(structures)) if self._is_archive else structures[0]
        return [TableRows(structure, tuple(leaves), rows)]
