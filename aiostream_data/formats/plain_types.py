"""Find the Arrow type in which the values of a column are stored."""

from __future__ import annotations

from typing import Any


def plain_type(pyarrow: Any, type: Any) -> Any:
    """Return the storage type of an extension type, or the type of the values of a dictionary."""
    while isinstance(type, pyarrow.BaseExtensionType) or pyarrow.types.is_dictionary(type):
        type = type.value_type if pyarrow.types.is_dictionary(type) else type.storage_type
    return type
