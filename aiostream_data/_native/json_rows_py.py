"""Parse JSON records to typed columns: the pure-Python version of ``json_rows.pyx``."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from aiostream_data._native.csv_rows_py import KINDS, TEXT

OBJECT: Final = 13
MOST_DEPTH: Final = 200
"""Maximum number of containers around a value."""

MALFORMED: Final = 1
WRONG_TYPE: Final = 2
OUT_OF_RANGE: Final = 3
TOO_DEEP: Final = 4

Bytes: TypeAlias = NDArray[np.uint8]
Indices: TypeAlias = NDArray[np.int64]
Texts: TypeAlias = tuple[Bytes, Indices, Indices]
Parsed: TypeAlias = "tuple[NDArray[Any] | Texts, Indices | None, Indices | None, NDArray[np.bool_]]"
"""(values, starts, lengths, valid): one value per row for numbers, where ``starts`` is None; a slice of ``values`` per
row for text and lists. The values of a list of texts are the (values, starts, lengths) of its texts."""

_BOOL: Final = 2
_DTYPES: Final = {kind: dtype for dtype, kind in KINDS.items()}
_MISSING: Final = object()
_STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)


class JsonNode(NamedTuple):
    """One key of a schema. The first node is the record.

    Attributes:
        kind: ``OBJECT``, or the kind of a value as in :mod:`.csv_rows_py`.
        is_list: True if the value is a list of such values.
        fields: Key in UTF-8 and number of the node for each key of an object.
        behind: Number of the first node behind this one that is not inside this one.
    """

    kind: int
    is_list: bool
    fields: tuple[tuple[bytes, int], ...]
    behind: int


class JsonFault(NamedTuple):
    """First record that cannot be parsed.

    Attributes:
        code: ``MALFORMED``, ``WRONG_TYPE``, ``OUT_OF_RANGE`` or ``TOO_DEEP``.
        row: Number of the record.
        node: Number of the node whose value is wrong, or 0.
        place: Offset in the record of the value that does not fit; -1 if unknown.
    """

    code: int
    row: int
    node: int
    place: int


class _Pairs(list[tuple[str, Any]]):
    """Keys and values of one object, with those that occur more than once."""


class _JsonMisfit(Exception):
    """A value of a record is wrong. The arguments are the code and the node."""


def strict_float(text: str) -> float:
    """Return the float64 nearest to a number.

    Raises:
        OverflowError: The number is larger than the largest float64.
    """
    value = float(text)
    if math.isinf(value):
        raise OverflowError(f"{text} is out of range for float64")
    return value


def refuse_constant(name: str) -> Any:
    """Refuse NaN and Infinity, which are not JSON."""
    raise ValueError(f"{name} is not JSON")


class _Number(str):
    """Text of a number with a fraction or an exponent."""


class _Integer(str):
    """Text of a number without a fraction and an exponent."""


_decode = json.JSONDecoder(
    object_pairs_hook=_Pairs, parse_float=_Number, parse_int=_Integer, parse_constant=refuse_constant
).decode


def parse_json(buffer: Bytes, starts: Indices, lengths: Indices, nodes: Sequence[JsonNode]) -> list[Parsed] | JsonFault:
    """Parse records to columns, or return the first fault.

    Keys that are not in the schema are ignored, but must be valid JSON. If a key occurs more than once, its last value
    counts, and all its values must have the type of the schema.

    Args:
        buffer: Contiguous uint8 array of valid UTF-8.
        starts, lengths: Position of each record in ``buffer``.
        nodes: Schema. The nodes inside an object follow it.

    Returns:
        One :data:`Parsed` for each node that is no object, in order.
    """
    columns: list[list[Any]] = [[_MISSING] * len(starts) for _ in nodes]
    for row, (start, nbytes) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
        try:
            _read(nodes, columns, 0, _loaded(buffer[start : start + nbytes].tobytes()), row)
        except _JsonMisfit as wrong:
            code, node = wrong.args
            return JsonFault(code, row, node, -1 if node else 0)
    return [_column(node, column) for node, column in zip(nodes, columns, strict=True) if node.kind != OBJECT]


def _loaded(record: bytes) -> Any:
    if depth_of(record) > MOST_DEPTH:
        raise _JsonMisfit(TOO_DEEP, 0)
    try:
        return all_pairs(record)
    except (ValueError, RecursionError):
        raise _JsonMisfit(MALFORMED, 0) from None


def all_pairs(record: bytes) -> Any:
    """Decode a record. Objects become lists of pairs, with all values of keys that occur more than once.

    Raises:
        ValueError, RecursionError: The record is not JSON, or contains half of a surrogate pair.
    """
    value = _decode(record.decode())
    json.dumps(value, ensure_ascii=False).encode()  # fails for half of a surrogate pair
    return value


def depth_of(record: bytes) -> int:
    """Return the maximum number of containers around a value of valid JSON; 0 if there are few brackets."""
    if record.count(b"[") + record.count(b"{") <= MOST_DEPTH:
        return 0
    brackets = np.frombuffer(_STRING.sub(b"", record), np.uint8) | 0x20  # brackets become braces
    steps = (brackets == ord("{")).astype(np.int64) - (brackets == ord("}"))
    return int(np.cumsum(steps).max(initial=0))


def _read(nodes: Sequence[JsonNode], columns: list[list[Any]], number: int, value: Any, row: int) -> None:
    node = nodes[number]
    if value is None and number:
        for inner in range(number, node.behind):
            columns[inner][row] = _MISSING
    elif node.kind == OBJECT:
        if not isinstance(value, _Pairs):
            raise _JsonMisfit(WRONG_TYPE, number)
        for inner in range(number + 1, node.behind):
            columns[inner][row] = _MISSING
        fields = {key.decode(): inner for key, inner in node.fields}
        for key, found in value:
            if key in fields:
                _read(nodes, columns, fields[key], found, row)
    elif node.is_list:
        if type(value) is not list:
            raise _JsonMisfit(WRONG_TYPE, number)
        columns[number][row] = [_scalar(node.kind, number, item) for item in value]
    else:
        columns[number][row] = _scalar(node.kind, number, value)


def _scalar(kind: int, number: int, value: Any) -> Any:
    if kind in (TEXT, _BOOL):
        if type(value) is not (str if kind == TEXT else bool):
            raise _JsonMisfit(WRONG_TYPE, number)
        return value
    dtype = _DTYPES[kind]
    if type(value) is not _Integer and (type(value) is not _Number or dtype.kind != "f"):
        raise _JsonMisfit(WRONG_TYPE, number)
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            found = dtype.type(float(value))
        is_finite = bool(np.isfinite(found))
        return found if is_finite else _out_of_range(number)
    limits = np.iinfo(dtype.name)
    # a text of 21 characters is out of range, and long ones take long to convert
    is_small = len(value) <= 21
    return int(value) if is_small and limits.min <= int(value) <= limits.max else _out_of_range(number)


def _out_of_range(number: int) -> Any:
    raise _JsonMisfit(OUT_OF_RANGE, number)


def _column(node: JsonNode, found: list[Any]) -> Parsed:
    valid = np.array([value is not _MISSING for value in found], np.bool_)
    if node.is_list:
        rows = [[] if value is _MISSING else value for value in found]
        items = [item for row in rows for item in row]
        values = _texts(items) if node.kind == TEXT else np.array(items, _DTYPES[node.kind])
        lengths = np.array([len(row) for row in rows], np.int64)
        return values, np.cumsum(lengths) - lengths, lengths, valid
    if node.kind == TEXT:
        return *_texts(["" if value is _MISSING else value for value in found]), valid
    return np.array([0 if value is _MISSING else value for value in found], _DTYPES[node.kind]), None, None, valid


def _texts(texts: Sequence[str]) -> Texts:
    encoded = [text.encode() for text in texts]
    lengths = np.array([len(text) for text in encoded], np.int64)
    return np.frombuffer(b"".join(encoded), np.uint8), np.cumsum(lengths) - lengths, lengths
