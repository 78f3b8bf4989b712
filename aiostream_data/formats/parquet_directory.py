"""Directory of one Parquet file: its row groups, and how PyArrow decodes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from copy import copy
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import CorruptRecordError, PlanError
from aiostream_data.formats.arrow_rows import explained, load_pyarrow, table_rows
from aiostream_data.formats.column_paths import is_in, selected_columns, top_of, tops_of, type_at
from aiostream_data.formats.declared_types import Declared, DeclaredColumns
from aiostream_data.formats.group_filters import GroupFilter
from aiostream_data.formats.joined_groups import JoinedGroups
from aiostream_data.formats.known_ranges import KnownRanges, NoBytes, part_of
from aiostream_data.formats.object_sizes import leaf_nbytes
from aiostream_data.formats.parquet_filters import Filters, row_mask
from aiostream_data.formats.parquet_footer import FIXED_NBYTES, codecs_of, short_statistics
from aiostream_data.formats.parquet_int96 import GroupsReader
from aiostream_data.formats.parquet_pages import StoredColumn, pages_size
from aiostream_data.formats.parquet_texts import REPEATED_NBYTES, TextColumn, texts_nbytes
from aiostream_data.formats.plain_types import shown_type
from aiostream_data.formats.row_groups import RowGroup, Steps, TableRows, joined
from aiostream_data.rows.records import ByteRange
from aiostream_data.rows.structure import Structure
from aiostream_data.safe_url import safe_url

_MAGIC: Final = b"PAR1"
_ENCRYPTED: Final = b"PARE"
_END_NBYTES: Final = 8
"""Bytes after the footer: its length, and the magic bytes."""

_TAIL_NBYTES: Final = 64 << 10
"""Number of bytes at the end of a file that usually contain the footer."""

_ROW_NBYTES: Final = 8
"""Bytes of the number of a row in memory."""

_VALUE_NBYTES: Final = 8
"""Minimum memory of a value of variable length in bytes. Encoded values can be far smaller."""

_LENGTH_NBYTES: Final = 4
"""Size in bytes of the length in front of each value of variable length, if the values are not encoded."""

_INT96: Final = "INT96"
_CHECK_NBYTES: Final = 24
"""Memory of a timestamp of 96 bits while its range is checked."""


def read_footer(url: str, nbytes: int) -> Steps[ParquetDirectory]:
    """Read the footer of a file. Call :meth:`ParquetDirectory.listed` before the directory is used.

    Raises:
        CorruptRecordError: The file is no Parquet file, or its footer is damaged.
    """
    size = min(nbytes, _TAIL_NBYTES)
    (tail,) = yield [ByteRange(nbytes - size, nbytes)]
    needed = _needed(url, nbytes, bytes(tail[-_END_NBYTES:]))
    if needed > len(tail):
        (tail,) = yield [ByteRange(nbytes - needed, nbytes)]
    return ParquetDirectory(url, nbytes, tail)


def _needed(url: str, nbytes: int, end: bytes) -> int:
    """Return the number of last bytes that contain the footer."""
    if len(end) < _END_NBYTES or nbytes < _END_NBYTES + len(_MAGIC) or end[4:] not in (_MAGIC, _ENCRYPTED):
        raise CorruptRecordError(url, max(0, nbytes - _END_NBYTES), "the file does not end as a Parquet file does")
    if end[4:] == _ENCRYPTED:
        raise CorruptRecordError(url, nbytes - 4, "the Parquet footer is encrypted, which is not supported")
    needed = int.from_bytes(end[:4], "little") + _END_NBYTES
    if needed > nbytes - len(_MAGIC):
        raise CorruptRecordError(url, nbytes - _END_NBYTES, "the Parquet footer is longer than the file")
    return needed


class ParquetDirectory:
    """Footer of one Parquet file.

    Args:
        url: URL of the file, for error messages.
        nbytes: Size of the file in bytes.
        tail: The last bytes of the file, with the footer. PyArrow reads at least 64 KiB, or the whole file.
    """

    def __init__(self, url: str, nbytes: int, tail: memoryview) -> None:
        self._pyarrow = load_pyarrow("parquet", "Parquet", "parquet")
        self._url = url
        self._nbytes = nbytes
        start = nbytes - len(tail)
        file = KnownRanges(nbytes, [ByteRange(start, nbytes)], [tail])
        self._footer = tail[-int.from_bytes(tail[-_END_NBYTES:-4], "little") - _END_NBYTES : -_END_NBYTES]
        with explained(self._pyarrow, self._url, start):
            self._metadata = self._pyarrow.parquet.read_metadata(file)
            self._schema = self._metadata.schema.to_arrow_schema()
            self._names = self._schema.names
            schema = self._metadata.schema
            sizes = {field.name: leaf_nbytes(self._pyarrow, field.type) for field in self._schema}
            leaves = (schema.column(number) for number in range(len(schema)))
            self._leaves = [_leaf(leaf, sizes.get(top_of(leaf.path, sizes), 0)) for leaf in leaves]
        self._columns_read: tuple[str, ...] | None = None
        self._filters: Filters = ()
        self._partitions: tuple[str, ...] = ()
        self._declared: Declared = ()

    def selecting(
        self,
        columns: tuple[str, ...] | None,
        filters: Filters,
        partitions: tuple[str, ...] = (),
        declared: Declared = (),
    ) -> ParquetDirectory:
        """Return the directory of the same file for other columns and filters. Call it before any other method.

        Args:
            columns: Paths of the columns to read, in the order of the elements; None for all columns.
            filters: Conditions on columns of the file.
            partitions: Names of the partitions, which are columns of text.
            declared: Types to which columns are converted, before filters are applied.
        """
        selected = copy(self)
        selected._columns_read, selected._filters = columns, filters
        selected._partitions, selected._declared = partitions, declared
        return selected

    def listed(self) -> ParquetDirectory:
        """Check and list the row groups. Return this directory.

        Raises:
            CorruptRecordError: The footer is damaged.
            PlanError: The file lacks a column.
            TableSchemaError: A column is not converted to its declared type.
        """
        self._check_columns()
        with explained(self._pyarrow, self._url, 0):
            self._check_chunks()
            self._numbers = self._matching()
            self._types = self._found_types()
        return self

    def _check_chunks(self) -> None:
        """Check the metadata of all chunks of the columns to read.

        PyArrow's objects for metadata end the process if a chunk is damaged. Its reader raises an error instead, before
        it reads the first byte.
        """
        file = NoBytes(self._nbytes)
        groups = list(range(self._metadata.num_row_groups))
        source = self._pyarrow.parquet.ParquetFile(file, metadata=self._metadata, pre_buffer=True)
        try:
            source.read_row_groups(groups, columns=self._read_names(), use_threads=False)
        except OSError:
            if not file.was_read:
                raise

    @property
    def schema(self) -> Any:
        """The ``pyarrow.Schema`` of the whole file."""
        return self._schema

    @property
    def rows(self) -> int:
        return int(self._metadata.num_rows)

    @property
    def types(self) -> Mapping[str, str | None]:
        return self._types

    def _found_types(self) -> dict[str, str | None]:
        paths = self._names if self._columns_read is None else self._columns_read
        kinds = {path: type_at(self._pyarrow, self._schema, path) for path in paths}
        for path in (path for path, kind in kinds.items() if kind is None):
            raise self._lacks_field(path)
        return {path: shown_type(self._pyarrow, kind) for path, kind in kinds.items()} | {
            name: kind for name, kind in self._converted.types.items() if name in kinds
        }

    def groups_from(self, first_row: int, is_unwanted: Callable[[RowGroup], bool] | None = None) -> Iterator[RowGroup]:
        """Yield the row groups from a row on whose statistics do not exclude all rows, and that are not unwanted."""
        wanted = (number for number in self._numbers if is_unwanted is None or not is_unwanted(self._all[number]))
        return self._joined.from_row(first_row, wanted)

    def separated(self, group: RowGroup) -> list[RowGroup]:
        return self._joined.separated(group)

    def decoded_nbytes(self, group: RowGroup, parts: Sequence[memoryview]) -> int:
        numbers = self._joined.numbers(group)
        most = REPEATED_NBYTES // max(1, len(numbers))
        return sum(self._decoded_nbytes(number, group, parts, most) for number in numbers)

    def _decoded_nbytes(self, number: int, group: RowGroup, parts: Sequence[memoryview], most: int) -> int:
        """Return the memory that decoding of one row group of ``group`` needs.

        Args:
            most: The texts of a column are measured if its dictionary could repeat more than this number of bytes.
        """
        nbytes = (_ROW_NBYTES + self._converted.row_nbytes) * self._all[number].rows
        for column in self._columns(number):
            stored = part_of(column.place, group.ranges, parts)
            pages = pages_size(self._url, column, stored)
            copies = 2 if column.is_object else 1
            nbytes += max(column.nbytes, pages.nbytes) + (copies - 1) * pages.nbytes
            if column.is_text and pages.repeated * pages.dictionary_nbytes > most:
                file = KnownRanges(self._nbytes, group.ranges, parts)
                texts = TextColumn(self._pyarrow, file, self._metadata, number, column.path)
                with explained(self._pyarrow, self._url, column.place.start):
                    codec = self._codecs[number][column.position]
                    nbytes += copies * texts_nbytes(texts, column, pages, stored, codec)
        return nbytes

    @cached_property
    def _all(self) -> list[RowGroup]:
        found, first = [], 0
        for number in range(self._metadata.num_row_groups):
            rows = self._metadata.row_group(number).num_rows
            if rows < 0:
                raise CorruptRecordError(self._url, 0, f"the footer declares {rows} rows of row group {number}")
            columns = list(self._columns(number))
            nbytes = _ROW_NBYTES * rows + sum(column.nbytes for column in columns)
            found.append(RowGroup(first, rows, joined(column.place for column in columns), nbytes))
            first += rows
        if first != self.rows:
            raise CorruptRecordError(self._url, 0, f"the footer lists {self.rows} rows, but its row groups {first}")
        return found

    @cached_property
    def _codecs(self) -> list[list[int]]:
        return codecs_of(self._url, self._footer)

    @cached_property
    def _joined(self) -> JoinedGroups:
        return JoinedGroups(self._all)

    def _matching(self) -> list[int]:
        """Return the numbers of the row groups that may contain rows which satisfy the filters."""
        filters = self._filters
        groups = [number for number, group in enumerate(self._all) if group.rows]
        if not (filters and groups):
            return groups
        wanted = self._filtered_leaves()
        sizes = {number: self._leaves[number].fixed_nbytes for number in wanted.values()}
        short = short_statistics(self._url, self._footer, sizes)
        kinds = {path: type_at(self._pyarrow, self._schema, path) for path in wanted}
        kinds = {path: self._converted.target(path, kind) for path, kind in kinds.items() if kind is not None}
        known = GroupFilter(self._pyarrow, filters, kinds)
        return [number for number in groups if known.may_match(self._metadata_of(number, wanted, short))]

    def _filtered_leaves(self) -> dict[str, int]:
        """Return the numbers of the leaves that filters name. A path with two meanings is absent."""
        named = {name for part in self._filters for name, _, _ in part}
        paths = [leaf.path for leaf in self._leaves]
        return {path: number for number, path in enumerate(paths) if path in named and paths.count(path) == 1}

    def _metadata_of(self, group: int, columns: Mapping[str, int], without: Set[tuple[int, int]]) -> dict[str, Any]:
        metadata = self._metadata.row_group(group)
        used = {name: number for name, number in columns.items() if (group, number) not in without}
        return {name: metadata.column(number) for name, number in used.items()}

    def _columns(self, number: int) -> Iterator[StoredColumn]:
        """Yield the columns to read of a row group. Call :meth:`listed` before."""
        group = self._metadata.row_group(number)
        for position, leaf in enumerate(self._leaves):
            if not self._is_read(leaf.path):
                continue
            column = group.column(position)
            if column.physical_type != leaf.kind:
                raise CorruptRecordError(
                    self._url, 0, f"a chunk of column {leaf.path!r} has the type {column.physical_type}"
                )
            start = column.data_page_offset
            if column.has_dictionary_page and column.dictionary_page_offset:  # 0 means that there is none
                start = min(start, column.dictionary_page_offset)
            stop = start + column.total_compressed_size
            values, decoded = column.num_values, column.total_uncompressed_size
            if not 0 <= start <= stop <= self._nbytes or min(values, decoded) < 0:
                raise CorruptRecordError(
                    self._url, 0, f"the footer places column {leaf.path!r} at bytes {start} to {stop}"
                )
            nbytes = max(decoded, (leaf.fixed_nbytes or _VALUE_NBYTES) * values)
            nbytes += (leaf.object_nbytes + _CHECK_NBYTES * (leaf.kind == _INT96)) * values
            item_nbytes = leaf.fixed_nbytes or _LENGTH_NBYTES
            is_text = not leaf.fixed_nbytes
            place = ByteRange(start, stop)
            is_object = leaf.object_nbytes > 0
            yield StoredColumn(leaf.path, place, values, nbytes, item_nbytes, is_text, is_object, position)

    def table(self, group: RowGroup, parts: Sequence[memoryview]) -> Any:
        """Return the columns for elements and filters, as stored, as a ``pyarrow.Table`` with all rows of the group.

        Raises:
            CorruptRecordError: The bytes are damaged.
        """
        numbers = self._joined.numbers(group)
        with explained(self._pyarrow, self._url, _start(group)):
            table = self._reader(group, parts).table(numbers)
        self._check_rows([table], numbers, group.rows)
        return table

    def _reader(self, group: RowGroup, parts: Sequence[memoryview]) -> GroupsReader:
        file, names = KnownRanges(self._nbytes, group.ranges, parts), self._read_names()
        timestamps = [leaf.path for leaf in self._leaves if leaf.kind == _INT96 and self._is_read(leaf.path)]
        return GroupsReader(self._pyarrow, self._url, file, self._metadata, names, timestamps, _start(group))

    def _check_rows(self, tables: Sequence[Any], numbers: Sequence[int], rows: int) -> None:
        found = [len(table) for table in tables]
        expected = [rows] if len(tables) == 1 else [self._all[number].rows for number in numbers]
        if found != expected:
            reason = f"row group {numbers[0]} has {sum(found)} rows instead of {sum(expected)}"
            raise CorruptRecordError(self._url, 0, reason)

    def decode(self, group: RowGroup, parts: Sequence[memoryview], *, filtered: bool = True) -> list[TableRows]:
        numbers = self._joined.numbers(group)
        with explained(self._pyarrow, self._url, _start(group)):
            tables = self._reader(group, parts).tables(numbers)
        self._check_rows(tables, numbers, group.rows)
        found, first = [], group.first_row
        for table in tables:
            rows = first + np.arange(len(table), dtype=np.int64)
            found += self._decoded(table, rows, _start(group), filtered)
            first += len(table)
        return found

    def _decoded(self, table: Any, rows: NDArray[np.int64], offset: int, filtered: bool) -> list[TableRows]:
        table = self._converted.table(table)
        if filtered and self._filters:
            mask = row_mask(self._filters, table, self._url)
            table, rows = table.filter(mask), rows[np.asarray(mask)]
        paths = self._columns_read
        if paths is not None:
            table = selected_columns(self._pyarrow, table, paths) if self._filters else table.select(self._tops())
        if not table.column_names:
            return [TableRows(Structure("dict", (), ()), (), rows)]
        with explained(self._pyarrow, self._url, offset, rows):
            return table_rows(table, rows)

    def _check_columns(self) -> None:
        names = [*self._names, *self._partitions]
        wanted = [*(self._columns_read or ()), *(name for part in self._filters for name, _, _ in part)]
        for name in wanted:
            if top_of(name, names) not in names:
                raise PlanError(
                    f"{safe_url(self._url)} has no column {name!r}. Its columns are {', '.join(map(repr, names))}."
                )
            if not any(is_in(leaf.path, name) for leaf in self._leaves):
                raise self._lacks_field(name)

    @cached_property
    def _converted(self) -> DeclaredColumns:
        """The columns with declared types. Those of partitions are checked, but not converted."""
        kinds = {field.name: field.type for field in self._schema} if self._declared else {}
        kinds |= dict.fromkeys(self._partitions, self._pyarrow.string())
        names = self._read_names()
        read = kinds if names is None else {*tops_of(names, self._names), *self._partitions}
        return DeclaredColumns(self._pyarrow, self._url, self._declared, kinds, read)

    def _lacks_field(self, path: str) -> PlanError:
        return PlanError(f"{safe_url(self._url)} has no field {path!r} in a column of structs.")

    def _tops(self) -> list[str]:
        return tops_of(self._columns_read or (), self._names)

    def _read_names(self) -> list[str] | None:
        """Return the columns to read, for the elements and for the filters."""
        if self._columns_read is None:
            return None
        return list(dict.fromkeys([*self._columns_read, *(name for part in self._filters for name, _, _ in part)]))

    def _is_read(self, path: str) -> bool:
        names = self._read_names()
        return names is None or any(is_in(path, name) for name in names)


def _start(group: RowGroup) -> int:
    """Return the offset of a group in the file, for error messages."""
    return group.ranges[0].start if group.ranges else 0


class _Leaf(NamedTuple):
    """Column of the schema of a file.

    Attributes:
        path: Name of the column, with the names of the structs around it.
        kind: Type of the stored values.
        fixed_nbytes: Bytes of a value; 0 if each value has its own length.
        object_nbytes: Memory of a value as a Python object; 0 if the values become columns.
    """

    path: str
    kind: str
    fixed_nbytes: int
    object_nbytes: int


def _leaf(column: Any, object_nbytes: int) -> _Leaf:
    fixed_nbytes = FIXED_NBYTES.get(column.physical_type, max(0, column.length))
    return _Leaf(column.path, column.physical_type, fixed_nbytes, object_nbytes)
