"""Paths of columns such as ``a.b``: the field ``b`` of the struct ``a``, or a column whose name has a dot."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Any


def top_of(path: str, names: Container[str]) -> str:
    """Return the name of the column that ``path`` begins with, which may have dots in its name, too.

    Return the part before the first dot if there is no such column.
    """
    end = len(path)
    while end > 0 and path[:end] not in names:
        end = path.rfind(".", 0, end)
    return path[:end] if end > 0 else path.partition(".")[0]


def tops_of(paths: Iterable[str], names: Container[str]) -> list[str]:
    """Return the names of the columns that paths begin with, each once, in the order of the paths."""
    return list(dict.fromkeys(top_of(path, names) for path in paths))


def is_in(path: str, name: str) -> bool:
    """Return True if the leaf column ``path`` is the column ``name``, or a field below it."""
    return path == name or path.startswith(f"{name}.")


def type_at(pyarrow: Any, fields: Iterable[Any], path: str) -> Any:
    """Return the Arrow type of a column, of a field of a struct, or of the list or map that contains the path.

    Return None if there is no such column or field.

    Args:
        pyarrow: The module.
        fields: Fields of a schema or of a struct.
    """
    kinds = {field.name: field.type for field in fields}
    name = top_of(path, kinds)
    kind, inner = kinds.get(name), path[len(name) + 1 :]
    if kind is None or not inner:
        return kind
    if pyarrow.types.is_struct(kind):
        return type_at(pyarrow, kind, inner)
    return kind if pyarrow.types.is_nested(kind) else None


def column_at(pyarrow: Any, table: Any, path: str) -> Any:
    """Return a column of a ``pyarrow.Table``, or a field of a struct; None if there is none.

    A field is missing where a struct around it is missing.
    """
    from pyarrow import compute

    name = top_of(path, table.column_names)
    if name not in table.column_names:
        return None
    column, inner = table.column(table.column_names.index(name)), path[len(name) + 1 :]
    while inner:
        fields = [field.name for field in column.type] if pyarrow.types.is_struct(column.type) else []
        name = top_of(inner, fields)
        if name not in fields:
            return None
        column, inner = compute.struct_field(column, [fields.index(name)]), inner[len(name) + 1 :]
    return column


def selected_columns(pyarrow: Any, table: Any, paths: Sequence[str]) -> Any:
    """Return a table with some columns, in the order of their first paths, and with the named fields of structs."""
    names = table.column_names
    tops = tops_of(paths, names)
    columns = []
    for top in tops:
        column = table.column(top)
        inner = [path[len(top) + 1 :] for path in paths if top_of(path, names) == top]
        chunks = [_with_fields(pyarrow, each, inner) for each in column.chunks or [pyarrow.array([], column.type)]]
        columns.append(pyarrow.chunked_array(chunks))
    return pyarrow.table(columns, names=tops) if tops else table.select([])


def _with_fields(pyarrow: Any, array: Any, paths: Sequence[str]) -> Any:
    """Return a struct array with the named fields only; any other array unchanged."""
    if "" in paths or not pyarrow.types.is_struct(array.type):
        return array
    names = [field.name for field in array.type]
    fields, children = [], []
    for number, field in enumerate(array.type):
        inner = [path[len(field.name) + 1 :] for path in paths if top_of(path, names) == field.name]
        if inner:
            child = _with_fields(pyarrow, array.field(number), inner)
            children.append(child)
            fields.append(field.with_type(child.type))
    return pyarrow.StructArray.from_arrays(children, fields=fields, mask=array.is_null())
