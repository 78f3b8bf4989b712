"""Schemas of JSON records: the type of each key, and the nodes for the native parser."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from aiostream_data._native.csv_rows_py import KINDS, TEXT
from aiostream_data._native.json_rows_py import OBJECT, JsonNode
from aiostream_data.arguments import numpy_dtype, shown
from aiostream_data.errors import ArgumentTypeError, PlanError
from aiostream_data.formats.features import FixedLen, FixedLenSequence, VarLen
from aiostream_data.rows.structure import LEAF, Structure
from aiostream_data.rows.surrogates import can_encode

MOST_LEVELS: Final = 32
"""Maximum number of nested dicts in a schema."""

_TYPES: Final = "str, bool, a dtype of bool, integers, float32 or float64, VarLen of one of these, or a dict"

JsonType: TypeAlias = "np.dtype[Any] | type[str] | VarLen | JsonFields"


class JsonField(NamedTuple):
    """One key of a schema, and the type of its values."""

    name: str
    type: Any


JsonFields: TypeAlias = tuple[JsonField, ...]
"""A checked schema."""


class JsonLeaf(NamedTuple):
    """One value of a schema.

    Attributes:
        path: Keys from the record to the value, joined by dots.
        type: Type of the value.
    """

    path: str
    type: Any


def checked_json_schema(schema: Any) -> JsonFields:
    """Return the types of a ``schema`` argument.

    Raises:
        PlanError: The schema is not a mapping of keys to types that a JSON value can have.
    """
    return _checked_fields("schema", schema, 1)


def _checked_fields(name: str, schema: Any, level: int) -> JsonFields:
    if not isinstance(schema, Mapping):
        example = "{'id': np.int64, 'text': str}"
        raise ArgumentTypeError(
            f"{name} must be a dict such as {example}, 'infer' or None, got {type(schema).__name__}"
        )
    if not schema:
        raise PlanError(f"{name} must contain at least one key, got an empty dict")
    if level > MOST_LEVELS:
        raise PlanError(f"schema must have at most {MOST_LEVELS} levels of dicts")
    fields = []
    for key, given in schema.items():
        if not isinstance(key, str) or not can_encode(key):
            raise ArgumentTypeError(f"the keys of {name} must be str, got {shown(key)}")
        inner = f"{name}[{key!r}]"
        found = _checked_fields(inner, given, level + 1) if isinstance(given, Mapping) else _checked_type(inner, given)
        fields.append(JsonField(key, found))
    return tuple(fields)


def _checked_type(name: str, given: Any) -> JsonType:
    if isinstance(given, VarLen):
        return VarLen(_checked_scalar(name, given.type))
    if isinstance(given, (FixedLen, FixedLenSequence, list, tuple)):
        raise PlanError(f"{name} must be {_TYPES}, got {shown(given)}. Declare a list of numbers as asd.VarLen(dtype).")
    return _checked_scalar(name, given)


def _checked_scalar(name: str, given: Any) -> np.dtype[Any] | type[str]:
    if given is str:
        return str
    if given is bytes:
        raise PlanError(f"{name} is bytes, which JSON does not have. Declare str, and decode it in map().")
    dtype = numpy_dtype(name, given, _TYPES)
    if dtype.kind == "U" and dtype.itemsize == 0:
        return str
    if dtype not in KINDS or given is None:
        raise PlanError(f"{name} must be {_TYPES}, got {shown(given)}")
    return dtype


def structure_of_fields(fields: JsonFields) -> Structure:
    """Return the structure of an element: nested dicts with one leaf per value."""
    children = (structure_of_fields(each.type) if isinstance(each.type, tuple) else LEAF for each in fields)
    return Structure("dict", tuple(each.name for each in fields), tuple(children))


def leaves_of(fields: JsonFields, prefix: str = "") -> list[JsonLeaf]:
    """Return all values of a schema, in the order of the leaves of its structure."""
    found: list[JsonLeaf] = []
    for each in fields:
        path = prefix + each.name
        found += leaves_of(each.type, f"{path}.") if isinstance(each.type, tuple) else [JsonLeaf(path, each.type)]
    return found


@lru_cache(256)
def nodes_of(fields: JsonFields) -> tuple[JsonNode, ...]:
    """Return the nodes of a schema for :func:`._native.parse_json`."""
    nodes: list[JsonNode | None] = []
    _add_object(nodes, fields)
    return tuple(node for node in nodes if node is not None)


@lru_cache(256)
def paths_of(fields: JsonFields) -> tuple[str, ...]:
    """Return the path of each node of a schema; "" for the record."""
    return ("", *_paths(fields, ""))


def _paths(fields: JsonFields, prefix: str) -> list[str]:
    found: list[str] = []
    for each in fields:
        found.append(prefix + each.name)
        if isinstance(each.type, tuple):
            found += _paths(each.type, f"{found[-1]}.")
    return found


def _add_object(nodes: list[JsonNode | None], fields: JsonFields) -> None:
    number = len(nodes)
    nodes.append(None)  # until the nodes inside are counted
    inner: list[tuple[bytes, int]] = []
    for each in fields:
        inner.append((each.name.encode(), len(nodes)))
        if isinstance(each.type, tuple):
            _add_object(nodes, each.type)
            continue
        is_list = isinstance(each.type, VarLen)
        scalar = each.type.type if isinstance(each.type, VarLen) else each.type
        kind = KINDS[scalar] if isinstance(scalar, np.dtype) else TEXT
        nodes.append(JsonNode(kind, is_list, (), len(nodes) + 1))
    nodes[number] = JsonNode(OBJECT, False, tuple(inner), len(nodes))
