"""Check the formats that users write."""

from __future__ import annotations

from typing import Any

from aiostream_data.arguments import shown
from aiostream_data.errors import ArgumentTypeError, PlanError
from aiostream_data.formats.base import Format
from aiostream_data.formats.row_groups import TableFormat

_GUIDE = "See docs/own_formats.md."


def checked_format(format: Any) -> Format | TableFormat:
    """Return ``format`` unchanged if it implements the interface of formats, with framers or with a directory.

    Raises:
        ArgumentTypeError: ``format`` lacks an attribute of formats, or is a class.
        PlanError: ``format`` has an invalid name, or cannot be hashed.
    """
    if isinstance(format, type):
        raise ArgumentTypeError(f"format must be a format object, got the class {format.__name__}. Create an object.")
    is_table = callable(getattr(format, "directory", None))
    if not is_table and not callable(getattr(format, "framer", None)):
        methods = "framer(url) or directory(url, nbytes)"
        raise ArgumentTypeError(f"format must have a method {methods}, got {shown(format)}. {_GUIDE}")
    if not is_table and not isinstance(getattr(format, "whole", None), bool):
        raise ArgumentTypeError(f"{_named(format)} must have an attribute 'whole' that is True or False. {_GUIDE}")
    name = getattr(format, "name", None)
    if not isinstance(name, str) or not name.isidentifier():
        raise PlanError(f"{_named(format)} must have a name that is a Python identifier, got {shown(name)}. {_GUIDE}")
    try:
        hash(format)
    except TypeError:
        raise PlanError(f"{_named(format)} cannot be hashed. Make it a frozen dataclass. {_GUIDE}") from None
    return format  # type: ignore[no-any-return]


def _named(format: Any) -> str:
    return f"the format {type(format).__name__}"
