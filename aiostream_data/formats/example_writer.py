"""Write ``tf.train.Example`` and ``SequenceExample`` messages, without TensorFlow or protobuf.

What a value becomes: bool, int and integer arrays an int64 list; float and floating arrays a float32
list; bytes and str (as UTF-8) a bytes list. Lists and arrays of any shape are written flat in C order,
as TensorFlow expects them; an empty list without a dtype becomes a feature without a kind, which reads
as missing. Names are written in sorted order, so equal mappings give equal bytes.
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
    """Return a serialized ``tf.train.Example``.

    Args:
        features: Values by name: bool, int, float, bytes, str, arrays, or (nested) lists of one of them.
            A list that holds ints and floats is a list of floats.

    Raises:
        ExampleEncodeError: A value has no place in an Example, or does not fit into int64 or float32.
    """
    return _delimited(_FIRST, _features(features))


def encode_sequence_example(context: Mapping[str, Any], sequences: Mapping[str, Iterable[Any]]) -> bytes:
    """Return a serialized ``tf.train.SequenceExample``.

    Args:
        context: As ``features`` of :func:`encode_example`.
        sequences: By name, the value of each step.

    Raises:
        ExampleEncodeError: As for :func:`encode_example`.
    """
    lists = [
        _entry(name, b"".join(_delimited(_FIRST, _feature(name, step)) for step in sequences[name]))
        for name in _names(sequences)
    ]
    return _delimited(_FIRST, _features(context)) + _delimited(_SECOND, b"".join(lists))


def wrap_feature(name: str, feature: bytes) -> bytes:
    """Return an Example whose one feature is the given serialized Feature."""
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
    """Return the Feature message of a value; scalars first, because most records hold nothing else."""
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
    raise ArgumentTypeError(f"a {type(value).__name__} is no int, float, bytes, str, or list or array of them")


def _several(values: list[Any]) -> bytes:
    """Return the Feature message of a flat list."""
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
    raise ArgumentTypeError(f"a list of {' and '.join(kinds)} is no list of ints, of floats, or of bytes and str")


def _array(array: NDArray[Any]) -> bytes:
    """Return the Feature message of a one-dimensional array."""
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
    raise ArgumentTypeError(f"an array of {array.dtype} has no place in an Example")


def _checked_int64(value: int) -> int:
    if not -(1 << 63) <= value < 1 << 63:
        raise PlanError(f"{value} does not fit into int64")
    return value


def _delimited(tag: bytes, payload: bytes) -> bytes:
    return tag + _varint(len(payload)) + payload


def _varint(value: int) -> bytes:
    """Return an int64 as protobuf writes it: negative numbers take ten bytes."""
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
    """Return int64 values as varints, one after another."""
    if len(values) <= 8:
        return b"".join([_varint(value) for value in values.tolist()])
    if ((values >= 0) & (values < 128)).all():
        return values.astype(np.uint8).tobytes()
    left = values.view(np.uint64)[:, None] >> _SHIFTS  # what is left after each group of seven bits
    used = left != 0
    used[:, 0] = True
    more = np.zeros_like(used)
    more[:, :-1] = used[:, 1:]
    groups = (left & np.uint64(0x7F)) | (more.astype(np.uint64) << np.uint64(7))
    return bytes(groups[used].astype(np.uint8))
