"""Record batches of one Arrow file: which byte ranges they need, and how they are decoded."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, takewhile
from typing import Any, Final, NamedTuple

import numpy as np

from aiostream_data.errors import ArrowTypeError, CorruptRecordError, PlanError
from aiostream_data.formats.arrow_arrays import Body, DecodedSizes, array_of, referred_nbytes
from aiostream_data.formats.arrow_fields import SchemaField, Stored, selected, shown_type, stored_fields
from aiostream_data.formats.arrow_messages import Dictionary, RecordBatch
from aiostream_data.formats.arrow_nodes import NodeReader, is_plain, joined_chunk
from aiostream_data.formats.arrow_rows import explained, rows_of_chunk, table_rows
from aiostream_data.formats.arrow_together import BatchTable, ManyReader, many_reader, table_of
from aiostream_data.formats.column_paths import top_of
from aiostream_data.formats.declared_types import Declared, DeclaredColumns
from aiostream_data.formats.joined_groups import joined_sizes
from aiostream_data.formats.row_groups import RowGroup, TableRows, joined
from aiostream_data.rows.arrow.imported_columns import ArrowLeaf
from aiostream_data.rows.arrow.importing import ArrowChunk
from aiostream_data.rows.lent_memory import LendsMemory
from aiostream_data.rows.records import ByteRange
from aiostream_data.safe_url import safe_url

_GAP_NBYTES: Final = 4 << 10
"""Maximum number of unwanted bytes between two ranges that are read as one."""


COMPRESSED_SHARE: Final = 4
"""Compressed record batches are joined up to this fraction (1/4) of the size of others: joining copies their rows."""


class ArrowSchema(NamedTuple):
    """Schema of a file.

    Attributes:
        pyarrow: The package PyArrow.
        fields: All columns.
        offset: Offset of the schema in the file, for error messages.
    """

    pyarrow: Any
    fields: tuple[SchemaField, ...]
    offset: int


class StoredBatch(NamedTuple):
    """A record batch, and the dictionaries in a stream that belong to it in addition to those of the file.

    Attributes:
        batch: The record batch.
        dictionaries: Dictionaries that stand between the first record batch and this one.
    """

    batch: RecordBatch
    dictionaries: tuple[Dictionary, ...] = ()


class ArrowDirectory:
    """Directory of the record batches of one file.

    Attributes:
        pool: Pool of memory for the rows of several record batches.

    Args:
        schema: Schema of the file.
        url: URL of the file, for error messages.
        batches: The record batches, in the order of the file.
        columns: Names of the columns to read, or None for all columns.
        declared: Types to which columns are converted.

    Raises:
        PlanError: A requested column does not exist.
        TableSchemaError: A column is not converted to its declared type.
    """

    def __init__(
        self,
        schema: ArrowSchema,
        url: str,
        batches: Sequence[StoredBatch],
        columns: tuple[str, ...] | None,
        declared: Declared = (),
    ) -> None:
        self._pyarrow = schema.pyarrow
        self._fields = schema.fields
        self._url = url
        self._batches = batches
        self._columns = columns
        self._ends = list(accumulate(stored.batch.rows for stored in batches))
        self._values: dict[int, Any] = {}
        self._sizes = DecodedSizes(schema.pyarrow)
        self._fields_of: dict[int, list[Stored]] = {}  # by the start of the record batch, until it is decoded
        self._order = self._ordered_names(schema)
        tops = [field for field in schema.fields if field.name in self._order]
        if not any(True for top in tops for _ in self._leaves(top)):
            raise ArrowTypeError(self._order[0], "the column is a struct without fields. Select other columns too")
        kinds = {top.name: top.type if top.values is None else top.values.type for top in schema.fields}
        self._converted = DeclaredColumns(schema.pyarrow, url, declared, kinds, self._order)
        self._is_plain = all(is_plain(schema.pyarrow, field) for field in tops)
        self._nodes: NodeReader | None = None  # after the first batch
        self._many: ManyReader | None = None
        self._known_table: tuple[RowGroup, BatchTable | None] | None = None  # of the last group
        self.pool: LendsMemory | None = None

    @property
    def rows(self) -> int:
        return self._ends[-1] if self._ends else 0

    # -- columns

    @property
    def types(self) -> Mapping[str, str | None]:
        leaves = (leaf for top in self._fields if top.name in self._order for leaf in self._leaves(top))
        return {leaf.path: shown_type(self._pyarrow, leaf) for leaf in leaves} | self._converted.types

    def _leaves(self, field: SchemaField, is_wanted: bool = False) -> Iterator[SchemaField]:
        is_wanted = is_wanted or self._is_wanted(field.path)
        if self._pyarrow.types.is_struct(field.type):
            for child in field.children:
                yield from self._leaves(child, is_wanted)
        elif is_wanted:
            yield field

    def _ordered_names(self, schema: ArrowSchema) -> list[str]:
        """Return the names of the columns to read, in the order of the elements."""
        names = [field.name for field in schema.fields]
        if not names:
            raise CorruptRecordError(self._url, schema.offset, "the schema has no columns")
        if self._columns is None:
            return names
        paths = {path for field in schema.fields for path in self._paths(field)}
        for name in self._columns:
            if name not in paths:
                raise PlanError(
                    f"{safe_url(self._url)} has no column {name!r}. Its columns are {', '.join(map(repr, names))}."
                )
        return list(dict.fromkeys(top_of(name, names) for name in self._columns))

    def _paths(self, field: SchemaField) -> Iterator[str]:
        yield field.path
        if self._pyarrow.types.is_struct(field.type):
            for child in field.children:
                yield from self._paths(child)

    def _is_wanted(self, path: str) -> bool:
        return self._columns is None or path in self._columns

    def _wanted_fields(self, batch: RecordBatch) -> list[Stored]:
        """Return the wanted fields of a record batch, in the order of the elements."""
        if batch.start not in self._fields_of:
            self._fields_of[batch.start] = self._found_fields(batch)
        return self._fields_of[batch.start]

    def _found_fields(self, batch: RecordBatch) -> list[Stored]:
        stored = stored_fields(self._pyarrow, self._fields, batch)
        tops = [one for one in stored if one.field.name in self._order]
        found = [kept for one in tops if (kept := selected(self._pyarrow, one, self._is_wanted)) is not None]
        return sorted(found, key=lambda one: self._order.index(one.field.name))

    # -- dictionaries

    def wanted(self, dictionaries: Iterable[Dictionary]) -> list[Dictionary]:
        """Return the dictionaries of wanted columns."""
        numbers = set(self._dictionary_fields)
        return [one for one in dictionaries if one.number in numbers]

    @property
    def _dictionary_fields(self) -> Mapping[int, SchemaField]:
        """Fields of the values of dictionaries that wanted columns use, by the number of the dictionary."""
        return {
            field.dictionary: field.values
            for top in self._fields
            for field in _walk(top)
            if field.dictionary is not None and field.values is not None and top.name in self._order
        }

    def keep(
        self, dictionaries: Sequence[Dictionary], ranges: Sequence[ByteRange], parts: Sequence[memoryview]
    ) -> None:
        """Decode dictionaries, and use them for all record batches."""
        self._values = self._with(self._values, dictionaries, ranges, parts)

    def _with(
        self,
        known: Mapping[int, Any],
        dictionaries: Sequence[Dictionary],
        ranges: Sequence[ByteRange],
        parts: Sequence[memoryview],
    ) -> dict[int, Any]:
        """Return known dictionaries with other ones."""
        found = dict(known)
        for one in dictionaries:
            field = self._dictionary_fields[one.number]
            body = Body(self._url, one.batch, ranges, parts)
            (stored,) = stored_fields(self._pyarrow, (field,), one.batch)
            with explained(self._pyarrow, self._url, one.batch.start):
                values = array_of(self._pyarrow, stored, body, found)
                values.validate()
                if one.is_delta and one.number in found:
                    values = self._pyarrow.concat_arrays([found[one.number], values])
            found[one.number] = values
        return found

    # -- record batches

    def groups_from(self, first_row: int) -> Iterator[RowGroup]:
        number = bisect_right(self._ends, first_row)
        sizes = joined_sizes()
        while number < len(self._batches):
            stop = self._group_stop(number, next(sizes))
            if self._ends[stop - 1] > self._first_row(number):
                yield self._group(number, stop)
            number = stop

    def separated(self, group: RowGroup) -> list[RowGroup]:
        numbers = range(bisect_right(self._ends, group.first_row), len(self._ends))
        within = takewhile(lambda number: self._first_row(number) < group.first_row + group.rows, numbers)
        return [self._group(number, number + 1) for number in within if self._batches[number].batch.rows]

    def _group(self, first: int, stop: int) -> RowGroup:
        stored = self._batches[first:stop]
        rows = sum(one.batch.rows for one in stored)
        return RowGroup(self._first_row(first), rows, self._ranges(stored), rows * len(self._order))

    def _group_stop(self, first: int, most_nbytes: int) -> int:
        """Return the number of the batch behind those that are read together with batch ``first``."""
        share = 1 if self._batches[first].batch.codec is None else COMPRESSED_SHARE
        stop, nbytes = first + 1, self._batches[first].batch.nbytes
        while stop < len(self._batches):
            nbytes += self._batches[stop].batch.nbytes
            if nbytes > most_nbytes // share or self._batches[stop].dictionaries != self._batches[first].dictionaries:
                break
            stop += 1
        return stop

    def _first_row(self, number: int) -> int:
        return self._ends[number - 1] if number else 0

    def _ranges(self, batches: Sequence[StoredBatch]) -> tuple[ByteRange, ...]:
        ranges: list[ByteRange] = []
        for one in self.wanted(batches[0].dictionaries):
            ranges.append(ByteRange(one.batch.start, one.batch.start + one.batch.nbytes))
        for batch, _ in batches:
            if self._columns is None:
                ranges.append(ByteRange(batch.start, batch.start + batch.nbytes))
                continue
            for part in (inner for outer in self._wanted_fields(batch) for inner in outer.walk()):
                for offset, nbytes in part.buffers:
                    ranges.append(ByteRange(batch.start + offset, batch.start + offset + nbytes))
        return joined([one for one in ranges if one.nbytes], _GAP_NBYTES)

    def _stored(self, group: RowGroup) -> list[StoredBatch]:
        first = bisect_right(self._ends, group.first_row)
        stop = bisect_right(self._ends, group.first_row + group.rows - 1) + 1
        return list(self._batches[first:stop])

    def decoded_nbytes(self, group: RowGroup, parts: Sequence[memoryview]) -> int:
        added = self._converted.row_nbytes * group.rows
        if (table := self._table(group)) is not None and self._many is not None:
            return self._many.nbytes(table) + added
        total = copied = 0
        for batch, dictionaries in self._stored(group):
            fields = self._wanted_fields(batch)
            total += self._decoded_nbytes(batch, fields, group, parts)
            copied += referred_nbytes(fields)
            for one in self.wanted(dictionaries):
                values = stored_fields(self._pyarrow, (self._dictionary_fields[one.number],), one.batch)
                total += self._decoded_nbytes(one.batch, values, group, parts)
        return added + (total if len(self._stored(group)) == 1 else 2 * total + copied)

    def _decoded_nbytes(
        self, batch: RecordBatch, fields: Iterable[Stored], group: RowGroup, parts: Sequence[memoryview]
    ) -> int:
        return self._sizes.of(fields, Body(self._url, batch, group.ranges, parts))

    def decode(self, group: RowGroup, parts: Sequence[memoryview], *, filtered: bool = True) -> list[TableRows]:
        batches = self._stored(group)
        own = self.wanted(batches[0].dictionaries)
        values = self._with(self._values, own, group.ranges, parts) if own else self._values
        try:
            return [self._converted.rows(part) for part in self._decoded(group, batches, values, parts)]
        finally:
            self._fields_of.clear()

    def _decoded(
        self,
        group: RowGroup,
        batches: Sequence[StoredBatch],
        values: Mapping[int, Any],
        parts: Sequence[memoryview],
    ) -> list[TableRows]:
        rows = np.arange(group.first_row, group.first_row + group.rows, dtype=np.int64)
        with explained(self._pyarrow, self._url, batches[0].batch.start, rows):
            if self._nodes is not None and (chunk := self._chunk_together(self._nodes, group, parts)) is not None:
                return [rows_of_chunk(chunk, rows)]
            bodies = [Body(self._url, batch, group.ranges, parts) for batch, _ in batches]
            if self._nodes is not None:
                return [rows_of_chunk(self._joined_chunk(self._nodes, bodies, parts), rows)]
            found = [self._record_batch(body, values) for body in bodies]
            if self._is_plain:
                self._nodes = NodeReader(self._pyarrow, found[0].schema)
                self._many = many_reader(self._fields, self._order, self._nodes.schema)
            return table_rows(found[0] if len(found) == 1 else self._combined(found), rows)

    def _table(self, group: RowGroup) -> BatchTable | None:
        """Return the metadata of several record batches that a :class:`.ManyReader` can read."""
        batches = [stored.batch for stored in self._stored(group)]
        if self._many is None or len(batches) < 2 or len(group.ranges) != 1:
            return None
        if self._known_table is None or self._known_table[0] != group:
            self._known_table = group, table_of(batches)
        return self._known_table[1]

    def _chunk_together(self, nodes: NodeReader, group: RowGroup, parts: Sequence[memoryview]) -> ArrowChunk | None:
        table = self._table(group)
        if table is None or self._many is None:
            return None
        columns = self._many.columns(table, parts[0], group.ranges[0].start, self.pool)
        if columns is None:
            return None
        return ArrowChunk(nodes.structure, tuple(ArrowLeaf(column, None) for column in columns), group.rows)

    def _joined_chunk(self, nodes: NodeReader, bodies: Sequence[Body], parts: Sequence[memoryview]) -> ArrowChunk:
        chunks: list[ArrowChunk] = []
        number = 0
        for body in bodies:
            chunks.append(nodes.chunk(self._wanted_fields(body.batch), body.batch.rows, body, number))
            number += body.batch.rows
        return joined_chunk(chunks, parts, self.pool)

    def _record_batch(self, body: Body, values: Mapping[int, Any]) -> Any:
        fields = self._wanted_fields(body.batch)
        arrays = [array_of(self._pyarrow, part, body, values) for part in fields]
        made = self._pyarrow.RecordBatch.from_arrays(arrays, names=[part.field.name for part in fields])
        made.validate()
        return made

    def _combined(self, batches: Sequence[Any]) -> Any:
        """Join small record batches into one chunk, so that the cost per chunk is paid once."""
        for batch in batches:
            batch.validate(full=True)  # PyArrow follows offsets when it joins arrays
        return self._pyarrow.Table.from_batches(batches).combine_chunks()


def _walk(field: SchemaField) -> Iterator[SchemaField]:
    """Iterate over a field, the fields inside, and the fields of the values of its dictionary."""
    if field.values is not None:
        yield from _walk(field.values)
    yield field
    for child in field.children:
        yield from _walk(child)
