"""Fields of an Arrow schema: their types as PyArrow knows them, and the order of their buffers in a record batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from aiostream_data.errors import ArrowTypeError
from aiostream_data.formats.arrow_messages import V5, ArraySizes, Buffer, RecordBatch
from aiostream_data.formats.flatbuffers import Table


@dataclass(frozen=True, slots=True)
class SchemaField:
    """A field of a schema or of a nested type.

    Attributes:
        name: Name of the field.
        path: Names of the fields around the field and of the field, joined by dots.
        type: Storage type of PyArrow. For a field with a dictionary, the type of the indices.
        buffers: Number of buffers in a record batch, without those of the children and the data buffers of views.
        is_variadic: True if a record batch says how many buffers follow.
        children: Fields inside of the type. Their buffers follow those of the field.
        dictionary: Number of the dictionary, or None.
        values: SchemaField of the values of the dictionary, or None.
    """

    name: str
    path: str
    type: Any
    buffers: int
    is_variadic: bool = False
    children: tuple[SchemaField, ...] = ()
    dictionary: int | None = None
    values: SchemaField | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """A field in one record batch.

    Attributes:
        field: The field.
        node: Sizes of the array.
        buffers: Buffers of the array, without those of the children.
        children: Fields inside of the field.
    """

    field: SchemaField
    node: ArraySizes
    buffers: tuple[Buffer, ...]
    children: tuple[Stored, ...]

    def walk(self) -> Iterator[Stored]:
        """Iterate over this field and the fields inside."""
        yield self
        for child in self.children:
            yield from child.walk()


def fields_of(pyarrow: Any, schema: Any, table: Table) -> tuple[SchemaField, ...]:
    """Return the fields of a schema.

    Args:
        schema: Schema of PyArrow.
        table: Table of the same schema, which contains the numbers of dictionaries.
    """
    return _fields(pyarrow, [(field.name, field.type) for field in schema], list(table.tables(1)), table, "")


def _fields(
    pyarrow: Any, types: list[tuple[str, Any]], tables: list[Table], owner: Table, prefix: str
) -> tuple[SchemaField, ...]:
    if len(types) != len(tables):
        raise owner.error(f"the schema has {len(tables)} fields instead of {len(types)}")
    return tuple(
        _field(pyarrow, name, type, table, prefix + name) for (name, type), table in zip(types, tables, strict=True)
    )


def _field(pyarrow: Any, name: str, type: Any, table: Table, path: str) -> SchemaField:
    encoding = table.table(4)
    type = _storage(pyarrow, type)
    if encoding is not None and pyarrow.types.is_dictionary(type):
        values = _plain_field(pyarrow, name, type.value_type, table, path)
        return SchemaField(name, path, type.index_type, 2, False, (), encoding.scalar(0, "<q"), values)
    return _plain_field(pyarrow, name, type, table, path)


def _plain_field(pyarrow: Any, name: str, type: Any, table: Table, path: str) -> SchemaField:
    type = _storage(pyarrow, type)
    kinds = [(type.field(number).name, type.field(number).type) for number in range(type.num_fields)]
    children = _fields(pyarrow, kinds, list(table.tables(5)), table, f"{path}.") if kinds else ()
    is_view = bool(pyarrow.types.is_string_view(type) or pyarrow.types.is_binary_view(type))
    return SchemaField(name, path, type, _buffer_count(pyarrow, type), is_view, children)


def _buffer_count(pyarrow: Any, type: Any) -> int:
    """Return the number of buffers in a record batch. PyArrow also counts validity buffers that are always absent."""
    types = pyarrow.types
    is_without = types.is_null(type) or types.is_run_end_encoded(type) or types.is_union(type)
    return int(type.num_buffers - is_without)


def _storage(pyarrow: Any, type: Any) -> Any:
    """Return the storage type of an extension type. No code of an extension type runs."""
    while isinstance(type, pyarrow.BaseExtensionType):
        type = type.storage_type
    return type


def stored_fields(pyarrow: Any, fields: tuple[SchemaField, ...], batch: RecordBatch) -> tuple[Stored, ...]:
    """Return the fields of a record batch with their buffers.

    Raises:
        CorruptRecordError: The record batch has fewer arrays or buffers than its schema.
    """
    nodes, given = iter(batch.nodes()), batch.buffers()
    buffers = iter(given)
    variadic = iter(batch.variadic_counts())

    def stored(field: SchemaField) -> Stored:
        node = next(nodes, None)
        count = field.buffers + (next(variadic, 0) if field.is_variadic else 0)
        if batch.version < V5 and pyarrow.types.is_union(field.type):
            count += 1  # a validity buffer
        own = tuple(islice(buffers, max(0, min(count, len(given)))))
        if node is None or len(own) < count:
            raise batch.header.error("a record batch has fewer arrays or buffers than its schema")
        return Stored(field, node, own, tuple([stored(child) for child in field.children]))

    found = tuple(stored(field) for field in fields)
    for part in found:
        if part.node.length != batch.rows:
            raise batch.header.error(
                f"column {part.field.name!r} has {part.node.length} rows in a record batch of {batch.rows} rows"
            )
    return found


def selected(pyarrow: Any, field: Stored, is_wanted: Callable[[str], bool]) -> Stored | None:
    """Return a field, or a struct with its wanted fields, or None if no field is wanted."""
    if is_wanted(field.field.path):
        return field
    if not pyarrow.types.is_struct(field.field.type):
        return None
    children = tuple(kept for child in field.children if (kept := selected(pyarrow, child, is_wanted)) is not None)
    if not children:
        return None
    return Stored(field.field, field.node, field.buffers, children)


def rebuilt_type(pyarrow: Any, field: SchemaField, children: list[Any]) -> Any:
    """Return the type of a field with other types inside.

    Raises:
        ArrowTypeError: This package cannot read the type.
    """
    types, own = pyarrow.types, field.type
    if not field.children:
        return own
    if types.is_struct(own):
        return pyarrow.struct(children)
    for is_kind, make in (
        (types.is_list, pyarrow.list_),
        (types.is_large_list, pyarrow.large_list),
        (types.is_list_view, pyarrow.list_view),
        (types.is_large_list_view, pyarrow.large_list_view),
    ):
        if is_kind(own):
            return make(children[0])
    if types.is_fixed_size_list(own):
        return pyarrow.list_(children[0], own.list_size)
    if types.is_map(own):
        keys, values = children[0].type
        return pyarrow.map_(keys.with_nullable(False), values)
    raise ArrowTypeError(field.path, f"the column has the type {own}, which cannot be read. Select other columns")


def shown_type(pyarrow: Any, field: SchemaField) -> str | None:
    """Describe a type. Types that are read alike have the same description, and a type without values has none."""
    types, kind = pyarrow.types, field.type
    if field.values is not None:
        return shown_type(pyarrow, field.values)
    if types.is_null(kind):
        return None
    if types.is_fixed_size_list(kind) or _is_list(types, kind):
        size = f"{kind.list_size} " if types.is_fixed_size_list(kind) else ""
        return f"a list of {size}{shown_type(pyarrow, field.children[0])}"
    if types.is_timestamp(kind):
        return f"timestamp[{kind.unit}]"
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "text"
    if any(is_kind(kind) for is_kind in (types.is_binary, types.is_large_binary, types.is_binary_view)):
        return "bytes"
    return "bytes" if types.is_fixed_size_binary(kind) else f"{kind}"


def _is_list(types: Any, kind: Any) -> bool:
    return any(
        is_kind(kind) for is_kind in (types.is_list, types.is_large_list, types.is_list_view, types.is_large_list_view)
    )
