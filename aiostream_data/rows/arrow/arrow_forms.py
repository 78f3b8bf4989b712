"""Format strings of Arrow types: which types can be read, and with which NumPy types."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from aiostream_data._native.arrow_nodes import SchemaNode
from aiostream_data.arguments import shown
from aiostream_data.errors import ArrowDataError, ArrowTypeError
from aiostream_data.rows.arrow.exported_numbers import FORMATS

Family = Literal[
    "null",
    "bool",
    "dense",
    "int32",
    "decimal",
    "fixed_binary",
    "text",
    "view",
    "list",
    "list_view",
    "fixed_list",
    "map",
    "struct",
]

_INT32: Final = np.dtype(np.int32)
_INT64: Final = np.dtype(np.int64)


@dataclass(frozen=True, slots=True)
class ArrowForm:
    """Memory layout of one Arrow type.

    Attributes:
        family: Types whose buffers have the same meaning.
        dtype: NumPy type of the column, or of the offsets of text and lists.
        buffers: Number of buffers; for views, the minimum number.
        children: Number of children, or None if any number is valid.
        size: Bytes per row of ``fixed_binary`` and ``decimal``, or items per row of ``fixed_list``.
        scale: Number of digits after the point of a ``decimal``.
        is_text: True if the rows are text, and False if they are bytes.
    """

    family: Family
    dtype: np.dtype[Any] = _INT64
    buffers: int = 2
    children: int | None = 0
    size: int = 0
    scale: int = 0
    is_text: bool = False


NULL_FORMAT: Final = "n"
"""Format of arrays whose rows are all missing. They have no buffers."""

_FORMS: Final = {
    NULL_FORMAT: ArrowForm("null", np.dtype(object), buffers=0),
    "b": ArrowForm("bool", np.dtype(np.bool_)),
    **{text: ArrowForm("dense", dtype) for dtype, text in FORMATS.items()},
    "tdD": ArrowForm("int32", np.dtype("datetime64[D]")),
    "tdm": ArrowForm("dense", np.dtype("datetime64[ms]")),
    "tts": ArrowForm("int32", np.dtype("timedelta64[s]")),
    "ttm": ArrowForm("int32", np.dtype("timedelta64[ms]")),
    "ttu": ArrowForm("dense", np.dtype("timedelta64[us]")),
    "ttn": ArrowForm("dense", np.dtype("timedelta64[ns]")),
    "z": ArrowForm("text", _INT32, buffers=3),
    "Z": ArrowForm("text", _INT64, buffers=3),
    "u": ArrowForm("text", _INT32, buffers=3, is_text=True),
    "U": ArrowForm("text", _INT64, buffers=3, is_text=True),
    "vz": ArrowForm("view", buffers=3),
    "vu": ArrowForm("view", buffers=3, is_text=True),
    "+l": ArrowForm("list", _INT32, children=1),
    "+L": ArrowForm("list", _INT64, children=1),
    "+vl": ArrowForm("list_view", _INT32, buffers=3, children=1),
    "+vL": ArrowForm("list_view", _INT64, buffers=3, children=1),
    "+m": ArrowForm("map", _INT32, children=1),
    "+s": ArrowForm("struct", buffers=1, children=None),
}

_UNREADABLE: Final = {
    "+u": ("a union", "Split the column into one column per type"),
    "+r": ("run-end encoded", "Decode the column, for example with pyarrow.compute.run_end_decode()"),
    "ti": ("an interval", "Cast the column to a duration"),
}

_SIZED: Final = re.compile(r"(\+?w):([0-9]{1,10})")
_DECIMAL: Final = re.compile(r"d:[0-9]{1,2},(-?[0-9]{1,3})(?:,(32|64|128|256))?")
_LISTS: Final = frozenset({"list", "list_view", "fixed_list"})
_ARRAY_ITEMS: Final = frozenset({"null", "bool", "dense", "int32"})
_TEXTS: Final = frozenset({"text", "view", "fixed_binary"})
_KEYS: Final = frozenset({"bool", "dense", "int32", "decimal"}) | _TEXTS
_INTEGERS: Final = frozenset("cCsSiIlL")


def form_of(path: str, schema: SchemaNode) -> ArrowForm:
    """Return the layout of a type.

    Raises:
        ArrowTypeError: This package cannot read the type.
        ArrowDataError: The format string is invalid.
    """
    text = schema.format
    if (form := _FORMS.get(text)) is not None:
        return form
    if text[:2] == "ts" and text[3:4] == ":":
        text = text[:4]  # values with a time zone are UTC
    if (form := _FORMS.get(text)) is not None:
        return form
    if sized := _SIZED.fullmatch(text):
        size = int(sized[2])
        if sized[1] == "w":
            return ArrowForm("fixed_binary", size=size)
        return ArrowForm("fixed_list", buffers=1, children=1, size=size)
    if decimal := _DECIMAL.fullmatch(text):
        return ArrowForm("decimal", np.dtype(object), size=int(decimal[2] or 128) // 8, scale=int(decimal[1]))
    if text[:2] in _UNREADABLE:
        kind, remedy = _UNREADABLE[text[:2]]
        raise ArrowTypeError(path, f"the column is {kind} (format {shown(text)}), which cannot be read. {remedy}")
    raise ArrowDataError(path, f"the format {shown(text)} is not defined by Arrow. Check the producer of the array")


def makes_objects(path: str, schema: SchemaNode) -> bool:
    """Return True if each row of a leaf becomes a Python object: decimals, maps, and most nested lists.

    Lists of numbers or dates become arrays, and so do lists of such lists if the inner lists have a fixed size.
    """
    values = _decoded(schema)
    family = form_of(path, values).family
    if family in _LISTS:
        return not (makes_texts(path, values) or _is_array(path, values.children[0]))
    return family in ("decimal", "map", "struct")


def makes_texts(path: str, schema: SchemaNode) -> bool:
    """Return True for lists of text or bytes, whose rows are arrays of Python objects."""
    values = _decoded(schema)
    return form_of(path, values).family in _LISTS and form_of(path, _decoded(values.children[0])).family in _TEXTS


def _is_array(path: str, schema: SchemaNode) -> bool:
    values = _decoded(schema)
    family = form_of(path, values).family
    return family in _ARRAY_ITEMS or (family == "fixed_list" and _is_array(path, values.children[0]))


def _decoded(schema: SchemaNode) -> SchemaNode:
    """Return the type of the values: for a dictionary-encoded array, the type of the dictionary."""
    return schema if schema.dictionary is None else schema.dictionary


def check_type(path: str, schema: SchemaNode) -> None:
    """Check that this package can read the type of a leaf, all types nested in it, and the type of its dictionary.

    Raises:
        ArrowTypeError: This package cannot read the type.
        ArrowDataError: The format string is invalid, or the number of children is wrong.
    """
    form = form_of(path, schema)
    if form.children is not None and len(schema.children) != form.children:
        raise ArrowDataError(
            path, f"the type {shown(schema.format)} needs {form.children} children, but has {len(schema.children)}"
        )
    if schema.dictionary is not None:
        _check_dictionary(path, schema, schema.dictionary)
        return
    for child in schema.children:
        check_type(f"{path}.{child.name}" if form.family == "struct" else path, child)
    if form.family == "struct":
        check_names(schema, f"{path}.")
    elif form.family == "map":
        _check_entries(path, schema.children[0])


def check_names(schema: SchemaNode, prefix: str) -> None:
    """Check that the fields of a struct have different names.

    Raises:
        ArrowTypeError: Two fields have the same name.
    """
    names = [child.name for child in schema.children]
    if len(set(names)) < len(names):
        name = next(name for name in names if names.count(name) > 1)
        raise ArrowTypeError(prefix + name, "two columns have this name. Rename one of the columns")


def _check_dictionary(path: str, schema: SchemaNode, values: SchemaNode) -> None:
    if schema.format not in _INTEGERS:
        raise ArrowDataError(path, f"the dictionary indices have the format {shown(schema.format)}, not an integer")
    check_type(path, values)
    family = form_of(path, values).family
    if family != "decimal" and makes_objects(path, values):
        kind = {"struct": "structs", "map": "maps"}.get(family, "nested lists")
        raise ArrowTypeError(path, f"the dictionary contains {kind}. Decode the column before reading")


def _check_entries(path: str, entries: SchemaNode) -> None:
    if form_of(path, entries).family != "struct" or len(entries.children) != 2:
        raise ArrowDataError(path, "the entries of a map are not structs of a key and a value")
    keys = entries.children[0]
    if form_of(path, _decoded(keys)).family not in _KEYS:
        raise ArrowTypeError(path, "the keys of the map are lists or structs. Convert the column to a list of structs")
