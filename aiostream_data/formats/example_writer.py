"""Serialize ``tf.train.Example`` and ``SequenceExample`` messages, without TensorFlow or protobuf.

Values of type bool or int and integer arrays become int64 lists. Values of type float and floating-point arrays become
float32 lists. Values of type bytes or str become lists of bytes; str values are encoded as UTF-8. Lists and arrays of
any shape are flattened in C order, as TensorFlow expects. An empty list becomes a feature without a type. Parsers treat
such a feature as missing. Features are sorted by name, so equal mappings produce equal bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data.arguments import shown
from aiostream_data.errors import ArgumentTypeError, ExampleEncodeError, PlanError

_FIRST, _SECOND = b"\x0a", b"\x12"
_BYTES_LIST, _FLOAT_LIST, _INT64_LIST = b"\x0a", b"\x12", b"\x1a"

_ONE_BYTE = [bytes((value,)) for value in range(128)]
_ONE_FLOAT = struct.Struct("<f")
_UINT64 = (1 << 64) - 1
_SHIFTS = np.arange(0, 70, 7, dtype=np.uint64)


def encode_example(features: Mapping[str, Any]) -> bytes:
    """Serialize a ``tf.train.Example``.

    Args:
        features: Values by name: bool, int, float, bytes, str, arrays, or (nested) lists of one of these types.
            A list that contains ints and floats becomes a list of floats.

    Returns:
        The serialized message. Equal mappings of features produce equal bytes.

    Raises:
        ArgumentTypeError: ``features`` is not a mapping with str keys.
        ExampleEncodeError: A value has an unsupported type, or is outside the range of int64 or float32.
    """
    return _delimited(_FIRST, _features(features))


def encode_sequence_example(context: Mapping[str, Any], sequences: Mapping[str, Iterable[Any]]) -> bytes:
    """Serialize a ``tf.train.SequenceExample``.

    Args:
        context: Values by name, as in :func:`encode_example`.
        sequences: For each name, an iterable with one value per step.

    Returns:
        The serialized message.

    Raises:
        ArgumentTypeError: An argument is not a mapping with str keys.
        ExampleEncodeError: A value cannot be serialized, as in :func:`encode_example`.
    """
    lists = [
        _entry(name, b"".join(_delimited(_FIRST, _feature(name, step)) for step in sequences[name]))
        for name in _names(sequences)
    ]
    return _delimited(_FIRST, _features(context)) + _delimited(_SECOND, b"".join(lists))


def wrap_feature(name: str, feature: bytes) -> bytes:
    """Serialize an Example with a single feature. The argument ``feature`` is a serialized Feature message."""
    return _delimited(_FIRST, _entry(name, feature))


def _features(features: Mapping[str, Any]) -> bytes:
    return b"".join([_entry(name, _feature(name, features[name])) for name in _names(features)])


def _names(features: Any) -> list[str]:
    if not isinstance(features, Mapping) or not all(isinstance(name, str) for name in features):
        raise ArgumentTypeError(f"features must be a dict of values by name, got {shown(features)}")
    return sorted(features)


def _entry(name: str, value: bytes) -> bytes:
    return _delimited(_FIRST, _key(name) + _delimited(_SECOND, value))


@lru_cache(maxsize=4096)
def _key(name: str) -> bytes:
    return _delimited(_FIRST, name.encode())


def _feature(name: str, value: Any) -> bytes:
    try:
        return _one_value(value)
    except (TypeError, ValueError, OverflowError, struct.error) as error:
        raise ExampleEncodeError(name, str(error)) from error


def _one_value(value: Any) -> bytes:
    """Serialize a value as a Feature message. Scalars are checked first, because they are the most common values."""
    if isinstance(value, bytes):
        return _delimited(_BYTES_LIST, _delimited(_FIRST, value))
    if isinstance(value, int):
        return _delimited(_INT64_LIST, _delimited(_FIRST, _varint(_checked_int64(value))))
    if isinstance(value, float):
        return _delimited(_FLOAT_LIST, b"\x0a\x04" + _ONE_FLOAT.pack(value))
    if isinstance(value, str):
        return _delimited(_BYTES_LIST, _delimited(_FIRST, value.encode()))
    if isinstance(value, (bytearray, memoryview)):
        return _one_value(bytes(value))
    if isinstance(value, (list, tuple)):
        return _several(np.array(value, object).ravel().tolist())
    if isinstance(value, (np.ndarray, np.generic)):
        return _array(np.asarray(value).ravel())
    raise ArgumentTypeError(
        f"cannot encode a value of type {type(value).__name__}; pass an int, float, bytes, str, or a list or array of "
        "these"
    )


def _several(values: list[Any]) -> bytes:
    """Serialize a flat list as a Feature message."""
    if not values:
        return b""
    if all(isinstance(value, (bytes, str)) for value in values):
        parts = [value.encode() if isinstance(value, str) else value for value in values]
        return _delimited(_BYTES_LIST, b"".join([_delimited(_FIRST, part) for part in parts]))
    if all(isinstance(value, (int, np.integer, np.bool_)) for value in values):
        return _array(np.array([_checked_int64(int(value)) for value in values], np.int64))
    if all(isinstance(value, (int, float, np.number)) for value in values):
        return _array(np.array(values, np.float64))
    kinds = sorted({type(value).__name__ for value in values})
    raise ArgumentTypeError(f"cannot encode a list of {' and '.join(kinds)}; use only numbers, or only bytes and str")


def _array(array: NDArray[Any]) -> bytes:
    """Serialize a one-dimensional array as a Feature message."""
    if array.dtype.kind in "biu":
        if array.dtype == np.uint64 and len(array):
            _checked_int64(int(array.max()))
        return _delimited(_INT64_LIST, _delimited(_FIRST, _varints(array.astype(np.int64))))
    if array.dtype.kind == "f":
        with np.errstate(over="ignore"):
            narrow = array.astype("<f4")
        if (np.isinf(narrow) & np.isfinite(array)).any():
            raise PlanError("a value does not fit into float32")
        return _delimited(_FLOAT_LIST, _delimited(_FIRST, narrow.tobytes()))
    if array.dtype.kind in "SUO":
        return _several(array.tolist()) if len(array) else _delimited(_BYTES_LIST, b"")
    raise ArgumentTypeError(
        f"cannot encode an array of {array.dtype}; convert it to an integer, floating or bytes dtype"
    )


def _checked_int64(value: int) -> int:
    if not -(1 << 63) <= value < 1 << 63:
        raise PlanError(f"{value} does not fit into int64")
    return value


def _delimited(tag: bytes, payload: bytes) -> bytes:
    return tag + _varint(len(payload)) + payload


def _varint(value: int) -> bytes:
    """Encode an int64 as a protobuf varint (an integer of variable length). A negative number needs ten bytes."""
    if 0 <= value < 128:
        return _ONE_BYTE[value]
    value &= _UINT64
    out = bytearray()
    while value >= 128:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _varints(values: NDArray[np.int64]) -> bytes:
    """Encode int64 values as consecutive varints (integers of variable length)."""
    if len(values) <= 8:
        return b"".join([_varint(value) for value in values.tolist()])
    if ((values >= 0) & (values < 128)).all():
        return values.astype(np.uint8).tobytes()
    left = values.view(np.uint64)[:, None] >> _SHIFTS  # remaining value before each group of seven bits
    used = left != 0
    used[:, 0] = True
    more = np.zeros_like(used)
    more[:, :-1] = used[:, 1:]
    groups = (left & np.uint64(0x7F)) | (more.astype(np.uint64) << np.uint64(7))
    return bytes(groups[used].astype(np.uint8))
