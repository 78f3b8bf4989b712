"""Columns of a record batch straight from its buffers, without arrays of PyArrow.

An array of PyArrow takes 30 microseconds, and each of its checks gives other threads the GIL. Types with a dictionary,
views and unions are left to PyArrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data._native import import_schema
from aiostream_data._native.arrow_nodes import ArrayNode, SchemaNode
from aiostream_data.formats.arrow_arrays import Body
from aiostream_data.formats.arrow_fields import SchemaField, Stored
from aiostream_data.rows.arrow.arrow_forms import ArrowForm, form_of
from aiostream_data.rows.arrow.imported_columns import ArrowLeaf
from aiostream_data.rows.arrow.importing import ArrowChunk, chunk_of_nodes, structure_of_schema
from aiostream_data.rows.columns import Column, VarColumn, concat_column
from aiostream_data.rows.lent_memory import LendsMemory, joined_in_one_block


def is_plain(pyarrow: Any, field: SchemaField) -> bool:
    """Return True if the arrays of a field and the fields inside have no dictionary, and no buffers of other kinds."""
    types = pyarrow.types
    is_other = types.is_union(field.type) or types.is_run_end_encoded(field.type) or field.is_variadic
    return field.dictionary is None and not is_other and all(is_plain(pyarrow, child) for child in field.children)


class NodeReader:
    """Reader of the columns of record batches of one type.

    Attributes:
        schema: Types of the columns.
        structure: Structure of a row.

    Args:
        pyarrow: The package PyArrow.
        schema: Schema of PyArrow of the columns to read, which are plain.
    """

    def __init__(self, pyarrow: Any, schema: Any) -> None:
        self._pyarrow = pyarrow
        self.schema = import_schema(schema.__arrow_c_schema__())
        self.structure = structure_of_schema(self.schema)

    def chunk(self, fields: Sequence[Stored], rows: int, body: Body, number: int) -> ArrowChunk:
        """Return the columns of a record batch, which share the memory of its body unless it is compressed.

        Args:
            fields: The fields to read.
            rows: Number of rows.
            number: Number of the first row, for error messages.

        Raises:
            CorruptRecordError: A buffer is too small, or cannot be decompressed.
            ArrowDataError: The data is invalid.
        """
        owner: list[Any] = []
        pairs = zip(fields, self.schema.children, strict=True)
        children = tuple([self._node(part, schema, body, owner) for part, schema in pairs])
        root = ArrayNode(rows, 0, 0, (0,), children)
        return chunk_of_nodes(self.structure, self.schema, root, owner, number)

    def _node(self, part: Stored, schema: SchemaNode, body: Body, owner: list[Any]) -> ArrayNode:
        buffers = [body.bytes_of(self._pyarrow, buffer) for buffer in part.buffers]
        owner += buffers
        length, null_count = part.node
        form = form_of(part.field.path, schema)
        for number, needed in enumerate(_needed(form, length, bool(null_count), buffers)):
            if buffers[number].size < needed:
                reason = f"a buffer of column {part.field.path!r} has {buffers[number].size} bytes instead of {needed}"
                raise body.error(part.buffers[number], reason)
        places = [buffer.address if buffer.size else 0 for buffer in buffers]
        if places and not null_count:
            places[0] = 0
        pairs = zip(part.children, schema.children, strict=True)
        children = tuple([self._node(child, kind, body, owner) for child, kind in pairs])
        return ArrayNode(length, null_count, 0, tuple(places), children)


def _needed(form: ArrowForm, length: int, has_nulls: bool, buffers: Sequence[Any]) -> list[int]:
    """Return the minimum sizes of the buffers of an array in bytes."""
    bits = (length + 7) // 8
    valid = bits if has_nulls else 0
    match form.family:
        case "null":
            return []
        case "bool":
            return [valid, bits]
        case "dense":
            return [valid, length * form.dtype.itemsize]
        case "int32":
            return [valid, 4 * length]
        case "fixed_binary" | "decimal":
            return [valid, form.size * length]
        case "struct" | "fixed_list":
            return [valid]
        case "list_view":
            return [valid, length * form.dtype.itemsize, length * form.dtype.itemsize]
    offsets = (length + 1) * form.dtype.itemsize if length else 0
    if form.family != "text":
        return [valid, offsets]
    is_read = length > 0 and buffers[1].size >= offsets
    last = int(np.frombuffer(buffers[1], form.dtype, 1, offsets - form.dtype.itemsize)[0]) if is_read else 0
    return [valid, offsets, max(0, last)]


def joined_chunk(
    chunks: Sequence[ArrowChunk], parts: Sequence[memoryview], pool: LendsMemory | None = None
) -> ArrowChunk:
    """Return the rows of several record batches of one type as one chunk.

    Args:
        parts: Memory with the bodies of the batches. Rows of variable length in one of these stay there.
        pool: Pool of memory for the other columns.
    """
    if len(chunks) == 1:
        return chunks[0]
    columns = list(zip(*([leaf.column for leaf in chunk.leaves] for chunk in chunks), strict=True))
    dense = {place: arrays for place, some in enumerate(columns) if (arrays := _dense(some))}
    joined: dict[int, Column] = dict(zip(dense, joined_in_one_block(list(dense.values()), pool), strict=True))
    blocks = [np.frombuffer(part, np.uint8) for part in parts]
    joined |= {place: _joined(some, blocks) for place, some in enumerate(columns) if place not in dense}
    valid = [_joined_marks(chunks, place) for place in range(len(columns))]
    leaves = tuple(ArrowLeaf(joined[place], valid[place]) for place in range(len(columns)))
    return ArrowChunk(chunks[0].structure, leaves, sum(map(len, chunks)))


def _dense(columns: Sequence[Column]) -> list[NDArray[Any]]:
    """Return columns that are contiguous arrays of numbers; an empty list for other columns."""
    dense = [column for column in columns if not isinstance(column, VarColumn)]
    is_alike = all(
        array.dtype == dense[0].dtype and array.shape[1:] == dense[0].shape[1:] and array.flags.c_contiguous
        for array in dense
    )
    has_items = bool(dense) and not dense[0].dtype.hasobject and 0 not in dense[0].shape[1:]
    return dense if len(dense) == len(columns) and is_alike and has_items else []


def _joined(columns: Sequence[Column], blocks: Sequence[NDArray[np.uint8]]) -> Column:
    variable = [column for column in columns if isinstance(column, VarColumn)]
    found = next(filter(None, (_within(variable, block) for block in blocks)), None) if variable else None
    return concat_column(columns) if found is None else found


def _joined_marks(chunks: Sequence[ArrowChunk], place: int) -> NDArray[np.bool_] | None:
    marks = [chunk.leaves[place].valid for chunk in chunks]
    if all(valid is None for valid in marks):
        return None
    pairs = zip(chunks, marks, strict=True)
    return np.concatenate([np.ones(len(chunk), np.bool_) if valid is None else valid for chunk, valid in pairs])


def _within(columns: Sequence[VarColumn], block: NDArray[np.uint8]) -> VarColumn | None:
    """Return columns whose values lie in a block as one column, or None if they do not."""
    dtype, begin = columns[0].values.dtype, _address(block)
    starts: list[NDArray[np.int64]] = []
    for column in columns:
        values = column.values
        place = _address(values) - begin if len(values) else 0
        is_inside = 0 <= place <= block.nbytes - values.nbytes
        if values.dtype != dtype or values.ndim > 1 or dtype.hasobject or not is_inside or place % dtype.itemsize:
            return None
        starts.append(column.starts + place // dtype.itemsize)
    if begin % dtype.alignment:
        return None
    values = block[: block.nbytes - block.nbytes % dtype.itemsize].view(dtype)
    lengths = np.concatenate([column.lengths for column in columns])
    return VarColumn(values, np.concatenate(starts), lengths, columns[0].kind)


def _address(array: NDArray[Any]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
