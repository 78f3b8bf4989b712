"""Rows of Arrow arrays as Python objects: decimals, maps, and lists of structs, of lists or of text."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from aiostream_data.rows.arrow.arrow_forms import ArrowForm
from aiostream_data.rows.arrow.imported_columns import ArrowLeaf, flat_leaf, variable_leaf
from aiostream_data.rows.arrow.imported_nested import decoded_indices, dictionary_rows, list_places
from aiostream_data.rows.arrow.imported_rows import ArrowRows
from aiostream_data.rows.columns import column_elements, object_array

_EXACT: Final = Context(prec=100)
"""Context of decimals with up to 256 bits, which have at most 78 digits."""


def object_leaf(rows: ArrowRows) -> ArrowLeaf:
    """Return a column of Python objects, in which a missing row is the object None; see :func:`objects_of`.

    Raises:
        ArrowDataError: The data is invalid.
    """
    return ArrowLeaf(object_array(objects_of(rows)), None)


def text_lists_leaf(rows: ArrowRows) -> ArrowLeaf:
    """Return the column of an array of lists of text or bytes. Each row is an array of Python objects.

    Raises:
        ArrowDataError: The data is invalid.
    """
    items, starts, lengths = list_places(rows)
    return variable_leaf(object_array(objects_of(items)), starts, lengths, "array", rows.valid())


def objects_of(rows: ArrowRows) -> list[Any]:
    """Return the rows of an array as the Python objects that ``json.loads`` would return. A missing row is None.

    Structs and maps are dicts, and lists are lists. Numbers are ``int``, ``float`` or ``Decimal``; dates are
    ``numpy.datetime64``. If a map contains a key twice, the last value counts.

    Raises:
        ArrowDataError: The data is invalid.
    """
    found, valid = _values_of(rows), rows.valid()
    if valid is None:
        return found
    return [value if is_valid else None for value, is_valid in zip(found, valid.tolist(), strict=True)]


def _values_of(rows: ArrowRows) -> list[Any]:
    """Return the rows of an array. The values of missing rows are undefined."""
    if rows.schema.dictionary is not None:
        entries = objects_of(dictionary_rows(rows))
        return [entries[index] for index in decoded_indices(rows).tolist()] if entries else [None] * len(rows)
    form = rows.form
    make = _MAKERS.get(form.family)
    return _flat_values(rows, form) if make is None else make(rows)


def _flat_values(rows: ArrowRows, form: ArrowForm) -> list[Any]:
    column = flat_leaf(rows, form).column
    is_number = isinstance(column, np.ndarray) and column.dtype.kind in "biuf"
    return column.tolist() if is_number else column_elements(column)  # type: ignore[union-attr]


def _structs(rows: ArrowRows) -> list[Any]:
    names = [child.name for child in rows.schema.children]
    if not names:
        return [{} for _ in range(len(rows))]
    fields = [objects_of(rows.field(i, f"{rows.path}.{name}")) for i, name in enumerate(names)]
    return [dict(zip(names, values, strict=True)) for values in zip(*fields, strict=True)]


def _lists(rows: ArrowRows) -> list[Any]:
    items, starts, lengths = list_places(rows)
    if lengths.sum(dtype=np.float64) > len(items):
        raise rows.error("the lists share items. Cast the column to a type without views")
    values = objects_of(items)
    return [values[start:stop] for start, stop in zip(starts.tolist(), (starts + lengths).tolist(), strict=True)]


def _maps(rows: ArrowRows) -> list[Any]:
    entries, starts, lengths = list_places(rows)
    keys, values = (objects_of(entries.field(i, rows.path)) for i in (0, 1))
    pairs = list(zip(keys, values, strict=True))
    return [dict(pairs[start:stop]) for start, stop in zip(starts.tolist(), (starts + lengths).tolist(), strict=True)]


def _decimals(rows: ArrowRows) -> list[Any]:
    size, scale = rows.form.size, rows.form.scale
    stored = rows.memory(1, rows.start * size, len(rows) * size)
    scaled = _EXACT.scaleb
    return [scaled(Decimal(number), -scale) for number in _integers(stored, size)]


def _integers(stored: NDArray[np.uint8], size: int) -> list[int]:
    """Return the integers of ``size`` bytes each, in little-endian two's complement."""
    if size <= 8:
        narrow: list[int] = np.ascontiguousarray(stored).view(f"<i{size}").tolist()
        return narrow
    words = np.ascontiguousarray(stored).view("<i8").reshape(-1, size // 8)
    if (words[:, 1:] == words[:, :1] >> 63).all():  # every number fits into 64 bits
        return words[:, 0].tolist()  # type: ignore[no-any-return]
    data = stored.tobytes()
    return [int.from_bytes(data[at : at + size], "little", signed=True) for at in range(0, len(data), size)]


_MAKERS: Final[dict[str, Callable[[ArrowRows], list[Any]]]] = {
    "decimal": _decimals,
    "struct": _structs,
    "map": _maps,
    **dict.fromkeys(("list", "list_view", "fixed_list"), _lists),
}
