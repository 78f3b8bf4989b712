"""Types that ``schema=`` declares for columns whose types differ between the files: check them, and convert values."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, TypeAlias

import numpy as np

from aiostream_data.arguments import numpy_dtype, shown
from aiostream_data.errors import ArgumentTypeError, PlanError, TableSchemaError
from aiostream_data.formats.column_paths import top_of
from aiostream_data.formats.plain_types import plain_type
from aiostream_data.formats.row_groups import TableRows
from aiostream_data.rows.columns import Column, VarColumn
from aiostream_data.safe_url import safe_url

Declared: TypeAlias = tuple[tuple[str, str], ...]
"""Names and types of columns, sorted by name. A type is ``str``, ``bytes``, or the name of a dtype."""

_TYPES: Final = "str, bytes, bool, or a dtype of bool, integers or floating-point numbers of up to 64 bits"
_KINDS: Final = tuple(np.dtype(code) for code in "?bhilqBHILQefd")
_TEXTS: Final = ("str", "bytes")


def checked_types(schema: Any) -> Declared:
    """Check a ``schema`` argument, which maps names of columns to types. None declares no type.

    Raises:
        PlanError: The argument is no such mapping.
    """
    if schema is None:
        return ()
    if not isinstance(schema, Mapping):
        example = "{'id': np.int64, 'text': str}"
        raise ArgumentTypeError(f"schema must be a dict such as {example} or None, got {type(schema).__name__}")
    if not schema:
        raise PlanError("schema must contain at least one column, got an empty dict")
    for name in schema:
        if not isinstance(name, str):
            raise ArgumentTypeError(f"the names of schema must be str, got {shown(name)}")
    return tuple((name, _checked_type(name, schema[name])) for name in sorted(schema))


def _checked_type(name: str, given: Any) -> str:
    if given is str or given is bytes:
        return str(given.__name__)
    dtype = numpy_dtype(f"schema[{name!r}]", given, _TYPES)
    if dtype.kind in "US" and dtype.itemsize == 0:
        return "str" if dtype.kind == "U" else "bytes"
    if dtype not in _KINDS or given is None:
        raise PlanError(f"schema[{name!r}] must be {_TYPES}, got {shown(given)}")
    return dtype.name


class DeclaredColumns:
    """Columns of one file that have a declared type.

    Attributes:
        types: Declared type of each column that is read.
        row_nbytes: Size in bytes of the converted values of a row.

    Args:
        pyarrow: The module.
        url: URL of the file, for error messages.
        declared: The declared types.
        stored: Arrow types of the columns of the file. Partitions of its URL are text.
        read: Names of the columns to read.

    Raises:
        PlanError: The file has no column of a declared name.
        TableSchemaError: The values of a column are not converted to the declared type.
    """

    def __init__(
        self, pyarrow: Any, url: str, declared: Declared, stored: Mapping[str, Any], read: Collection[str]
    ) -> None:
        self._targets: dict[str, Any] = {}
        self.types: dict[str, str] = {}
        for name, wanted in declared:
            if name not in stored:
                raise _unknown(url, name, stored)
            if name in read:
                self.types[name] = wanted
                self._add(pyarrow, url, name, plain_type(pyarrow, stored[name]), wanted)
        self.row_nbytes = sum(8 if kind.bit_width < 8 else kind.bit_width // 8 for kind in self._numbers().values())

    def _add(self, pyarrow: Any, url: str, name: str, stored: Any, wanted: str) -> None:
        types = pyarrow.types
        if types.is_null(stored):
            self._targets[name] = _arrow_type(pyarrow, wanted)
        elif wanted in _TEXTS:
            is_wanted = _is_text(types, stored) if wanted == "str" else _is_binary(types, stored)
            if not is_wanted:
                raise _misfit(url, name, stored, wanted)
        elif not _is_number(types, stored) or not _keeps_values(np.dtype(stored.to_pandas_dtype()), np.dtype(wanted)):
            raise _misfit(url, name, stored, wanted)
        elif not stored.equals(target := _arrow_type(pyarrow, wanted)):
            self._targets[name] = target

    def _numbers(self) -> dict[str, Any]:
        return {name: kind for name, kind in self._targets.items() if self.types[name] not in _TEXTS}

    def target(self, name: str, stored: Any) -> Any:
        """Return the Arrow type of the values of a column after the conversion."""
        return self._targets.get(name, stored)

    def table(self, table: Any) -> Any:
        """Return a ``pyarrow.Table`` whose columns have the declared types."""
        for place, name in enumerate(table.column_names if self._targets else ()):
            if name in self._targets:
                table = table.set_column(place, name, table.column(place).cast(self._targets[name]))
        return table

    def rows(self, part: TableRows) -> TableRows:
        """Return rows whose columns have the declared types. Columns of Arrow's type null are left as they are."""
        if not self._targets:
            return part
        leaves: list[Column] = list(part.leaves)
        first = 0
        for name, kind in zip(part.structure.names, part.structure.children, strict=True):
            column = leaves[first] if kind.leaf_count else None
            if name in self._targets and isinstance(column, np.ndarray) and not column.dtype.hasobject:
                leaves[first] = _converted(column, self.types[name])
            first += kind.leaf_count
        return part._replace(leaves=tuple(leaves))


def _converted(column: Column, wanted: str) -> Column:
    if isinstance(column, VarColumn) or wanted in _TEXTS:
        return column
    with np.errstate(invalid="ignore"):  # signaling NaNs
        return column.astype(wanted)


def _keeps_values(stored: np.dtype[Any], wanted: np.dtype[Any]) -> bool:
    """Return True if all numbers of a dtype are numbers of another one."""
    if "b" in (stored.kind, wanted.kind):
        return stored == wanted
    rounds = stored.kind in "iu" and stored.itemsize == 8 and wanted.kind == "f"  # NumPy considers this safe
    return np.can_cast(stored, wanted, "safe") and not rounds


def _arrow_type(pyarrow: Any, wanted: str) -> Any:
    if wanted in _TEXTS:
        return pyarrow.string() if wanted == "str" else pyarrow.binary()
    return pyarrow.from_numpy_dtype(np.dtype(wanted))


def _is_number(types: Any, kind: Any) -> bool:
    return bool(types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind))


def _is_text(types: Any, kind: Any) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_binary(types: Any, kind: Any) -> bool:
    is_sized = types.is_fixed_size_binary(kind) and not types.is_decimal(kind)
    return bool(is_sized or types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind))


def _unknown(url: str, name: str, stored: Mapping[str, Any]) -> PlanError:
    if top_of(name, stored) in stored:
        where = f"{safe_url(url)} has no column of this name"
        return PlanError(f"schema declares {name!r}, but {where}. Name a whole column, not a field of a struct.")
    names = ", ".join(map(repr, stored))
    return PlanError(f"{safe_url(url)} has no column {name!r}, which schema declares. Its columns are {names}.")


def _misfit(url: str, name: str, stored: Any, wanted: str) -> TableSchemaError:
    return TableSchemaError(
        url,
        name,
        f"column {name!r} is {stored}, whose values are not all values of {wanted}, the type in schema=. Declare a "
        "type that contains the values of all files, convert the file, or select other columns",
    )
