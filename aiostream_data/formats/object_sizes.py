"""Estimate the memory of Arrow values as Python objects, such as lists of structs; see :mod:`.imported_objects`.

The sizes are those of CPython. The characters of texts are not included.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from aiostream_data.formats.plain_types import plain_type

_FIELD_NBYTES: Final = 46
"""Memory of a field of a dict. A dict has room for at least ``_LEAST_FIELDS`` fields."""

_LEAST_FIELDS: Final = 4
_LIST_NBYTES: Final = 72
_LIST_ITEMS: Final = 3
"""Assumed mean length of a list. Parquet declares only the number of the innermost values, not the number of lists."""

_NUMBER_NBYTES: Final = 40
_TEXT_NBYTES: Final = 112
"""Memory of a text without its characters, or of a decimal, and of the reference to it."""


def makes_objects(pyarrow: Any, type: Any) -> bool:
    """Return True if the values of a type become Python objects, or contain such values."""
    types = pyarrow.types
    type = plain_type(pyarrow, type)
    if types.is_struct(type):
        return any(makes_objects(pyarrow, type.field(number).type) for number in range(type.num_fields))
    if types.is_decimal(type) or types.is_map(type):
        return True
    if not types.is_nested(type) or types.is_union(type):
        return False
    items = plain_type(pyarrow, type.value_type)
    while types.is_fixed_size_list(items):
        items = plain_type(pyarrow, items.value_type)
    return not types.is_primitive(items) and not types.is_null(items)


def node_nbytes(pyarrow: Any, type: Any) -> int:
    """Return the memory of a value as a Python object, without the objects inside."""
    types = pyarrow.types
    if types.is_struct(type):
        return _FIELD_NBYTES * max(_LEAST_FIELDS, int(type.num_fields))
    if types.is_nested(type):
        return _LIST_NBYTES
    return _NUMBER_NBYTES if types.is_primitive(type) else _TEXT_NBYTES


def leaf_nbytes(pyarrow: Any, type: Any) -> int:
    """Return the memory of one of the innermost values of a column, with its share of the lists and dicts around it.

    Lists are assumed to have a few items. The result is 0 if the column has no Python objects.
    """
    if not makes_objects(pyarrow, type):
        return 0
    nodes = list(_nodes(pyarrow, type))
    nested = [node for node in nodes if pyarrow.types.is_nested(node)]
    lists = len([node for node in nested if not pyarrow.types.is_struct(node)])
    nbytes = sum(node_nbytes(pyarrow, node) for node in nodes) - lists * (_LIST_NBYTES - _LIST_NBYTES // _LIST_ITEMS)
    return nbytes // max(1, len(nodes) - len(nested))


def _nodes(pyarrow: Any, type: Any) -> Iterator[Any]:
    """Yield a type and all types that are nested in it."""
    types, type = pyarrow.types, plain_type(pyarrow, type)
    yield type
    if types.is_map(type):
        inside = [type.key_type, type.item_type]
    elif types.is_struct(type):
        inside = [type.field(number).type for number in range(type.num_fields)]
    else:
        inside = [type.value_type] if types.is_nested(type) and not types.is_union(type) else []
    for each in inside:
        yield from _nodes(pyarrow, each)
