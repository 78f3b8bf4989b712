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
    "null", "bool", "dense", "int32", "fixed_binary", "text", "view", "list", "list_view", "fixed_list", "struct"
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
        size: Bytes per row of ``fixed_binary``, or items per row of ``fixed_list``.
        is_text: True if the rows are text, and False if they are bytes.
    """

    family: Family
    dtype: np.dtype[Any] = _INT64
    buffers: int = 2
    children: int | None = 0
    size: int = 0
    is_text: bool = False


_FORMS: Final = {
    "n": ArrowForm("null", np.dtype(object), buffers=0),
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
    "+s": ArrowForm("struct", buffers=1, children=None),
}

_UNREADABLE: Final = {
    "d:": ("a decimal", "Cast the column to float64 or to text"),
    "+u": ("a union", "Split the column into one column per type"),
    "+m": ("a map", "Convert the column to one column per key"),
    "+r": ("run-end encoded", "Decode the column, for example with pyarrow.compute.run_end_decode()"),
    "ti": ("an interval", "Cast the column to a duration"),
}

_SIZED: Final = re.compile(r"(\+?w):([0-9]{1,10})")
_ITEMS: Final = frozenset({"null", "bool", "dense", "int32", "fixed_list"})
_ITEM_KINDS: Final = {
    "struct": "structs",
    "text": "text or bytes",
    "view": "text or bytes",
    "fixed_binary": "bytes of fixed length",
}
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
    if text[:2] in _UNREADABLE:
        kind, remedy = _UNREADABLE[text[:2]]
        raise ArrowTypeError(path, f"the column is {kind} (format {shown(text)}), which cannot be read. {remedy}")
    raise ArrowDataError(path, f"the format {shown(text)} is not defined by Arrow. Check the producer of the array")


def check_type(path: str, schema: SchemaNode) -> None:
    """Check that the type of a leaf can be read, with its items and dictionary.

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
    elif form.family in ("list", "list_view", "fixed_list"):
        _check_items(path, schema.children[0])


def _check_dictionary(path: str, schema: SchemaNode, values: SchemaNode) -> None:
    if schema.format not in _INTEGERS:
        raise ArrowDataError(path, f"the dictionary indices have the format {shown(schema.format)}, not an integer")
    if form_of(path, values).family == "struct":
        raise ArrowTypeError(path, "the dictionary contains structs. Decode the column before reading")
    check_type(path, values)


def _check_items(path: str, items: SchemaNode) -> None:
    family = form_of(path, items if items.dictionary is None else items.dictionary).family
    if family not in _ITEMS:
        raise ArrowTypeError(
            path,
            f"the column contains lists of {_ITEM_KINDS.get(family, 'lists')}, which cannot be read. Flatten the "
            "lists, or encode each list as one text",
        )
    check_type(path, items)
