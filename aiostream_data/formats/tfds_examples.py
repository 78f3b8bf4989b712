"""Convert the records of TensorFlow Datasets to elements: nested dicts with the value of each feature."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, ClassVar, Final, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from aiostream_data.codecs.deflate import deflate_library
from aiostream_data.errors import TfdsError
from aiostream_data.formats.example import ExampleParser
from aiostream_data.formats.features import FeatureSpec, storage_dtype
from aiostream_data.formats.tfds_features import FLAT_VALUES, ROW_LENGTHS, SHAPE, VALUE, TfdsFeature
from aiostream_data.rows.columns import Column, VarColumn, column_elements
from aiostream_data.rows.records import Chunk, Columns, Items
from aiostream_data.rows.structure import LEAF, Structure

Describe = Callable[[int], tuple[str, int]]
Leaf = Column | list[Any]

_MOST_NBYTES: Final = 1 << 30
"""Maximum size of a decompressed tensor in bytes."""


class _BadTensor(Exception):
    """A value cannot be decoded.

    Attributes:
        reason: Description of the problem.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class _BadRow(NamedTuple):
    """The first row whose value cannot be decoded."""

    row: int
    reason: str


@dataclass(frozen=True)
class TfdsExamples:
    """Row-wise decoder of serialized ``tf.train.Example`` records with declared features.

    Chunks have one column per feature, unless a value is a list or an array without a column form.

    Attributes:
        features: Features to deliver; None until ``open()`` has read ``features.json``.
        select: Names of the features to deliver, or None for all.
    """

    features: tuple[TfdsFeature, ...] | None = None
    select: tuple[str, ...] | None = None

    wraps: ClassVar[bool] = False
    label: ClassVar[str] = "tfds"

    @cached_property
    def structure(self) -> Structure:
        """Structure of an element: nested dicts with one leaf per feature."""
        return LEAF if self.features is None else _tree([feature.path for feature in self.features])

    @property
    def element_specs(self) -> tuple[FeatureSpec, ...] | None:
        """Shape, dtype and ``ragged`` flag of each leaf of an element; None if they differ between rows."""
        specs = [_spec(feature) for feature in self.features or (None,)]
        known = tuple(spec for spec in specs if spec is not None)
        return known if len(known) == len(specs) else None

    @cached_property
    def _parser(self) -> ExampleParser:
        assert self.features is not None
        return ExampleParser({name: column for feature in self.features for name, column in feature.columns.items()})

    def parse(self, chunk: Columns, describe: Describe) -> Chunk:
        """Convert all records of a chunk.

        Raises:
            ExampleParseError: A record is damaged, or does not match the declared features.
            TfdsError: A value cannot be decoded. The error names the file, the record and the feature.
        """
        assert self.features is not None
        parsed = self._parser.parse(chunk, describe)
        by_name = dict(zip(self._parser.features, parsed.leaves, strict=True))
        leaves = [_leaf(feature, by_name, describe) for feature in self.features]
        columns = tuple(leaf for leaf in leaves if not isinstance(leaf, list))
        if len(columns) == len(leaves):
            return Columns(self.structure, columns, chunk.ids, parsed.lease, chunk.made_of)
        lists = [leaf if isinstance(leaf, list) else column_elements(leaf) for leaf in leaves]
        return Items(self.structure.rows(lists), chunk.ids, None, chunk.made_of)


def _tree(paths: Sequence[tuple[str, ...]]) -> Structure:
    """Return nested dicts with one leaf per path. Paths with a common start are next to each other."""
    if paths == [()]:
        return LEAF
    names = tuple(dict.fromkeys(path[0] for path in paths))
    return Structure("dict", names, tuple(_tree([path[1:] for path in paths if path[0] == name]) for name in names))


def _spec(feature: TfdsFeature | None) -> FeatureSpec | None:
    """Return the shape and dtype of a leaf; None if its values are Python objects without a column."""
    if feature is None or feature.is_nested or feature.is_dynamic:
        return None
    dtype = np.dtype(object) if feature.encoding == "image" else storage_dtype(feature.dtype)
    shape = (*feature.lengths, *(() if feature.encoding == "image" else feature.shape))
    if None in shape[1:]:
        return None
    return FeatureSpec(shape, dtype, None in shape)


def _leaf(feature: TfdsFeature, columns: dict[str, Column], describe: Describe) -> Leaf:
    found = _decoded(feature, columns)
    if not isinstance(found, _BadRow):
        return found
    url, record = describe(found.row)
    raise TfdsError(url, record, feature.key, found.reason)


def _decoded(feature: TfdsFeature, columns: dict[str, Column]) -> Leaf | _BadRow:
    """Return the values of one feature of all rows."""
    if feature.is_dynamic:
        values, shapes = (column_elements(columns[feature.key + name]) for name in (VALUE, SHAPE))
        return _each(
            list(zip(values, shapes, strict=True)), lambda row: _tensor(feature, row[0], _shape_of(feature, row[1]))
        )
    if feature.is_nested:
        names = [f"{feature.key}{ROW_LENGTHS}{at}" for at in range(len(feature.lengths) - 1)]
        parts = [column_elements(columns[name]) for name in (feature.key + FLAT_VALUES, *names)]
        return _each(list(zip(*parts, strict=True)), lambda row: _nested(feature, _values(feature, row[0]), row[1:]))
    column = columns[feature.key]
    if feature.encoding in ("bytes", "zlib"):
        return _tensors(feature, column)
    if feature.dtype == np.uint64:
        return _viewed(column, feature.dtype)
    if None in feature.shape[1:] or (feature.lengths and None in feature.shape):
        shape = [-1 if axis is None else axis for axis in (*feature.lengths, *feature.shape)]
        return [row.reshape(shape) for row in column_elements(column)] if not feature.encoding else column
    return column


def _each(rows: Sequence[Any], decode: Callable[[Any], Any]) -> list[Any] | _BadRow:
    """Decode the values of a feature row by row, up to the first one that is damaged."""
    found: list[Any] = []
    for row in rows:
        try:
            found.append(decode(row))
        except _BadTensor as error:
            return _BadRow(len(found), error.reason)
    return found


def _viewed(column: Column, dtype: Any) -> Column:
    if isinstance(column, VarColumn):
        return VarColumn(column.values.view(dtype), column.starts, column.lengths, column.kind)
    return cast("NDArray[Any]", column.view(dtype))


# -- encoded tensors


def _tensors(feature: TfdsFeature, column: Column) -> Leaf | _BadRow:
    """Decode a column of encoded tensors, or of sequences of them."""
    found = _each(column_elements(column), lambda row: _values(feature, row))
    if isinstance(found, _BadRow):
        return found
    spec = _spec(feature)
    if spec is None:
        return found
    if not spec.ragged:
        return np.stack(found) if found else np.empty((0, *cast("tuple[int, ...]", spec.shape)), spec.dtype)
    lengths = np.array([len(row) for row in found], np.int64)
    item = cast("tuple[int, ...]", spec.shape[1:])
    values = np.concatenate(found) if found else np.empty((0, *item), spec.dtype)
    return VarColumn(values, np.cumsum(lengths) - lengths, lengths, "array")


def _values(feature: TfdsFeature, stored: Any) -> Any:
    """Return a value, or the values of a sequence."""
    if feature.encoding not in ("bytes", "zlib"):
        return stored.view(feature.dtype) if feature.dtype == np.uint64 else stored
    if isinstance(stored, bytes):
        return _tensor(feature, stored, feature.shape)
    tensors = [_tensor(feature, each, feature.shape) for each in stored.tolist()]
    if None in feature.shape:
        return tensors
    shape = cast("tuple[int, ...]", feature.shape)
    return np.stack(tensors) if tensors else np.empty((0, *shape), cast("np.dtype[Any]", feature.dtype))


def _shape_of(feature: TfdsFeature, stored: NDArray[np.int64]) -> tuple[int, ...]:
    """Return the stored shape of a tensor.

    Raises:
        _BadTensor: The shape is impossible, or is not of the declared form.
    """
    shape = tuple(stored.tolist())
    fits = all(axis >= 0 and known in (None, axis) for axis, known in zip(shape, feature.shape, strict=True))
    if not fits:
        raise _BadTensor(f"the shape {shape} does not match the declared shape {feature.shape}")
    return shape


def _tensor(feature: TfdsFeature, data: bytes, shape: tuple[int | None, ...]) -> NDArray[Any]:
    """Decode one tensor.

    Raises:
        _BadTensor: The data are damaged, or have another size.
    """
    dtype = cast("np.dtype[Any]", feature.dtype).newbyteorder("<")
    known = prod(axis for axis in shape if axis is not None) * dtype.itemsize
    is_open = None in shape
    content = _inflated(data, _MOST_NBYTES if is_open else known) if feature.encoding == "zlib" else data
    if len(content) % known if is_open and known else len(content) != known:
        raise _BadTensor(f"{len(content)} bytes are no {dtype.name} tensor of the shape {shape}")
    values = np.frombuffer(content, np.uint8 if dtype.kind == "b" else dtype)
    if dtype.kind == "b":
        values = values != 0
    return values.astype(dtype.newbyteorder("=")).reshape([-1 if axis is None else axis for axis in shape])


def _inflated(data: bytes, most: int) -> bytes:
    """Decompress a tensor of at most ``most`` bytes."""
    library = deflate_library()
    stream = library.decompressobj()
    try:
        content: bytes = stream.decompress(data, most + 1)
    except library.error as error:
        raise _BadTensor(f"the tensor is not compressed by zlib: {error}") from None
    if len(content) > most:
        raise _BadTensor(f"the tensor has more than {most} bytes")
    if not stream.eof:
        raise _BadTensor("the compressed tensor is cut short")
    return content


# -- sequences of sequences


def _nested(feature: TfdsFeature, values: Any, row_lengths: Sequence[NDArray[np.int64]]) -> list[Any]:
    """Divide the values of a row into nested lists. The innermost sequences are arrays.

    Args:
        row_lengths: Lengths of the sequences on each level below the outermost, from outside to inside.

    Raises:
        _BadTensor: The lengths do not add up to the number of values.
    """
    found = values
    for level in reversed(row_lengths):
        stops = np.cumsum(level)
        if (level < 0).any() or int(level.sum()) != len(found) or (stops < 0).any():
            raise _BadTensor("the lengths of the sequences do not add up to the number of values")
        found = [found[stop - length : stop] for stop, length in zip(stops.tolist(), level.tolist(), strict=True)]
    if feature.lengths[0] not in (None, len(found)):
        raise _BadTensor(f"the outermost sequence has {len(found)} values instead of {feature.lengths[0]}")
    return cast("list[Any]", found)
