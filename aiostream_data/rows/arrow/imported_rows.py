"""Consecutive rows of one imported Arrow array, and checked access to their buffers.

Arrow does not transmit the size of buffers. The size follows from the type, the number of rows, and the offsets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from aiostream_data._native.arrow_nodes import ArrayNode, SchemaNode
from aiostream_data.errors import ArrowDataError
from aiostream_data.rows.arrow.arrow_forms import NULL_FORMAT, ArrowForm, form_of
from aiostream_data.rows.arrow.bitmaps import unpacked

MAX_NBYTES: Final = 2**63 - 1
"""Maximum size of a buffer."""

MAX_ROWS: Final = 2**56
"""Maximum number of rows of an array. Larger numbers are damaged, and could overflow sizes."""


class _Memory:
    """Memory of a producer. Arrays of this memory keep the owner alive."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, owner: object, address: int, nbytes: int) -> None:
        self.owner = owner
        self.__array_interface__ = {"data": (address, True), "shape": (nbytes,), "typestr": "|u1", "version": 3}


@dataclass(frozen=True, slots=True)
class ArrowRows:
    """Consecutive rows of one array.

    Attributes:
        path: Path of the column, for error messages.
        schema: Type of the rows.
        node: The array.
        owner: Object that releases the array when it is dropped.
        start: Index of the first row in the buffers. The offset of the array is included.
        length: Number of rows.
        number: Number of the first row in the source, for error messages.
        unit: Name of a row in error messages.
    """

    path: str
    schema: SchemaNode
    node: ArrayNode
    owner: object
    start: int
    length: int
    number: int = 0
    unit: str = "row"

    def __len__(self) -> int:
        return self.length

    @property
    def form(self) -> ArrowForm:
        """Layout of the array."""
        return form_of(self.path, self.schema)

    def field(self, index: int, path: str) -> ArrowRows:
        """Return the rows of a field of a struct.

        Raises:
            ArrowDataError: The field is shorter or invalid.
        """
        return self._child(index, self.start, self.length, path, self.number, self.unit)

    def list_items(self, first: int, length: int) -> ArrowRows:
        """Return items of a list array.

        Raises:
            ArrowDataError: The array of items is shorter or invalid.
        """
        return self._child(0, first, length, self.path, first, "list item")

    def _child(self, index: int, first: int, length: int, path: str, number: int, unit: str) -> ArrowRows:
        schema, node = self.schema.children[index], self.node.children[index]
        whole = ArrowRows(path, schema, node, self.owner, node.offset, node.length, self.number, self.unit)
        if length > checked(whole).length - first:
            raise whole.error(f"{first + length} rows of a child are used, but the child has only {node.length} rows")
        return ArrowRows(path, schema, node, self.owner, node.offset + first, length, number, unit)

    def error(self, reason: str, row: int | None = None) -> ArrowDataError:
        """Return an error for this column.

        Args:
            row: Index of the invalid row in these rows.
        """
        if row is None:
            return ArrowDataError(self.path, reason)
        number = self.number + row
        return ArrowDataError(self.path, f"{self.unit} {number}: {reason}", number)

    def memory(self, index: int, start: int, nbytes: int) -> NDArray[np.uint8]:
        """Return bytes of a buffer from byte ``start`` as a read-only array that shares the memory.

        Raises:
            ArrowDataError: The buffer is absent.
        """
        if nbytes == 0:
            return np.empty(0, np.uint8)
        if start + nbytes > MAX_NBYTES:
            raise self.error(f"the buffer {index} would have {start + nbytes} bytes, more than any memory")
        address = self.node.buffers[index]
        if address == 0:
            raise self.error(f"the buffer {index} is absent, but {self.length} rows need {nbytes} bytes of it")
        return np.asarray(_Memory(self.owner, address + start, nbytes))

    def items(self, index: int, dtype: np.dtype[Any], start: int, count: int) -> NDArray[Any]:
        """Return items of a buffer from item ``start``. Items at unaligned addresses are copied."""
        found = self.memory(index, start * dtype.itemsize, count * dtype.itemsize).view(dtype)
        return found if found.flags.aligned else found.copy()

    def offsets(self) -> NDArray[np.int64]:
        """Return the ascending offsets of the rows, with one more entry than there are rows.

        Raises:
            ArrowDataError: An offset is negative, or smaller than the one before.
        """
        if not self.length:
            return np.zeros(1, np.int64)
        found = self.items(1, self.form.dtype, self.start, self.length + 1)
        if found[0] < 0:
            raise self.error(f"the offset {found[0]} is negative", 0)
        if (found[1:] < found[:-1]).any():
            row = int(np.argmax(found[1:] < found[:-1]))
            raise self.error(f"the offsets decrease from {found[row]} to {found[row + 1]}", row)
        return found.astype(np.int64, copy=False)

    def valid(self) -> NDArray[np.bool_] | None:
        """Return an array that is False for missing rows, or None if no row is missing."""
        if self.schema.format == NULL_FORMAT:
            return np.zeros(self.length, np.bool_) if self.length else None  # this type has no validity buffer
        if self.node.null_count == 0:
            return None
        if self.node.buffers[0] == 0:
            if self.node.null_count > 0:
                raise self.error(f"{self.node.null_count} rows are missing, but the validity buffer is absent")
            return None
        found = self.bits(0)
        return None if found.all() else found

    def bits(self, index: int) -> NDArray[np.bool_]:
        """Return a copy of the bits of a bitmap."""
        first = self.start // 8
        stop = (self.start + self.length + 7) // 8
        return unpacked(self.memory(index, first, stop - first), self.start % 8, self.length)


def checked(rows: ArrowRows) -> ArrowRows:
    """Return the rows of a complete array after checking its numbers, buffers and children.

    Raises:
        ArrowDataError: A number is negative or too large, or buffers or children are missing.
    """
    node, form = rows.node, rows.form
    if node.length < 0 or node.offset < 0 or node.offset + node.length > MAX_ROWS:
        raise rows.error(f"the array has {node.length} rows from row {node.offset}")
    if not -1 <= node.null_count <= node.length:
        raise rows.error(f"{node.null_count} of {node.length} rows are missing")
    if not _has_buffers(form, len(node.buffers)):
        raise rows.error(f"the array has {len(node.buffers)} buffers, but its type has {form.buffers}")
    if len(node.children) != len(rows.schema.children):
        raise rows.error(f"the array has {len(node.children)} children, but its type has {len(rows.schema.children)}")
    if (node.dictionary is None) != (rows.schema.dictionary is None):
        raise rows.error("either the array or its type has a dictionary, but not both")
    return rows


def _has_buffers(form: ArrowForm, count: int) -> bool:
    if form.family == "view":
        return count >= form.buffers
    return count == form.buffers or (form.family == "null" and count == 1)  # as some producers write it


def empty_node(path: str, schema: SchemaNode) -> ArrayNode:
    """Return an array of a type without rows."""
    children = tuple(empty_node(path, child) for child in schema.children)
    dictionary = None if schema.dictionary is None else empty_node(path, schema.dictionary)
    return ArrayNode(0, 0, 0, (0,) * form_of(path, schema).buffers, children, dictionary)
