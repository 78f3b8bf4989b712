"""Columns of many small record batches at once, with Python per column instead of per batch.

Record batches of 1,000 rows, as Hugging Face datasets write them, need as much Python for their arrays as large ones.
This module reads columns of numbers, text, bytes, and lists of numbers, without missing values and compression. It
returns None for all others, and for damaged ones: :mod:`.arrow_nodes` reads these batch by batch, and raises the error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aiostream_data import _native
from aiostream_data._native.arrow_nodes import SchemaNode
from aiostream_data.formats.arrow_arrays import VARIABLE_NBYTES
from aiostream_data.formats.arrow_fields import SchemaField
from aiostream_data.formats.arrow_messages import RecordBatch
from aiostream_data.rows.arrow.arrow_forms import ArrowForm, form_of
from aiostream_data.rows.columns import Column, VarColumn
from aiostream_data.rows.lent_memory import LendsMemory, empty_block

Integers = NDArray[np.int64]

MOST_ITEMS: Final = 1 << 24
"""Maximum number of items of a list of fixed size."""


class BatchTable(NamedTuple):
    """Metadata of record batches of one type.

    Attributes:
        rows: Number of rows, int64, shape (batches,).
        starts: Offsets of the bodies in the file, int64, shape (batches,).
        lengths: Number of rows of each array, int64, shape (batches, arrays).
        places: Offset in its body and size in bytes of each buffer, int64, shape (batches, buffers, 2).
    """

    rows: Integers
    starts: Integers
    lengths: Integers
    places: Integers


def table_of(batches: Sequence[RecordBatch]) -> BatchTable | None:
    """Return the metadata of record batches; None if they are compressed, damaged, or have missing values."""
    headers = [batch.header for batch in batches]
    if any(header.table(3) is not None for header in headers):
        return None
    nodes, buffers = [header.pairs(1) for header in headers], [header.pairs(2) for header in headers]
    if len({len(each) for each in nodes}) > 1 or len({len(each) for each in buffers}) > 1:
        return None
    arrays, places = np.array(nodes), np.array(buffers)
    sizes = np.array([[batch.nbytes] for batch in batches])
    is_inside = (
        (places >= 0).all() and (places[..., 1] <= sizes).all() and (places[..., 0] <= sizes - places[..., 1]).all()
    )
    if not is_inside or (arrays[..., 0] < 0).any() or arrays[..., 1].any():
        return None
    rows, starts = np.array([(batch.rows, batch.start) for batch in batches]).T
    return BatchTable(rows, starts, arrays[..., 0], places)


@dataclass(frozen=True, slots=True)
class _Field:
    """Where a record batch stores a column.

    Attributes:
        form: Memory layout of the column.
        array: Number of the column's array among the arrays of the batch.
        buffer: Number of the first buffer of this array among the buffers of the batch.
        items: Memory layout of the items of lists; None for other columns.
    """

    form: ArrowForm
    array: int
    buffer: int
    items: ArrowForm | None


class ManyReader:
    """Reader of the columns of many record batches of one type.

    Args:
        fields: The columns, in the order of the elements.
    """

    def __init__(self, fields: Sequence[_Field]) -> None:
        self._fields = fields

    def nbytes(self, table: BatchTable) -> int:
        """Return the memory that decoding needs in addition to the stored bytes, as the file declares it."""
        return sum(sum(table.lengths[:, field.array].tolist()) * _row_nbytes(field) for field in self._fields)

    def columns(self, table: BatchTable, part: memoryview, start: int, pool: LendsMemory | None) -> list[Column] | None:
        """Return the columns of the rows of all batches. Text, bytes and lists share the memory of ``part``.

        Args:
            part: Bytes of the file from offset ``start`` on, with the bodies of all batches.
            pool: Pool of memory for the other columns.
        """
        block = np.frombuffer(part, np.uint8)
        places = table.places[..., 0] + (table.starts - start)[:, None]
        sizes = table.places[..., 1]
        if (places < 0).any() or (places > len(block) - sizes).any():
            return None
        if any((table.lengths[:, field.array] != table.rows).any() for field in self._fields):
            return None
        reader = _Buffers(block, table.lengths, places, sizes)
        dense = {place: spans for place, field in enumerate(self._fields) if (spans := reader.spans(field)) is not None}
        found: dict[int, Column] = dict(zip(dense, _copied(block, list(dense.values()), pool), strict=True))
        for place, field in enumerate(self._fields):
            column = found.get(place, reader.variable(field))
            if column is None:
                return None
            found[place] = column
        return [found[place] for place in range(len(self._fields))]


def many_reader(fields: Sequence[SchemaField], wanted: Sequence[str], schema: SchemaNode) -> ManyReader | None:
    """Return a reader, or None if a column has another type.

    Args:
        fields: All columns of the file.
        wanted: Names of the columns to read, in the order of the elements.
        schema: Types of these columns.
    """
    known: dict[str, _Field | None] = {}
    types = dict(zip(wanted, schema.children, strict=True))
    array = buffer = 0
    for field in fields:
        if field.name in types:
            known[field.name] = _field(field, types[field.name], array, buffer)
        for part in _walk(field):
            if part.is_variadic:
                return None
            array, buffer = array + 1, buffer + part.buffers
    found = [known[name] for name in wanted]
    return None if None in found else ManyReader([field for field in found if field is not None])


def _walk(field: SchemaField) -> list[SchemaField]:
    return [field, *(part for child in field.children for part in _walk(child))]


def _field(field: SchemaField, schema: SchemaNode, array: int, buffer: int) -> _Field | None:
    form = form_of(field.path, schema)
    items = form_of(field.path, schema.children[0]) if form.family in ("list", "fixed_list") else None
    if items is not None:
        is_known = items.family == "dense" and field.children[0].dictionary is None
    else:
        is_known = form.family in ("dense", "text")
    return _Field(form, array, buffer, items) if is_known and field.dictionary is None else None


def _row_nbytes(field: _Field) -> int:
    """Return the memory of a row that is not a view of the stored bytes."""
    if _has_offsets(field.form):
        return 2 * VARIABLE_NBYTES + field.form.dtype.itemsize
    return field.form.dtype.itemsize if field.items is None else field.form.size * field.items.dtype.itemsize


def _has_offsets(form: ArrowForm) -> bool:
    return form.family in ("text", "list")


class _Spans(NamedTuple):
    """Places of the rows of a dense column in each batch, in bytes."""

    starts: Integers
    sizes: Integers
    dtype: np.dtype[Any]
    row_shape: tuple[int, ...]


class _Buffers(NamedTuple):
    """Buffers of all batches in one block of memory."""

    block: NDArray[np.uint8]
    lengths: Integers
    places: Integers
    sizes: Integers

    def spans(self, field: _Field) -> _Spans | None:
        """Return the places of the rows of a dense column, or None for another or a damaged one."""
        if _has_offsets(field.form):
            return None
        rows = self.lengths[:, field.array]
        if field.items is None:
            return self._spans(field.buffer + 1, rows, field.form.dtype, ())
        items, most = self.lengths[:, field.array + 1], self.sizes[:, field.buffer + 2] // field.items.dtype.itemsize
        if not 0 < field.form.size <= MOST_ITEMS or (items // field.form.size < rows).any() or (items > most).any():
            return None
        return self._spans(field.buffer + 2, rows, field.items.dtype, (field.form.size,))

    def _spans(self, buffer: int, rows: Integers, dtype: np.dtype[Any], row_shape: tuple[int, ...]) -> _Spans | None:
        row_nbytes = dtype.itemsize * (row_shape[0] if row_shape else 1)
        if (rows > self.sizes[:, buffer] // row_nbytes).any():
            return None
        return _Spans(self.places[:, buffer], rows * row_nbytes, dtype, row_shape)

    def variable(self, field: _Field) -> VarColumn | None:
        """Return a column of text, bytes or lists, or None for another or a damaged one."""
        if not _has_offsets(field.form):
            return None
        rows, offset, data = self.lengths[:, field.array], field.form.dtype, field.buffer + 2
        if (rows >= self.sizes[:, field.buffer + 1] // offset.itemsize).any():
            return None
        values, item_nbytes, most = self.block, 1, self.sizes[:, data]
        if field.items is not None:
            data, item_nbytes = field.buffer + 3, field.items.dtype.itemsize
            most = self.lengths[:, field.array + 1]
            aligned = _viewed(self.block, field.items.dtype)
            if aligned is None or (most > self.sizes[:, data] // item_nbytes).any():
                return None
            values = aligned
        begins = self.places[:, data]
        if (begins % item_nbytes).any():
            return None
        ends = np.cumsum(rows + 1)
        spans = self.places[:, field.buffer + 1], (rows + 1) * offset.itemsize
        offsets = _native.compact(self.block, *spans)[0].view(offset).astype(np.int64, copy=False)
        low, high = offsets[ends - rows - 1], offsets[ends - 1]
        lengths = np.delete(np.diff(offsets), ends[:-1] - 1)  # without the steps from batch to batch
        if (low < 0).any() or (high > most).any() or (lengths < 0).any():
            return None
        starts = np.delete(offsets, ends - 1) + np.repeat(begins // item_nbytes, rows)
        column = VarColumn(values, starts, lengths, _kind(field))
        is_valid = not field.form.is_text or self._is_text(column, begins + low, begins + high)
        return column if is_valid else None

    def _is_text(self, column: VarColumn, starts: Integers, stops: Integers) -> bool:
        """Return True if the rows are valid UTF-8."""
        signed = self.block.view(np.int8)
        spans = zip(starts.tolist(), stops.tolist(), strict=True)
        is_ascii = all(signed[start:stop].min(initial=0) >= 0 for start, stop in spans)
        return is_ascii or _native.first_invalid_utf8(column.values, column.starts, column.lengths) < 0


def _kind(field: _Field) -> Any:
    if field.items is not None:
        return "array"
    return "str" if field.form.is_text else "bytes"


def _viewed(block: NDArray[np.uint8], dtype: np.dtype[Any]) -> NDArray[Any] | None:
    """Return a block as items, or None if they would not be aligned."""
    if block.ctypes.data % dtype.alignment:
        return None
    return block[: len(block) - len(block) % dtype.itemsize].view(dtype)


def _copied(block: NDArray[np.uint8], columns: Sequence[_Spans], pool: LendsMemory | None) -> list[NDArray[Any]]:
    """Copy the rows of all columns with one call, to one block of memory."""
    if not columns:
        return []
    # Large items come first, so that the items of each column are aligned.
    order = sorted(range(len(columns)), key=lambda number: -columns[number].dtype.itemsize)
    starts = np.concatenate([columns[number].starts for number in order])
    sizes = np.concatenate([columns[number].sizes for number in order])
    copied, _ = _native.compact(block, starts, sizes, partial(empty_block, pool=pool))
    found: dict[int, NDArray[Any]] = {}
    at = 0
    for number in order:
        column = columns[number]
        stop = at + int(column.sizes.sum())
        found[number] = copied[at:stop].view(column.dtype).reshape(-1, *column.row_shape)
        at = stop
    return [found[number] for number in range(len(columns))]
