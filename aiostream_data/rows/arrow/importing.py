"""Read columns from any object with the Arrow PyCapsule interface, such as a table of PyArrow, Polars or DuckDB."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from aiostream_data import _native
from aiostream_data._native.arrow_nodes import ArrayNode, SchemaNode
from aiostream_data.arguments import shown
from aiostream_data.errors import ArgumentTypeError, ArrowDataError
from aiostream_data.rows.arrow.arrow_forms import check_names, check_type, form_of, makes_objects, makes_texts
from aiostream_data.rows.arrow.imported_columns import ArrowLeaf, flat_leaf, variable_leaf
from aiostream_data.rows.arrow.imported_nested import decoded_leaf, list_leaf
from aiostream_data.rows.arrow.imported_objects import object_leaf, text_lists_leaf
from aiostream_data.rows.arrow.imported_rows import ArrowRows, checked, empty_node
from aiostream_data.rows.columns import VarColumn
from aiostream_data.rows.structure import LEAF, Structure

_ROOT = "element"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ArrowChunk:
    """Rows of an Arrow source.

    The columns share the memory of the producer, which is released when the last array of this memory is dropped.

    Attributes:
        structure: Structure of a row. Structs are dicts; a source without structs is one leaf.
        leaves: One leaf for each leaf of the structure.
        length: Number of rows.
    """

    structure: Structure
    leaves: tuple[ArrowLeaf, ...]
    length: int

    def __len__(self) -> int:
        return self.length


class ArrowChunks(Iterator[ArrowChunk]):
    """Iterator over the chunks of an Arrow source. Use the iterator in one thread at a time.

    Attributes:
        structure: Structure of a row.
    """

    def __init__(self, schema: SchemaNode, read: Callable[[], _native.ImportedArray | None], close: Any) -> None:
        self.structure = structure_of_schema(schema)
        self._schema = schema
        self._read = read
        self._close = close
        self._count = 0

    def __iter__(self) -> ArrowChunks:
        return self

    def __next__(self) -> ArrowChunk:
        try:
            owner = _checked_call(self._read)
            if owner is None:
                raise StopIteration
            chunk = chunk_of_nodes(self.structure, self._schema, owner.node, owner, self._count)
        except BaseException:
            self.close()
            raise
        self._count += len(chunk)
        return chunk

    def close(self) -> None:
        """Release the source. Chunks that were read stay valid."""
        _checked_call(self._close)
        self._read = lambda: None

    def empty(self) -> ArrowChunk:
        """Return a chunk without rows, with the types of the source."""
        return chunk_of_nodes(self.structure, self._schema, empty_node(_ROOT, self._schema), None, 0)


def read_arrow(source: object) -> ArrowChunks:
    """Return the chunks of an Arrow source as columns, without a copy where possible.

    Numbers, dates, lists of them, and text share the memory of the producer. Booleans, days, views and dictionaries are
    copied. Decimals, maps, and other lists become Python objects. Timestamps with a time zone become UTC times. An
    extension type is read as its storage type. No code of an extension type runs.

    Args:
        source: Object with the method ``__arrow_c_stream__`` or ``__arrow_c_array__``.

    Raises:
        ArgumentTypeError: The object has neither method.
        ArrowTypeError: A column has a type that this package cannot read. The iterator does not raise this error.
        ArrowDataError: The data is invalid, or the producer failed. The iterator also raises this error.
    """
    if hasattr(source, "__arrow_c_stream__"):
        capsule = source.__arrow_c_stream__()
        stream = _checked_call(lambda: _native.ImportedStream(capsule))
        return ArrowChunks(_checked_call(stream.schema), stream.read, stream.close)
    if hasattr(source, "__arrow_c_array__"):
        return _chunks_of_array(source)
    raise ArgumentTypeError(
        f"expected an Arrow source, got {type(source).__name__}. Pass an object with __arrow_c_stream__ or "
        "__arrow_c_array__, such as a table of PyArrow or Polars"
    )


def _chunks_of_array(source: Any) -> ArrowChunks:
    pair = source.__arrow_c_array__()
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise ArrowDataError("", f"__arrow_c_array__() returned {shown(pair)} instead of two capsules")
    schema = _checked_call(lambda: _native.import_schema(pair[0]))
    left = [_checked_call(lambda: _native.import_array(pair[1]))]
    return ArrowChunks(schema, lambda: left.pop() if left else None, left.clear)


def _checked_call(call: Callable[[], T]) -> T:
    """Call a kernel. Raise its errors as errors of the source."""
    try:
        return call()
    except ValueError as error:
        raise ArrowDataError("", f"{error}") from error
    except OSError as error:
        raise ArrowDataError("", f"the producer failed: {error.strerror}") from error


def structure_of_schema(schema: SchemaNode) -> Structure:
    """Return the structure of the rows of a schema.

    Raises:
        ArrowTypeError: A column has a type that this package cannot read, or two columns have the same name.
        ArrowDataError: The schema is invalid.
    """
    return _structure(_ROOT, schema, "")


def _structure(path: str, schema: SchemaNode, prefix: str) -> Structure:
    if form_of(path, schema).family != "struct":
        check_type(path, schema)
        return LEAF
    if schema.dictionary is not None:
        raise ArrowDataError(path, "a struct has a dictionary. Check the producer of the array")
    check_names(schema, prefix)
    names = tuple(child.name for child in schema.children)
    children = (_structure(prefix + child.name, child, f"{prefix}{child.name}.") for child in schema.children)
    return Structure("dict", names, tuple(children))


def chunk_of_nodes(structure: Structure, schema: SchemaNode, node: ArrayNode, owner: object, number: int) -> ArrowChunk:
    """Return the columns of an array.

    Args:
        structure: Result of :func:`structure_of_schema` for ``schema``.
        node: The array. Its buffers have at least the sizes that follow from its type and its offsets.
        owner: Object that keeps the memory of the buffers. The columns refer to it.
        number: Number of the first row, for error messages.

    Raises:
        ArrowDataError: The data is invalid.
    """
    rows = checked(ArrowRows(_ROOT, schema, node, owner, node.offset, node.length, number))
    return ArrowChunk(structure, tuple(_leaves(rows, "")), rows.length)


def _leaves(rows: ArrowRows, prefix: str) -> list[ArrowLeaf]:
    """Return the leaves of a struct array, or the leaf of another array."""
    if rows.form.family != "struct":
        return [_read_leaf(rows)]
    found: list[ArrowLeaf] = []
    valid = rows.valid()
    for i, child in enumerate(rows.schema.children):
        part = rows.field(i, prefix + child.name)
        leaves = _leaves(part, f"{prefix}{child.name}.")
        found += leaves if valid is None else [_hidden(leaf, valid) for leaf in leaves]
    return found


def _hidden(leaf: ArrowLeaf, valid: NDArray[np.bool_]) -> ArrowLeaf:
    """Return a leaf whose rows are also missing where a struct around it is missing."""
    both = valid if leaf.valid is None else valid & leaf.valid
    column = leaf.column
    if isinstance(column, VarColumn):
        return variable_leaf(column.values, column.starts, column.lengths, column.kind, both)
    if column.dtype.hasobject and leaf.valid is None:
        return ArrowLeaf(np.where(valid, column, np.array(None)), None)
    return ArrowLeaf(column, both)


def _read_leaf(rows: ArrowRows) -> ArrowLeaf:
    if makes_objects(rows.path, rows.schema):
        return object_leaf(rows)
    if rows.schema.dictionary is not None:
        return decoded_leaf(rows, _read_leaf)
    if makes_texts(rows.path, rows.schema):
        return text_lists_leaf(rows)
    form = rows.form
    return list_leaf(rows, form, _read_leaf) if form.children else flat_leaf(rows, form)
