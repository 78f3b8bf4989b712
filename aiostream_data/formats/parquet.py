"""Parquet files, decoded by PyArrow: only the footer and the wanted columns of the wanted row groups are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import CorruptRecordError, MissingExtraError, PlanError
from aiostream_data.formats.known_ranges import KnownRanges
from aiostream_data.formats.parquet_filters import Filters, may_match, row_mask
from aiostream_data.formats.row_groups import RowGroup, TableRows
from aiostream_data.rows.arrow.importing import read_arrow
from aiostream_data.rows.columns import Column, VarColumn
from aiostream_data.rows.records import ByteRange
from aiostream_data.rows.structure import LEAF, NULLABLE, Structure, graft
from aiostream_data.safe_url import safe_url

_MAGIC: Final = b"PAR1"
_ENCRYPTED: Final = b"PARE"
_END_NBYTES: Final = 8
"""Bytes after the footer: its length, and the magic bytes."""


_WIDTHS: Final = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT96": 12}
"""Bytes of a value in memory, if not 8. Encoded values can be far smaller."""


def load_pyarrow() -> Any:
    """Import PyArrow with its Parquet reader.

    Raises:
        MissingExtraError: PyArrow is not installed.
    """
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("Parquet files need the extra: pip install 'aiostream-data[parquet]'") from error
    return pyarrow


@dataclass(frozen=True, kw_only=True)
class ParquetFormat:
    """Format of Parquet files.

    Attributes:
        columns: Names of the columns to read, in the order of the elements; None for all columns. ``a.b`` selects the
            field ``b`` of the struct ``a``.
        filters: Conditions on columns, in disjunctive normal form; see :data:`.parquet_filters.Filters`.
        partitions: True to add the ``name=value`` parts of the URL as text columns.
    """

    columns: tuple[str, ...] | None = None
    filters: Filters = ()
    partitions: bool = False

    @property
    def name(self) -> str:
        return "parquet"

    @property
    def tail_nbytes(self) -> int:
        return 64 << 10

    def directory(self, url: str, nbytes: int, tail: memoryview) -> ParquetDirectory | int:
        end = bytes(tail[-_END_NBYTES:])
        if len(end) < _END_NBYTES or nbytes < _END_NBYTES + len(_MAGIC) or end[4:] not in (_MAGIC, _ENCRYPTED):
            raise CorruptRecordError(url, max(0, nbytes - _END_NBYTES), "the file does not end as a Parquet file does")
        if end[4:] == _ENCRYPTED:
            raise CorruptRecordError(url, nbytes - 4, "the Parquet footer is encrypted, which is not supported")
        needed = int.from_bytes(end[:4], "little") + _END_NBYTES
        if needed > nbytes - len(_MAGIC):
            raise CorruptRecordError(url, nbytes - _END_NBYTES, "the Parquet footer is longer than the file")
        if needed > len(tail):
            return needed
        return ParquetDirectory(self, url, nbytes, tail)


class ParquetDirectory:
    """Footer of one Parquet file.

    Args:
        format: Columns and filters.
        url: URL of the file, for error messages.
        nbytes: Size of the file in bytes.
        tail: The last bytes of the file, with the footer. PyArrow reads at least 64 KiB, or the whole file.
    """

    def __init__(self, format: ParquetFormat, url: str, nbytes: int, tail: memoryview) -> None:
        self._pyarrow = load_pyarrow()
        self._format = format
        self._url = url
        self._nbytes = nbytes
        start = nbytes - len(tail)
        file = KnownRanges(nbytes, [ByteRange(start, nbytes)], [tail])
        with self._explained(start):
            self._metadata = self._pyarrow.parquet.read_metadata(file)
            self._schema = self._metadata.schema.to_arrow_schema()
        self._check_columns()

    @property
    def rows(self) -> int:
        return int(self._metadata.num_rows)

    @cached_property
    def groups(self) -> Sequence[RowGroup]:
        """Row groups whose statistics do not exclude all rows."""
        return [self._all[number] for number in self._numbers]

    @cached_property
    def _all(self) -> list[RowGroup]:
        found, first = [], 0
        for number in range(self._metadata.num_row_groups):
            group = self._group(number, first)
            found.append(group)
            first += group.rows
        if first != self.rows:
            raise CorruptRecordError(self._url, 0, f"the footer lists {self.rows} rows, but its row groups {first}")
        return found

    @cached_property
    def _numbers(self) -> list[int]:
        filters, metadata = self._format.filters, self._metadata
        return [n for n, group in enumerate(self._all) if group.rows and may_match(filters, metadata.row_group(n))]

    def _group(self, number: int, first: int) -> RowGroup:
        group = self._metadata.row_group(number)
        ranges: list[ByteRange] = []
        nbytes = 0
        for position in range(group.num_columns):
            column = group.column(position)
            if not self._is_read(column.path_in_schema):
                continue
            start = column.data_page_offset
            if column.has_dictionary_page and column.dictionary_page_offset is not None:
                start = min(start, column.dictionary_page_offset)
            stop = start + column.total_compressed_size
            sizes = column.total_uncompressed_size, column.num_values, group.num_rows
            if not 0 <= start <= stop <= self._nbytes or min(sizes) < 0:
                raise CorruptRecordError(
                    self._url, 0, f"the footer places column {column.path_in_schema!r} at bytes {start} to {stop}"
                )
            ranges.append(ByteRange(start, stop))
            nbytes += max(column.total_uncompressed_size, _WIDTHS.get(column.physical_type, 8) * column.num_values)
        return RowGroup(first, group.num_rows, _joined(ranges), nbytes)

    def decode(self, group: RowGroup, parts: Sequence[memoryview], *, filtered: bool = True) -> list[TableRows]:
        number = self._all.index(group)
        file = KnownRanges(self._nbytes, group.ranges, parts)
        with self._explained(group.ranges[0].start if group.ranges else 0):
            source = self._pyarrow.parquet.ParquetFile(file, metadata=self._metadata, pre_buffer=False)
            table = source.read_row_group(number, columns=self._read_names(), use_threads=False)
        if len(table) != group.rows:
            raise CorruptRecordError(self._url, 0, f"row group {number} has {len(table)} rows instead of {group.rows}")
        rows = group.first_row + np.arange(group.rows, dtype=np.int64)
        if filtered and self._format.filters:
            mask = row_mask(self._format.filters, table)
            table, rows = table.filter(mask), rows[np.asarray(mask)]
        if self._format.columns is not None:
            table = table.select(self._top_names())
        return list(self._rows_of(table, rows))

    def _rows_of(self, table: Any, rows: NDArray[np.int64]) -> Iterator[TableRows]:
        extra = partitions_of(self._url) if self._format.partitions else {}
        start = 0
        for chunk in read_arrow(table):
            leaves: list[Column] = []
            kinds: list[Structure] = []
            for leaf in chunk.leaves:
                leaves += [leaf.column] if leaf.valid is None else [leaf.column, leaf.valid]
                kinds.append(LEAF if leaf.valid is None else NULLABLE)
            structure = graft(chunk.structure, kinds)
            names = (*structure.names, *extra)
            structure = Structure("dict", names, (*structure.children, *[LEAF] * len(extra)))
            leaves += [_constant(value, len(chunk)) for value in extra.values()]
            yield TableRows(structure, tuple(leaves), rows[start : start + len(chunk)])
            start += len(chunk)

    def _check_columns(self) -> None:
        names = set(self._schema.names)
        wanted = [*(self._format.columns or ()), *(name for part in self._format.filters for name, _, _ in part)]
        for name in wanted:
            if name.partition(".")[0] not in names:
                raise PlanError(
                    f"{safe_url(self._url)} has no column {name!r}. Its columns are {', '.join(map(repr, names))}."
                )

    def _top_names(self) -> list[str]:
        return list(dict.fromkeys(name.partition(".")[0] for name in self._format.columns or ()))

    def _read_names(self) -> list[str] | None:
        """Return the columns to read, for the elements and for the filters."""
        if self._format.columns is None:
            return None
        return list(
            dict.fromkeys([*self._format.columns, *(name for part in self._format.filters for name, _, _ in part)])
        )

    def _is_read(self, path: str) -> bool:
        names = self._read_names()
        return names is None or any(path == name or path.startswith(f"{name}.") for name in names)

    @contextmanager
    def _explained(self, offset: int) -> Iterator[None]:
        """Raise errors of PyArrow as errors that name the file."""
        try:
            yield
        except (self._pyarrow.ArrowException, OSError, ValueError) as error:
            raise CorruptRecordError(self._url, offset, f"PyArrow cannot read the file: {error}") from error


def partitions_of(url: str) -> dict[str, str]:
    """Return the ``name=value`` parts of the folders in a URL, as Hive writes them."""
    folders = safe_url(url).partition("?")[0].split("/")[:-1]
    return dict(part.split("=", 1) for part in folders if "=" in part and not part.startswith("="))


def _constant(value: str, rows: int) -> VarColumn:
    data = np.frombuffer(value.encode(), np.uint8)
    return VarColumn(data, np.zeros(rows, np.int64), np.full(rows, len(data), np.int64), "str")


def _joined(ranges: list[ByteRange]) -> tuple[ByteRange, ...]:
    """Return ascending ranges in which overlapping and adjacent ranges are joined."""
    joined: list[ByteRange] = []
    for part in sorted(ranges, key=lambda each: each.start):
        if joined and part.start <= joined[-1].stop:
            joined[-1] = ByteRange(joined[-1].start, max(part.stop, joined[-1].stop))
        else:
            joined.append(part)
    return tuple(joined)
