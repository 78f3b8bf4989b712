"""Features of a folder that TensorFlow Datasets prepared, as ``features.json`` declares them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod
from types import MappingProxyType
from typing import Any, Final, Never, cast

import numpy as np

from aiostream_data.errors import TfdsError
from aiostream_data.formats.features import MAX_VALUES_PER_ROW, Feature, FeatureType, FixedLen, FixedLenSequence
from aiostream_data.safe_url import shorten

Shape = tuple[int | None, ...]

FLAT_VALUES: Final = "/ragged_flat_values"
ROW_LENGTHS: Final = "/ragged_row_lengths_"
VALUE: Final = "/value"
SHAPE: Final = "/shape"

_SEQUENCES: Final = ("Sequence", "Dataset")
_MOST_NESTED: Final = 32
_MOST_AXES: Final = 32
_MODES: Final = MappingProxyType({None: "RGB", 0: "RGB", 1: "L", 3: "RGB", 4: "RGBA"})
_TEXT_KINDS: Final = ("Text", "Translation", "TranslationVariableLanguages")
_DTYPES: Final = frozenset(
    {"bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)), "float16", "float32", "float64"}
)


@dataclass(frozen=True)
class TfdsFeature:
    """A feature with values: a leaf of the tree of features.

    Attributes:
        path: Names of the feature, from the outermost dict to the innermost.
        kind: Name of the class of the feature, such as ``Tensor``.
        dtype: Type of the values: a NumPy dtype, ``bytes`` or ``str``. Of images, the dtype of the pixels.
        shape: Shape of a value; None for axes of any length.
        lengths: Lengths of the sequences around the value, outermost first; None for any length.
        encoding: Encoding of a value: "" (a list of numbers), "bytes", "zlib" or "image".
        optional: True if records can lack the feature. Its value is then the smallest number, False, or no bytes.
        num_classes: Number of classes of a ``ClassLabel``; 0 for other features.
        problem: Reason why the feature cannot be read, or None.
    """

    path: tuple[str, ...]
    kind: str
    dtype: FeatureType
    shape: Shape = ()
    lengths: Shape = ()
    encoding: str = ""
    optional: bool = False
    num_classes: int = 0
    problem: str | None = None

    @property
    def key(self) -> str:
        """Name of the feature in records."""
        return "/".join(self.path)

    @property
    def is_dynamic(self) -> bool:
        """True if each record stores the shape of the value."""
        return self.encoding in ("bytes", "zlib") and self.shape.count(None) > 1

    @property
    def is_nested(self) -> bool:
        """True if records store the lengths of the inner sequences."""
        return len(self.lengths) > 1

    @property
    def stored_shape(self) -> Shape:
        """Shape of a value in a record, without sequences."""
        return () if self.encoding else self.shape

    @property
    def stored_type(self) -> FeatureType:
        """Type of the values in a record. Records store uint64 numbers as int64 numbers with the same bits."""
        if self.encoding:
            return bytes
        return np.dtype(np.int64) if self.dtype == np.uint64 else self.dtype

    @property
    def default(self) -> Any:
        """Value if a record lacks the feature, as TensorFlow Datasets reads it; None if all records must have it."""
        if not self.optional or self.encoding or self.lengths or None in self.shape:
            return None
        if isinstance(self.dtype, type):
            return self.dtype()
        if self.dtype.kind == "b":
            return False
        return np.finfo(self.dtype).min if self.dtype.kind == "f" else np.iinfo(cast(Any, self.stored_type)).min

    @property
    def image_mode(self) -> str | None:
        """Mode to decode an image with; None if its pixels cannot be decoded."""
        if self.dtype == np.float32 and self.shape[-1] == 1:
            return "RGBA"  # the four bytes of a pixel
        return _MODES.get(self.shape[-1]) if self.dtype == np.uint8 else None

    @cached_property
    def columns(self) -> dict[str, Feature]:
        """Features to parse from records, by name."""
        stored, type = self.stored_shape, self.stored_type
        if self.is_dynamic:
            return {self.key + SHAPE: FixedLen((len(self.shape),), np.int64), self.key + VALUE: FixedLen((), bytes)}
        if self.is_nested:
            flat = FixedLenSequence(cast(tuple[int, ...], stored), type, allow_missing=True)
            lengths = range(len(self.lengths) - 1)
            rows = {f"{self.key}{ROW_LENGTHS}{at}": FixedLenSequence((), np.int64, True) for at in lengths}
            return {self.key + FLAT_VALUES: flat, **rows}
        axes = (*self.lengths, *stored)
        known = tuple(axis for axis in axes if axis is not None)
        if len(known) < len(axes):
            return {self.key: FixedLenSequence(known, type, allow_missing=True)}
        return {self.key: FixedLen(known, type, self.default)}


def parse_features(url: str, content: bytes) -> tuple[TfdsFeature, ...]:
    """Return the features that a ``features.json`` declares, sorted as in the file.

    A feature that cannot be read has a ``problem``.

    Raises:
        TfdsError: The content does not declare a dict of features.
    """
    try:
        described = json.loads(content)
        found = tuple(_features(described, (), ()))
    except (ValueError, RecursionError):
        raise TfdsError(url, None, "", "the file does not describe features in JSON") from None
    except _BadFeature as error:
        raise TfdsError(url, None, "/".join(error.path), error.reason) from None
    if not found or found[0].path == ():
        raise TfdsError(url, None, "", "the file does not describe a FeaturesDict, which each element must be")
    keys = [feature.key for feature in found]
    twice = next((key for at, key in enumerate(keys) if key in keys[:at]), None) if len({*keys}) < len(keys) else None
    if twice is not None:
        raise TfdsError(url, None, twice, "two features have the same name in records")
    return found


class _BadFeature(Exception):
    """The description of a feature is invalid."""

    def __init__(self, path: tuple[str, ...], reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason


def _features(described: Any, path: tuple[str, ...], lengths: Shape) -> Iterator[TfdsFeature]:
    """Yield the features with values in a description, inside sequences of the lengths ``lengths``."""
    if len(path) + len(lengths) > _MOST_NESTED:
        raise _BadFeature(path, "the features are nested too deeply")
    kind, content = _content(described, path)
    if kind == "FeaturesDict":
        children = content.get("features", content)
        if not isinstance(children, dict):
            raise _BadFeature(path, "the FeaturesDict has no features")
        for name, child in children.items():
            yield from _features(child, (*path, name), lengths)
    elif kind in _SEQUENCES:
        yield from _features(content.get("feature"), path, (*lengths, _length(content.get("length"), path)))
    elif kind == "Video":
        shape = _shape(content, path) or (None, None, None, None)
        yield _leaf("Image", {**content, "shape": list(shape[1:])}, path, (*lengths, shape[0]))
    elif kind in _TEXT_KINDS[1:]:
        yield from _translation(kind, content, path, lengths)
    else:
        yield _leaf(kind, content, path, lengths)


def _content(described: Any, path: tuple[str, ...]) -> tuple[str, dict[str, Any]]:
    """Return the name of the class of a feature, and its description. Files of all versions are read."""
    name = described.get("pythonClassName", described.get("type")) if isinstance(described, dict) else None
    if not isinstance(name, str):
        raise _BadFeature(path, "the description of the feature names no class")
    if "type" in described:
        content = described.get("content")
        content = json.loads(content) if isinstance(content, str) else content
    else:
        content = next((value for key, value in described.items() if key not in _OTHER_FIELDS), {})
    return name.rpartition(".")[2], content if isinstance(content, dict) else {}


_OTHER_FIELDS: Final = ("pythonClassName", "description", "valueRange", "value_range")


def _translation(kind: str, content: dict[str, Any], path: tuple[str, ...], lengths: Shape) -> Iterator[TfdsFeature]:
    is_free = kind == "TranslationVariableLanguages"
    lengths = (*lengths, None) if is_free else lengths
    names = ["language", "translation"] if is_free else content.get("languages")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise _BadFeature(path, "the Translation has no languages")
    for name in names:
        yield TfdsFeature((*path, name), "Text", str, lengths=lengths, problem=_problem_of((), lengths, ""))


def _leaf(kind: str, content: dict[str, Any], path: tuple[str, ...], lengths: Shape) -> TfdsFeature:
    shape, encoding, num_classes, problem = _shape(content, path), "", 0, None
    dtype: FeatureType | None = np.dtype(np.int64)
    if kind == "Text":
        dtype, shape = str, ()
        problem = "has a vocabulary of its own, which is not supported" if content.get("use_encoder") else None
    elif kind == "ClassLabel":
        shape, num_classes = (), _length(_field(content, "numClasses", "num_classes"), path) or 0
    elif kind in ("Image", "LabeledImage"):
        shape, encoding = shape or (None, None, 3), "image"
        dtype = _dtype(content.get("dtype", "uint8"))
    elif kind == "BBoxFeature":
        shape, dtype = (4,), np.dtype(np.float32)
    elif kind in ("Tensor", "Scalar", "Audio"):
        dtype, encoding = _dtype(content.get("dtype", "int64" if kind == "Audio" else None)), _encoding(content)
        if _field(content, "lazyDecode", "lazy_decode"):
            problem = "stores encoded audio (lazy_decode), which is not supported"
    else:
        problem = f"has the class {shorten(kind)}, which is not supported"
    if dtype is None:
        dtype, problem = bytes, f"has the dtype {shorten(repr(content.get('dtype')))}, which is not supported"
    problem = problem or _problem_of(shape, lengths, encoding)
    optional = content.get("optional") is True
    return TfdsFeature(path, kind, dtype, shape, lengths, encoding, optional, num_classes, problem)


def _problem_of(shape: Shape, lengths: Shape, encoding: str) -> str | None:
    """Return the reason why values of this shape cannot be read, or None."""
    if encoding not in ("", "bytes", "zlib", "image"):
        return f"has the encoding {shorten(repr(encoding))}, which is not supported"
    if 0 in lengths or (0 in shape and encoding != "image"):
        return "has an axis of length 0, which is not supported"
    if prod(axis for axis in (*lengths, *shape) if axis is not None) > MAX_VALUES_PER_ROW:
        return f"has more than {MAX_VALUES_PER_ROW} values, which is not supported"
    unknown = shape.count(None)
    if encoding in ("bytes", "zlib"):
        return "is a sequence of tensors of any shape, which is not supported" if unknown > 1 and lengths else None
    nested = len(lengths) > 1
    if not encoding and unknown + (0 if nested else lengths.count(None)) > (0 if nested else 1):
        return f"has several axes of any length: {(*lengths, *shape)}, which is not supported without an encoding"
    return None


def _field(content: dict[str, Any], *names: str) -> Any:
    return next((content[name] for name in names if name in content), None)


def _encoding(content: dict[str, Any]) -> str:
    name = str(content.get("encoding") or "none").lower()
    return "" if name == "none" else name


def _dtype(name: Any) -> FeatureType | None:
    """Return the type of values with the name ``name``; None if it is not supported."""
    if name in ("string", "object", "str"):
        return bytes
    return np.dtype(name) if isinstance(name, str) and name in _DTYPES else None


def _shape(content: dict[str, Any], path: tuple[str, ...]) -> Shape:
    given = content.get("shape")
    axes = given.get("dimensions", []) if isinstance(given, dict) else given
    if axes is None:
        return ()
    if not isinstance(axes, list) or len(axes) > _MOST_AXES:
        _refuse_shape(path, given)
    return tuple(_length(axis, path) for axis in axes)


def _length(given: Any, path: tuple[str, ...]) -> int | None:
    """Return the length of an axis; None for any length."""
    length = -1 if given is None else int(given) if isinstance(given, int | str) else -2
    if not -1 <= length < 1 << 31:
        raise _BadFeature(path, f"a length is invalid: {shorten(repr(given))}")
    return None if length < 0 else length


def _refuse_shape(path: tuple[str, ...], given: Any) -> Never:
    raise _BadFeature(path, f"the feature has an invalid shape: {shorten(repr(given))}")
