"""Descriptions of the features to parse from a ``tf.train.Example``.

The descriptions are immutable, hashable and validated on creation.

The class names follow TensorFlow, e.g. ``tf.io.FixedLenFeature``. An Example message stores lists of bytes, float32 and
int64 values. The dtype of a feature determines both the type of the list in the message and the type of the parsed
values.
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
"""Maximum number of values per row in a feature with a fixed shape."""


class FeatureSpec(NamedTuple):
    """Shape and dtype of one element (the value of one record) of a feature.

    Attributes:
        shape: Length of each axis; None for a variable length.
        dtype: NumPy dtype of the values; object for bytes and str.
        ragged: True if batches store this feature as a :class:`~aiostream_data.RaggedArray`.
    """

    shape: tuple[int | None, ...]
    dtype: np.dtype[Any]
    ragged: bool = False


@dataclass(frozen=True)
class FixedLen:
    """Feature with a fixed number of values per record. The values are parsed to an array of shape ``shape``.

    Equivalent to ``tf.io.FixedLenFeature``. Values of scalar bytes and str features are slices of the input bytes,
    without a copy. A record with another number of values, including an empty list, causes an error. The default
    applies only to records that lack the feature.

    Attributes:
        shape: Length of each axis, at least 1; ``()`` for a scalar.
        dtype: Type of the values: bytes, str (UTF-8), bool, or a NumPy integer or floating type. Integers and bool are
            read from int64 lists, and floating-point types from float32 lists. A value outside the range of the dtype
            causes an error.
        default: Value for records that lack the feature. The value is an array of this shape, or a scalar for the whole
            array. If ``default`` is None, a record without the feature causes an error. Stored as nested tuples.

    Raises:
        PlanError: The shape, dtype or default is invalid.
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
        """Return the default value as an array with the feature's shape; the dtype is object for bytes and str.

        Read-only.
        """
        return np.broadcast_to(_as_array(self.default, self.type), self.shape)


@dataclass(frozen=True)
class VarLen:
    """Feature with any number of values per record, parsed to a one-dimensional array.

    A record without the feature yields an empty array. ``VarLen`` is equivalent to ``tf.io.VarLenFeature``, but each
    element is a dense array instead of a SparseTensor. A batch of the feature is a
    :class:`~aiostream_data.RaggedArray`.

    Attributes:
        dtype: Type of the values, as in :class:`FixedLen`.

    Raises:
        PlanError: The dtype is invalid.
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
    """Feature with any number of values per record, equivalent to ``tf.io.RaggedFeature`` without partitions.

    ``Ragged`` behaves like :class:`VarLen`. The additional name simplifies porting code from tf.data.
    """


@dataclass(frozen=True)
class FixedLenSequence:
    """Feature with any number of steps per record, all of one shape, parsed to an array of shape (steps, \\*shape).

    ``FixedLenSequence`` is equivalent to ``tf.io.FixedLenSequenceFeature`` without padding: a batch is a
    :class:`~aiostream_data.RaggedArray`.

    Attributes:
        shape, dtype: Shape and dtype of one step, as in :class:`FixedLen`.
        allow_missing: If True, a record without the feature has zero steps. If ``allow_missing`` is False, a record
            without the feature causes an error.

    Raises:
        PlanError: The shape or dtype is invalid.
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
"""Type of a feature description; :class:`Ragged` is a subclass of :class:`VarLen`."""


def feature_kind(dtype: FeatureType) -> Kind:
    """Return the type of protobuf list that stores values of this dtype."""
    if isinstance(dtype, type):
        return "bytes"
    return "float" if dtype.kind == "f" else "int64"


def storage_dtype(dtype: FeatureType) -> np.dtype[Any]:
    """Return the NumPy dtype for arrays of this feature type: object for bytes and str."""
    return np.dtype(object) if isinstance(dtype, type) else dtype


def values_per_row(shape: tuple[int, ...]) -> int:
    return math.prod(shape)


def checked_features(features: Any) -> dict[str, Feature]:
    """Validate a mapping of names to feature descriptions and return a copy.

    Raises:
        PlanError: The mapping is empty, a name is not a str, or a value is not a feature description.
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
        raise PlanError(f"shape must have at most {MAX_VALUES_PER_ROW} values, got {shape!r}")
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
    """Validate a default value and convert it to a scalar or nested tuples of Python values."""
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
    """Convert ``given`` to ``dtype``.

    The only allowed change of a value is rounding a float to a smaller floating-point type.

    Raises:
        TypeError: A value has a different type or is out of range.
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
