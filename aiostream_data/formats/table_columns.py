"""Columns of a table whose schema has changed: find them in its files, and convert their values to today's types.

The schema of the table is an Arrow schema. The metadata of each field names the column in the files: by the name that
the files use, or by the field id that Parquet stores. Rows of a file that lacks a column have its default or null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from aiostream_data.errors import PlanError, TableSchemaError
from aiostream_data.formats.column_paths import top_of
from aiostream_data.formats.plain_types import shown_type

KEY: Final = b"aiostream:key"
"""Metadata of a field: ``name:`` and a name in the files, or ``id:`` and a field id."""

NAMES: Final = b"aiostream:names"
"""Metadata of a field with a field id: names of the column, one per line, in files without field ids."""

DEFAULT: Final = b"aiostream:default"
"""Metadata of a field: value of the column in files that lack it, as an Arrow stream; see :func:`default`."""

_FIELD_ID: Final = b"PARQUET:field_id"
_NAME: Final = "name:"
_ID: Final = "id:"


def key_by_name(name: str) -> str:
    """Return the key of a column that files call ``name``."""
    return _NAME + name


def key_by_id(number: int) -> str:
    """Return the key of a column with a field id."""
    return f"{_ID}{number}"


def default(pyarrow: Any, value: Any, kind: Any) -> bytes:
    """Return the metadata :data:`DEFAULT` of a field.

    Raises:
        pyarrow.ArrowException: The value does not fit the type.
    """
    table = pyarrow.table([pyarrow.array([value], kind)], names=[""])
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def selected(pyarrow: Any, schema: Any, columns: Sequence[str], table: str) -> Any:
    """Return a schema with some columns, in this order. ``a.b`` selects the field ``b`` of the struct ``a``.

    Raises:
        PlanError: The table has no such column.
    """
    wanted: dict[str, list[str] | None] = {}
    for column in columns:
        name = top_of(column, schema.names)
        inner = column[len(name) + 1 :]
        if name not in schema.names:
            names = ", ".join(map(repr, schema.names))
            raise PlanError(f"{table} has no column {column!r}. Its columns are {names}.")
        before = wanted.get(name, [])
        wanted[name] = None if not inner or before is None else [*before, inner]
    fields = [schema.field(name) for name in wanted]
    return pyarrow.schema(
        [_with_fields(pyarrow, field, inner, table) for field, inner in zip(fields, wanted.values(), strict=True)]
    )


def _with_fields(pyarrow: Any, field: Any, names: Sequence[str] | None, table: str) -> Any:
    if names is None:
        return field
    if not pyarrow.types.is_struct(field.type):
        raise PlanError(f"{table}: column {field.name!r} has no field {names[0]!r}, because it is no struct.")
    inner = selected(pyarrow, pyarrow.schema(list(field.type)), names, f"{table} column {field.name!r}")
    return field.with_type(pyarrow.struct(list(inner)))


def with_inner_fields(pyarrow: Any, kind: Any, changed: Callable[[Any], Any]) -> Any:
    """Return a type whose fields, elements, keys and values are replaced by ``changed(field)``."""
    types = pyarrow.types
    if types.is_struct(kind):
        return pyarrow.struct([changed(each) for each in kind])
    if types.is_map(kind):
        return pyarrow.map_(changed(kind.key_field), changed(kind.item_field), kind.keys_sorted)
    if types.is_list(kind):
        return pyarrow.list_(changed(kind.value_field))
    if types.is_large_list(kind):
        return pyarrow.large_list(changed(kind.value_field))
    return kind


class FileColumns:
    """Columns of a table in one of its files.

    Args:
        pyarrow: The module.
        url: URL of the file, for error messages.
        schema: The wanted columns of the table, with :data:`KEY` in the metadata of each field.
        constants: Values of columns that are the same in all rows of the file, such as partition columns.
        stored: Arrow schema of the file.

    Raises:
        TableSchemaError: The file lacks a column that cannot be null, has no field ids, or has a column of a type that
            is not converted.
    """

    def __init__(self, pyarrow: Any, url: str, schema: Any, constants: Mapping[str, Any], stored: Any) -> None:
        self._pyarrow = pyarrow
        self._url = url
        self._schema = schema
        self._constants = constants
        self._has_ids = any(_FIELD_ID in (field.metadata or {}) for field in stored)
        self._check_ids()
        read = [field for field in schema if field.name not in constants]
        self.paths = tuple(path for field in read for path in self._paths(field, stored, ""))
        self.names = {
            field.name: stored.field(at).name for field in read if (at := self._place(field, stored)) is not None
        }

    @property
    def absent(self) -> list[str]:
        """Names of the columns that the file lacks."""
        return [name for name in self._schema.names if name not in self.names and name not in self._constants]

    def added_nbytes(self, rows: int) -> int:
        """Return the memory of values that are converted, or that the file does not store, at most."""
        sizes = [len(value) if isinstance(value, (str, bytes)) else 8 for value in self._constants.values()]
        sizes += [len(value.as_buffer()) for value in _long_defaults(self._pyarrow, self._schema)]
        return rows * (sum(sizes) + 8 * (len(self._schema) - len(self._constants)))

    def of(self, table: Any, rows: int) -> Any:
        """Return a ``pyarrow.Table`` with the columns of the schema.

        Args:
            table: Table with the columns of :attr:`paths`.
            rows: Number of rows of the table.
        """
        columns = [self._column(field, table, rows) for field in self._schema]
        return self._pyarrow.table(columns, schema=self._schema)

    def constant_row(self) -> Any:
        """Return a ``pyarrow.Table`` of one row with the columns that are the same in all rows of the file."""
        absent = {name: _default_of(self._pyarrow, self._schema.field(name)) for name in self.absent}
        return one_row(self._pyarrow, self._schema, {**self._constants, **absent})

    def _column(self, field: Any, table: Any, rows: int) -> Any:
        place = None if field.name in self._constants else self._place(field, table.schema)
        if place is None:
            return self._constant(field, rows)
        chunks = [self._fitted(chunk, field, field.name) for chunk in table.column(place).chunks]
        return self._pyarrow.chunked_array(chunks, type=field.type)

    def _constant(self, field: Any, rows: int) -> Any:
        value = self._constants[field.name] if field.name in self._constants else _default_of(self._pyarrow, field)
        return _repeated(self._pyarrow, field, value, rows)

    def _fitted(self, array: Any, field: Any, path: str) -> Any:
        pa = self._pyarrow
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        if _items(pa.types, field.type) and _has_struct(pa.types, field.type):
            return self._fitted_lists(array, field, path)
        if not pa.types.is_struct(field.type):
            return array if array.type.equals(field.type) else self._converted(array, field, path)
        children = []
        for inner in field.type:
            place = self._place(inner, array.type)
            if place is None:
                children.append(_repeated(pa, inner, _default_of(pa, inner), len(array)))
            else:
                children.append(self._fitted(array.field(place), inner, f"{path}.{inner.name}"))
        return pa.StructArray.from_arrays(children, fields=list(field.type), mask=array.is_null())

    def _fitted_lists(self, array: Any, field: Any, path: str) -> Any:
        """Return lists or maps whose items contain structs. The fields of these structs are found by their keys."""
        pa, kind = self._pyarrow, field.type
        if pa.types.is_null(array.type):
            return pa.nulls(len(array), kind)
        missing = np.asarray(array.is_null())
        ends = np.cumsum(np.where(missing, 0, np.diff(np.asarray(array.offsets))))
        offsets = pa.array(
            np.concatenate([[0], ends]).astype(np.int64 if pa.types.is_large_list(kind) else np.int32),
            mask=np.append(missing, False),
        )
        inner = _items(pa.types, kind)
        if pa.types.is_map(kind):
            pairs = _pairs(pa, array).flatten()
            keys, values = (self._fitted(pairs.field(at), each, path) for at, each in enumerate(inner))
            return pa.MapArray.from_arrays(offsets, keys, values, type=kind)
        fitted = [self._fitted(array.flatten(), each, path) for each in inner]
        lists = pa.LargeListArray if pa.types.is_large_list(kind) else pa.ListArray
        return lists.from_arrays(offsets, *fitted, type=kind)

    def _converted(self, array: Any, field: Any, path: str) -> Any:
        try:
            return array.cast(field.type)
        except self._pyarrow.ArrowException as error:
            raise TableSchemaError(
                self._url, path, f"column {path!r} cannot be converted to {field.type}, its type in the table: {error}"
            ) from error

    def _paths(self, field: Any, parent: Any, above: str, shown: str = "") -> Iterator[str]:
        """Yield the paths in the file that a column of the table needs, and check its type."""
        place = self._place(field, parent)
        path = f"{shown}.{field.name}" if shown else field.name
        if place is None:
            if not field.nullable and DEFAULT not in (field.metadata or {}):
                raise TableSchemaError(self._url, path, f"the file lacks column {path!r}, which cannot be null")
            return
        stored = parent.field(place)
        here = above + stored.name
        if not self._pyarrow.types.is_struct(field.type):
            self._check_type(field, stored, path)
            yield here
            return
        if not self._pyarrow.types.is_struct(stored.type):
            raise self._misfit(field, stored, path)
        inner = [each for child in field.type for each in self._paths(child, stored.type, f"{here}.", path)]
        yield from inner or [here]  # a struct whose wanted fields are all absent: its nulls count

    def _check_type(self, field: Any, stored: Any, path: str) -> None:
        if not self._fits(field, stored):
            raise self._misfit(field, stored, path)

    def _fits(self, field: Any, stored: Any) -> bool:
        """Return True if the values of a column of the file can become those of a column of the table."""
        types = self._pyarrow.types
        if types.is_null(stored.type) or not _has_struct(types, field.type):
            return _is_widened(self._pyarrow, stored.type, field.type)
        if types.is_struct(field.type):
            return bool(types.is_struct(stored.type)) and all(self._has_field(each, stored) for each in field.type)
        wanted, found = _items(types, field.type), _items(types, stored.type)
        return len(wanted) == len(found) and all(map(self._fits, wanted, found))

    def _has_field(self, field: Any, stored: Any) -> bool:
        place = self._place(field, stored.type)
        if place is None:
            return bool(field.nullable) or DEFAULT in (field.metadata or {})
        return self._fits(field, stored.type.field(place))

    def _misfit(self, field: Any, stored: Any, path: str) -> TableSchemaError:
        reason = f"column {path!r} is {stored.type}, but {field.type} in the table. Select other columns"
        return TableSchemaError(self._url, path, reason)

    def _check_ids(self) -> None:
        by_id = any(_key(field).startswith(_ID) for field in self._schema)
        if by_id and not self._has_ids and not any(NAMES in field.metadata for field in self._schema):
            raise TableSchemaError(
                self._url, "", "the file has no field ids, and the table has no name mapping. Rewrite the file"
            )

    def _place(self, field: Any, parent: Any) -> int | None:
        """Return the number of a column among the fields of a schema or struct; None if it is absent."""
        key, names = _key(field), [_key(field).removeprefix(_NAME)]
        if key.startswith(_ID) and not self._has_ids:
            names = field.metadata.get(NAMES, b"").decode().split("\n")
        for number, stored in enumerate(parent):
            number_of_stored = (stored.metadata or {}).get(_FIELD_ID, b"").decode()
            by_id = key.startswith(_ID) and self._has_ids
            if number_of_stored == key.removeprefix(_ID) if by_id else stored.name in names:
                return number
        return None


def one_row(pyarrow: Any, schema: Any, values: Mapping[str, Any]) -> Any:
    """Return a ``pyarrow.Table`` of one row with these columns of a schema."""
    fields = [field for field in schema if field.name in values]
    columns = [_repeated(pyarrow, field, values[field.name], 1) for field in fields]
    return pyarrow.table(columns, schema=pyarrow.schema(fields))


def _repeated(pyarrow: Any, field: Any, value: Any, rows: int) -> Any:
    if value is None:
        return pyarrow.nulls(rows, field.type)
    scalar = value if isinstance(value, pyarrow.Scalar) else pyarrow.scalar(value, field.type)
    array = pyarrow.repeat(scalar, rows)
    return array if array.type.equals(field.type) else array.cast(field.type)


def _default_of(pyarrow: Any, field: Any) -> Any:
    """Return the value of a column in files that lack it, a ``pyarrow.Scalar`` or None."""
    content = (field.metadata or {}).get(DEFAULT)
    return None if content is None else pyarrow.ipc.open_stream(content).read_all().column(0)[0]


def _long_defaults(pyarrow: Any, fields: Any) -> Iterator[Any]:
    """Yield the defaults of the columns with text or bytes in a schema or struct."""
    for field in fields:
        value = _default_of(pyarrow, field)
        if isinstance(value, pyarrow.BinaryScalar):
            yield value
        if pyarrow.types.is_struct(field.type):
            yield from _long_defaults(pyarrow, field.type)


def _key(field: Any) -> str:
    metadata: Mapping[bytes, bytes] = field.metadata or {}
    return metadata[KEY].decode() if KEY in metadata else key_by_name(field.name)


def _is_widened(pyarrow: Any, stored: Any, wanted: Any) -> bool:
    """Return True if all values of one type are values of the other one, or differ only in their layout."""
    types = pyarrow.types
    if shown_type(pyarrow, stored) == shown_type(pyarrow, wanted):
        return True
    if types.is_null(stored):
        return True
    if _is_any_list(types, stored) and _is_any_list(types, wanted):
        return _is_widened(pyarrow, stored.value_type, wanted.value_type)
    if types.is_map(stored) and types.is_map(wanted):
        keys = _is_widened(pyarrow, stored.key_type, wanted.key_type)
        return keys and _is_widened(pyarrow, stored.item_type, wanted.item_type)
    if types.is_signed_integer(stored):
        if types.is_signed_integer(wanted):
            return bool(stored.bit_width <= wanted.bit_width)
        if types.is_decimal(wanted):
            return bool(wanted.precision - wanted.scale >= (10 if stored.bit_width <= 32 else 19))
        return bool(types.is_float64(wanted) and stored.bit_width <= 32)
    if types.is_float32(stored):
        return bool(types.is_float64(wanted))
    if types.is_decimal(stored) and types.is_decimal(wanted):
        whole = stored.precision - stored.scale <= wanted.precision - wanted.scale
        return bool(whole and stored.scale <= wanted.scale)
    if types.is_timestamp(stored) and types.is_timestamp(wanted):
        return stored.tz is None or stored.tz == wanted.tz  # the writers of Hive and Spark store UTC without a zone
    return bool(types.is_date32(stored) and types.is_timestamp(wanted) and wanted.tz is None)


def _pairs(pyarrow: Any, array: Any) -> Any:
    """Return maps as lists of structs of a key and a value."""
    fields = [array.type.key_field, array.type.item_field]
    pairs = pyarrow.StructArray.from_arrays([array.keys, array.items], fields=fields)
    buffers = array.buffers()[:2]
    return pyarrow.ListArray.from_buffers(pyarrow.list_(pairs.type), len(array), buffers, -1, array.offset, [pairs])


def _has_struct(types: Any, kind: Any) -> bool:
    return bool(types.is_struct(kind)) or any(_has_struct(types, each.type) for each in _items(types, kind))


def _items(types: Any, kind: Any) -> list[Any]:
    """Return the field of the elements of a list, or those of the keys and values of a map. Empty for other types."""
    if types.is_map(kind):
        return [kind.key_field, kind.item_field]
    return [kind.value_field] if _is_any_list(types, kind) else []


def _is_any_list(types: Any, kind: Any) -> bool:
    return bool(types.is_list(kind) or types.is_large_list(kind))
