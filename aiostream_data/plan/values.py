"""Describe the content of a value as short text. The text for a value is the same in every process and every run.

``repr`` alone is unsuitable, because sets have no fixed order, many objects show their address, and long arrays are
abbreviated.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum
from hashlib import blake2b
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data.codecs.deflate import deflate_library
from aiostream_data.rows.array_likes import NoNumpyFormError, array_of, family, type_name
from aiostream_data.rows.structure import Structure

MAX_TEXT = 400
"""Maximum length of a text in characters. A longer text is replaced by its length and hash."""

MAX_HASHED_NBYTES = 64 << 20
"""Maximum size in bytes of an array that is hashed completely. For a larger array, only evenly spaced samples are
hashed."""

_BRIEF_NBYTES = 64 << 10
"""Arrays up to this size in bytes are hashed with BLAKE2b.

A larger array is identified by a CRC-32 of all its bytes, and by the hash of evenly spaced bytes. This is 4 to 30 times
as fast."""

_SAMPLES = 4096
_SAMPLE_VALUES = 256
_MAX_ITEMS = 1 << 16
_MAX_DEPTH = 8
_ATOMS = (bool, int, float, complex, range, slice)


def hashed(content: str | bytes, nbytes: int = 4) -> str:
    """Return the BLAKE2b hash of bytes, or of a string encoded as UTF-8, in hex digits. The hash has ``nbytes``
    bytes."""
    raw = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    return blake2b(raw, digest_size=nbytes).hexdigest()


def qualified_name(thing: Any) -> str:
    """Return the module and the qualified name of a class or function.

    For an object without a name, return the module and name of its class.
    """
    named = thing if hasattr(thing, "__qualname__") or hasattr(thing, "__name__") else type(thing)
    name = getattr(named, "__qualname__", None) or named.__name__
    module = getattr(named, "__module__", None)
    # In a spawned process, the main module of the parent is called __mp_main__.
    module = "__main__" if module == "__mp_main__" else module
    return f"{module}.{name}" if isinstance(module, str) and module != "builtins" else str(name)


def text_of(value: Any) -> str:
    """Describe a value as text. Equal values have equal texts, and different values almost certainly have different
    texts.

    Containers, dataclasses and NumPy arrays are described by content. Functions are described by name, and other
    objects by class and public attributes. A text of more than :data:`MAX_TEXT` characters is replaced by its hash. The
    resulting text never begins with ``#``.
    """
    return _text(value, 0)


def _text(value: Any, depth: int) -> str:
    if isinstance(value, (str, bytes)) and type(value) in (str, bytes):
        return _short(value) if len(value) > MAX_TEXT else _bounded(repr(value))
    if value is None or value is ... or type(value) in _ATOMS:
        return repr(value)
    return _bounded(_composed(value, depth))


def _short(value: str | bytes) -> str:
    return f"{type(value).__name__}[{len(value)}] {hashed(value, 8)}"


def _bounded(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[:40]}... {hashed(text, 8)}"


def _composed(value: Any, depth: int) -> str:
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, np.ndarray):
        return array_text(value)
    if isinstance(value, np.generic):
        return f"{value.dtype}({value.item()!r})"
    if family(type(value)):
        return _foreign_array_text(value)
    if isinstance(value, (np.dtype, Structure)):
        return str(value)
    if isinstance(value, os.PathLike):
        return repr(os.fspath(value))
    if isinstance(value, type):
        return qualified_name(value)
    if depth > _MAX_DEPTH:
        return type(value).__qualname__
    if isinstance(value, (Mapping, AbstractSet, list, tuple)):
        return _container(value, depth + 1)
    if dataclasses.is_dataclass(value):
        return _fields(value, dataclass_values(value), depth + 1)
    if callable(value):
        return qualified_name(value)
    public = {name: part for name, part in getattr(value, "__dict__", {}).items() if not name.startswith("_")}
    return _fields(value, public, depth + 1)


def _container(value: Any, depth: int) -> str:
    if isinstance(value, Mapping):
        return (
            "{" + ", ".join(sorted(f"{_text(key, depth)}: {_text(part, depth)}" for key, part in value.items())) + "}"
        )
    if isinstance(value, AbstractSet):
        return "{" + ", ".join(sorted(_text(part, depth) for part in value)) + "}"
    left, right = "()" if isinstance(value, tuple) else "[]"
    return left + _sequence(value, depth) + right


def _sequence(values: Sequence[Any], depth: int) -> str:
    if len(values) <= MAX_TEXT:
        return ", ".join(_text(value, depth) for value in values)
    return f"{len(values)} items {_items_hash((values[at] for at in _spread(len(values), _MAX_ITEMS)), depth)}"


def _items_hash(values: Iterable[Any], depth: int) -> str:
    digest = blake2b(digest_size=8)
    for value in values:
        text = _text(value, depth).encode("utf-8", "surrogatepass")
        digest.update(b"%d:%b" % (len(text), text))
    return digest.hexdigest()


def _fields(value: Any, parts: Mapping[str, Any], depth: int) -> str:
    inner = ", ".join(f"{name}={_text(part, depth)}" for name, part in parts.items())
    return f"{type(value).__qualname__}({inner})"


def dataclass_values(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass instance that ``==`` compares, in order. Fields with default values are omitted.

    Omitting default values keeps descriptions short. Descriptions then also stay the same when a later release adds a
    field.
    """
    found = {field: getattr(value, field.name, None) for field in dataclasses.fields(value) if field.compare}
    return {field.name: part for field, part in found.items() if not _is_default(field, part)}


def _is_default(field: dataclasses.Field[Any], value: Any) -> bool:
    default = field.default
    if default is dataclasses.MISSING and field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
    return default is not dataclasses.MISSING and type(default) is type(value) and text_of(default) == text_of(value)


def array_text(array: NDArray[Any]) -> str:
    """Describe an array by dtype, shape and a content hash of 16 hex digits.

    The description of an array does not depend on its memory layout.

    Large arrays (above :data:`MAX_HASHED_NBYTES`, or more than 65,536 objects) are sampled, so a change of a single
    value may be missed. The samples are 4,096 evenly spaced runs of 256 values, or 65,536 objects.
    """
    shape = ", ".join(map(str, array.shape))
    return f"{array.dtype}[{shape}] {_content(np.asarray(array))}"


def _foreign_array_text(value: Any) -> str:
    try:
        array = array_of(value)
    except NoNumpyFormError:
        array = None
    return type_name(type(value)) + ("" if array is None else f" {array_text(array)}")


def _content(array: NDArray[Any]) -> str:
    if array.dtype.hasobject:
        flat = array.flat
        return _items_hash((flat[at] for at in _spread(array.size, _MAX_ITEMS)), 1)
    if array.nbytes > MAX_HASHED_NBYTES and array.size > _SAMPLES * _SAMPLE_VALUES:
        starts = np.array(_spread(array.size - _SAMPLE_VALUES + 1, _SAMPLES))
        array = array.flat[(starts[:, None] + np.arange(_SAMPLE_VALUES)).ravel()]
    if array.nbytes <= _BRIEF_NBYTES:
        return hashed(np.ascontiguousarray(array).tobytes(), 8)
    raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    samples = raw[:: raw.nbytes // _BRIEF_NBYTES | 1]  # an odd step meets all bytes of numbers
    return f"{deflate_library().crc32(raw):08x}{hashed(samples.tobytes(), 4)}"


def _spread(count: int, most: int) -> Sequence[int]:
    """Return the integers from 0 to ``count`` - 1.

    If ``count`` is greater than ``most``, return ``most`` evenly spaced integers including both ends.
    """
    if count <= most:
        return range(count)
    return [at * (count - 1) // (most - 1) for at in range(most)]


def joined_hash(texts: Iterable[str], nbytes: int = 4) -> str:
    """Compute one hash for several strings. The hash depends on the order of the strings and on their boundaries."""
    return hashed("\0".join(chain.from_iterable((str(len(text)), text) for text in texts)), nbytes)
