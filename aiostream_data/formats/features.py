"""Describe the features to take out of a ``tf.train.Example``: frozen, hashable, checked when built.

The names follow TensorFlow's ``tf.io.FixedLenFeature`` and its siblings. The wire knows three kinds of
lists (bytes, float32, int64); a dtype says which one is expected and what its values become.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import DTypeLike, NDArray

from aiostream_data.arguments import numpy_dtype, several, shown
from aiostream_data.errors import ArgumentTypeError, PlanError

FeatureType: TypeAlias = np.dtype[Any] | type[bytes] | type[str]
Kind = Literal["bytes", "float", "int64"]

MAX_VALUES_PER_ROW = 1 << 31
"""Most values that a fixed shape may ask for in one row."""


class FeatureSpec(NamedTuple):
    """Shape and dtype of one element of a feature.

    Attributes:
        shape: One entry per axis, None for a length that varies.
        dtype: NumPy dtype; object for bytes and str.
        ragged: Whether a batch of rows keeps their own lengths.
    """

    shape: tuple[int | None, ...]
    dtype: np.dtype[Any]
    ragged: bool = False


@dataclass(frozen=True)
class FixedLen:
    """Take exactly ``prod(shape)`` values from every record, as an array of this shape.

    As ``tf.io.FixedLenFeature``. A scalar bytes or str feature is not copied: its elements are slices of
    the bytes that were read. A list that is there but holds another number of values, also none, is an
    error; only a record without the feature takes the default.

    Attributes:
        shape: Dimensions, each at least 1; ``()`` for a scalar.
        dtype: bytes, str (UTF-8), bool, or a NumPy integer or floating type. Integers and bool are read
            from int64 lists, floating types from float32 lists; a value that the dtype cannot hold is
            an error when parsed.
        default: Used where a record lacks the feature: an array of this shape, or a scalar that fills
            it. Without one such a record is an error. Kept as nested tuples.

    Raises:
        PlanError: A shape, dtype or default that makes no sense.
    """

    shape: tuple[int, ...]
    dtype: DTypeLike
    default: Any = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", checked_shape(self.shape))
        object.__setattr__(self, "dtype", checked_dtype(self.dtype))
        if self.default is not None:
            object.__setattr__(self, "default", _checked_default(self.default, self.shape, self.type))

    @property
    def type(self) -> FeatureType:
        return cast(FeatureType, self.dtype)

    @property
    def spec(self) -> FeatureSpec:
        return FeatureSpec(self.shape, storage_dtype(self.type))

    def default_array(self) -> NDArray[Any]:
        """Return the default with the feature's shape; dtype object for bytes and str. Read-only."""
        return np.broadcast_to(_as_array(self.default, self.type), self.shape)


@dataclass(frozen=True)
class VarLen:
    """Take however many values a record has, as a one-dimensional array; none where it lacks the feature.

    As ``tf.io.VarLenFeature``, but each element is a dense array instead of a SparseTensor, and a batch
    of them a :class:`~aiostream_data.RaggedArray`.

    Attributes:
        dtype: As for :class:`FixedLen`.
    """

    dtype: DTypeLike

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", checked_dtype(self.dtype))

    @property
    def type(self) -> FeatureType:
        return cast(FeatureType, self.dtype)

    @property
    def spec(self) -> FeatureSpec:
        return FeatureSpec((None,), storage_dtype(self.type), ragged=True)


@dataclass(frozen=True)
class Ragged(VarLen):
    """Take however many values a record has; as ``tf.io.RaggedFeature`` without partitions.

    The same elements as :class:`VarLen`; the name is there for chains that are ported.
    """


@dataclass(frozen=True)
class FixedLenSequence:
    """Take any number of steps of one shape from every record, as an array (steps, \\*shape).

    As ``tf.io.FixedLenSequenceFeature``, without its padding: a batch is a
    :class:`~aiostream_data.RaggedArray`.

    Attributes:
        shape, dtype: Of one step; as for :class:`FixedLen`.
        allow_missing: Whether a record without the feature has zero steps instead of being an error.
    """

    shape: tuple[int, ...]
    dtype: DTypeLike
    allow_missing: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", checked_shape(self.shape))
        object.__setattr__(self, "dtype", checked_dtype(self.dtype))

    @property
    def type(self) -> FeatureType:
        return cast(FeatureType, self.dtype)

    @property
    def spec(self) -> FeatureSpec:
        return FeatureSpec((None, *self.shape), storage_dtype(self.type), ragged=True)


Feature: TypeAlias = FixedLen | VarLen | FixedLenSequence
"""Any of the four (:class:`Ragged` is a :class:`VarLen`)."""


def feature_kind(dtype: FeatureType) -> Kind:
    """Return which list of the wire holds values of this dtype."""
    if isinstance(dtype, type):
        return "bytes"
    return "float" if dtype.kind == "f" else "int64"


def storage_dtype(dtype: FeatureType) -> np.dtype[Any]:
    """Return the dtype of an array of such values: object for bytes and str."""
    return np.dtype(object) if isinstance(dtype, type) else dtype


def values_per_row(shape: tuple[int, ...]) -> int:
    return math.prod(shape)


def checked_features(features: Any) -> dict[str, Feature]:
    """Return a copy of a mapping of names to features.

    Raises:
        PlanError: It is empty, or a name is no str, or a value is no feature.
    """
    if not isinstance(features, Mapping):
        raise ArgumentTypeError(f"features must be a dict of features by name, got {shown(features)}")
    found = dict(features)
    if not found:
        raise PlanError("features must name at least one feature, got none")
    for name, feature in found.items():
        if not isinstance(name, str):
            raise PlanError(f"a feature's name must be a str, got {name!r}")
        if not isinstance(feature, (FixedLen, VarLen, FixedLenSequence)):
            raise PlanError(f"feature {name!r} must be a FixedLen, VarLen, Ragged or FixedLenSequence, got {feature!r}")
    return found


def checked_shape(shape: Any) -> tuple[int, ...]:
    dims = (shape,) if isinstance(shape, (int, np.integer)) else several("shape", shape, "an int or a tuple of ints")
    for dim in dims:
        if isinstance(dim, bool) or not isinstance(dim, (int, np.integer)) or dim < 1:
            raise PlanError(f"every dimension of shape must be an int of at least 1, got {shape!r}")
    if math.prod(map(int, dims)) > MAX_VALUES_PER_ROW:
        raise PlanError(f"a shape may hold at most {MAX_VALUES_PER_ROW} values, got {shape!r}")
    return tuple(map(int, dims))


def checked_dtype(dtype: Any) -> FeatureType:
    if dtype is bytes or dtype is str:
        return cast(FeatureType, dtype)
    found = numpy_dtype("dtype", dtype, "bytes, str or a NumPy dtype")
    if dtype is None or found.kind not in "biuf" or found.itemsize > 8:
        raise PlanError(
            f"dtype must be bytes, str, bool, or an integer or floating type of 1 to 8 bytes, got {dtype!r}"
        )
    return found.newbyteorder("=")


def _as_array(default: Any, dtype: FeatureType) -> NDArray[Any]:
    return np.array(default, storage_dtype(dtype))


def _checked_default(default: Any, shape: tuple[int, ...], dtype: FeatureType) -> Any:
    """Return the default as a scalar or nested tuples of Python values."""
    try:
        given = np.array(default, object) if isinstance(dtype, type) else np.array(default)
        array = given if isinstance(dtype, type) else _converted(given, dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise PlanError(f"default must be of dtype {_name(dtype)}, got {default!r}") from error
    if isinstance(dtype, type) and not all(isinstance(value, dtype) for value in array.flat):
        raise PlanError(f"default must be of dtype {_name(dtype)}, got {default!r}")
    if array.shape not in ((), shape):
        raise PlanError(f"default must be a scalar or have shape {shape}, got shape {array.shape}")
    return _as_tuples(array.tolist())


def _converted(given: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return ``given`` in this dtype, without losing more than the rounding of a floating type.

    Raises:
        TypeError: A value is of another kind, or does not fit.
    """
    with np.errstate(all="ignore"):
        array = given.astype(dtype)
    if dtype.kind == "f":
        fits = given.dtype.kind in "biuf" and bool((np.isinf(array) == np.isinf(given)).all())
    else:
        fits = given.dtype.kind in "biu" and bool((array == given).all())
    if not fits:
        raise ArgumentTypeError(f"{given!r} does not fit into {dtype}")
    return array


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


def _name(dtype: FeatureType) -> str:
    return dtype.__name__ if isinstance(dtype, type) else dtype.name
