"""Find the Arrow type in which the values of a column are stored, and name it."""

from __future__ import annotations

from typing import Any


def plain_type(pyarrow: Any, type: Any) -> Any:
    """Return the storage type of an extension type, or the type of the values of a dictionary."""
    while isinstance(type, pyarrow.BaseExtensionType) or pyarrow.types.is_dictionary(type):
        type = type.value_type if pyarrow.types.is_dictionary(type) else type.storage_type
    return type


def shown_type(pyarrow: Any, type: Any) -> str | None:
    """Return the name of a type for comparisons, which is equal for all layouts of the same values. None for nulls."""
    types = pyarrow.types
    type = plain_type(pyarrow, type)
    if types.is_null(type):
        return None
    if types.is_string(type) or types.is_large_string(type) or types.is_string_view(type):
        return "string"
    if types.is_binary(type) or types.is_large_binary(type) or types.is_binary_view(type):
        return "binary"
    if types.is_list(type) or types.is_large_list(type):
        return f"list<{shown_type(pyarrow, type.value_type)}>"
    if types.is_fixed_size_list(type):
        return f"list<{shown_type(pyarrow, type.value_type)}>[{type.list_size}]"
    if types.is_map(type):  # its text names the field of the values, which writers choose
        return f"map<{shown_type(pyarrow, type.key_type)}, {shown_type(pyarrow, type.item_type)}>"
    if types.is_struct(type):
        fields = [type.field(number) for number in range(type.num_fields)]
        return f"struct<{', '.join(f'{each.name}: {shown_type(pyarrow, each.type)}' for each in fields)}>"
    return str(type)
