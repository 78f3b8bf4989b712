"""Nodes that combine several rows into one element: windows, padded batches, buckets and packed rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from aiostream_data.errors import PlanError
from aiostream_data.plan.base import INFINITE, UNKNOWN, Operator
from aiostream_data.plan.batch_rows import only_one, rows_of_each_batch
from aiostream_data.plan.cardinality import batches_of_rows, cardinality
from aiostream_data.plan.defaults import OPEN_BINS
from aiostream_data.plan.spec import UNKNOWN_SPEC, ArraySpec, Spec, spec_of, stacked_leaf
from aiostream_data.plan.written import call_arguments
from aiostream_data.ranks import Tail
from aiostream_data.rows.structure import LEAF, Structure
from aiostream_data.rows.text_arrays import Strings

Axes: TypeAlias = tuple[int | None, ...]
TooLong: TypeAlias = Literal["error", "split", "truncate", "drop"]

SEGMENTS: Final = "segment_ids"
"""Name of an int32 array in packed rows: for each value, the number of its element in the row, from 1. Padding has
number 0."""

POSITIONS: Final = "positions"
"""Name of an int32 array in packed rows: the position of each value in its element, from 0. Padding also has position
0."""

VALUES: Final = "values"
"""Key of the packed array in a row if the packed elements are not dicts."""


@dataclass(frozen=True, eq=False, kw_only=True)
class PaddedBatch(Operator):
    """Node that makes batches of ``batch_size`` consecutive elements, padded to equal shapes.

    Attributes:
        padded_shapes, padding_values: Arguments that the user passed to ``padded_batch()``.
        parts_from: 0 if the batches are built in a device slot, else None. See :class:`~.operators.Batch`.
    """

    batch_size: int
    padded_shapes: Any = None
    padding_values: Any = None
    drop_remainder: bool = False
    parts_from: int | None = None

    @property
    def label(self) -> str:
        return "padded_batch"

    def detail(self) -> str:
        return call_arguments(
            self.batch_size,
            padded_shapes=(self.padded_shapes, None),
            padding_values=(self.padding_values, None),
            drop_remainder=(self.drop_remainder, False),
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Rebatch(Operator):
    """Node that makes batches of consecutive elements. Batch sizes cycle through the values in ``sizes``.

    Attributes:
        strings: Form of leaves whose rows are bytes or text; None for object arrays.
    """

    sizes: tuple[int, ...]
    drop_remainder: bool = False
    strings: Strings | None = None

    def detail(self) -> str:
        sizes = self.sizes[0] if len(self.sizes) == 1 else list(self.sizes)
        return call_arguments(sizes, drop_remainder=(self.drop_remainder, False), strings=(self.strings, None))


@dataclass(frozen=True, eq=False, kw_only=True)
class Window(Operator):
    """Node that makes windows of ``size`` stacked elements. The distance between consecutive elements is ``stride``.

    A window starts at every ``shift``-th element.

    Attributes:
        as_datasets: If True, each leaf of a window is a data set of the values of its elements.
        dataset_class: Class of these data sets; None if ``as_datasets`` is False.
    """

    size: int
    shift: int
    stride: int = 1
    drop_remainder: bool = False
    as_datasets: bool = False
    dataset_class: type[Any] | None = None

    def detail(self) -> str:
        return call_arguments(
            self.size,
            shift=(self.shift, self.size),
            stride=(self.stride, 1),
            drop_remainder=(self.drop_remainder, False),
            as_datasets=(self.as_datasets, False),
        )

    @property
    def span(self) -> int:
        """Number of input elements that a full window spans, from its first to its last element."""
        return (self.size - 1) * self.stride + 1


@dataclass(frozen=True, eq=False, kw_only=True)
class Bucket(Operator):
    """Node that makes batches of elements with similar lengths.

    Attributes:
        element_length: Function that returns the length of an element, or name of the leaf that determines the length.
        boundaries: Upper length limit (exclusive) of each bucket except the last, in ascending order.
        batch_sizes: Number of rows per batch, for each bucket.
        max_cost: Maximum cost of a batch, from which ``batch_sizes`` was computed, or None if the user passed no
            maximum. If ``max_cost`` is set, an element whose length reaches the last boundary raises an error.
        padded_shapes, padding_values: Arguments that the user passed to ``bucket_by_sequence_length()``.
        padding: True to pad short rows.
        pad_to_boundary: If True, pad rows to the bucket's boundary minus 1, not to the longest row of the batch.
        share: Pair (share index, number of shares) if the rows of each batch are divided among ranks. If ``share`` is
            set, ``batch_sizes`` count the rows of all ranks together.
        tail: Rule for a last batch that has fewer rows than there are ranks.
        parts_from: 0 if the batches are built in a device slot, else None. See :class:`~.operators.Batch`.
    """

    element_length: Callable[..., int] | str
    boundaries: tuple[int, ...]
    batch_sizes: tuple[int, ...]
    max_cost: int | None = None
    padded_shapes: Any = None
    padding_values: Any = None
    padding: bool = True
    pad_to_boundary: bool = False
    drop_remainder: bool = False
    share: tuple[int, int] | None = None
    tail: Tail = "drop"
    parts_from: int | None = None

    @property
    def label(self) -> str:
        return "bucket_by_sequence_length"

    def detail(self) -> str:
        sizes = [list(self.batch_sizes)] if self.max_cost is None else []
        share = "" if self.share is None else f", share {self.share[0]} of {self.share[1]}, tail={self.tail}"
        return (
            call_arguments(
                self.element_length,
                list(self.boundaries),
                *sizes,
                max_cost=(self.max_cost, None),
                padded_shapes=(self.padded_shapes, None),
                padding_values=(self.padding_values, None),
                no_padding=(not self.padding, False),
                pad_to_bucket_boundary=(self.pad_to_boundary, False),
                drop_remainder=(self.drop_remainder, False),
            )
            + share
        )

    @property
    def rows_held(self) -> int:
        return sum(size - 1 for size in self.batch_sizes)


@dataclass(frozen=True, eq=False, kw_only=True)
class Pack(Operator):
    """Node that makes rows of ``max_length`` values by packing elements of different lengths into each row.

    Attributes:
        fields: Names of the leaves (arrays) to pack, or None to pack all leaves.
        open_bins: Number of packed rows that are filled at the same time.
        too_long: Way to handle elements that are longer than ``max_length``.
        padding_values: Padding value, a dict with the padding value of each leaf, or None to pad with 0.
    """

    max_length: int
    fields: tuple[str, ...] | None = None
    open_bins: int
    too_long: TooLong
    padding_values: Any = None

    def detail(self) -> str:
        return call_arguments(
            self.max_length,
            fields=(None if self.fields is None else list(self.fields), None),
            open_bins=(self.open_bins, OPEN_BINS),
            too_long=(self.too_long, "error"),
            padding_values=(self.padding_values, None),
        )


# -- element specs


def packed_structure(structure: Structure, fields: Sequence[str] | None) -> Structure:
    """Return the structure of packed rows, given the structure of the elements to pack.

    Raises:
        PlanError: The elements already have a leaf named "segment_ids" or "positions".
    """
    if fields is not None:
        inner = Structure("dict", tuple(fields), (LEAF,) * len(fields))
    else:
        inner = structure if structure.kind == "dict" else Structure("dict", (VALUES,), (structure,))
    taken = [name for name in (SEGMENTS, POSITIONS) if name in inner.names]
    if taken:
        raise PlanError(f"pack() adds {SEGMENTS!r} and {POSITIONS!r}, but the elements have {taken[0]!r} already")
    return Structure("dict", (*inner.names, SEGMENTS, POSITIONS), (*inner.children, LEAF, LEAF))


def is_unknown(spec: Spec) -> bool:
    """Return True if an element spec contains no information."""
    return spec == (LEAF, (UNKNOWN_SPEC,))


def padded_leaf(leaf: ArraySpec, rows: int | None, shape: Any) -> ArraySpec:
    """Return the spec of a leaf in batches of ``rows`` rows, padded to ``shape``.

    If ``shape`` is None, rows are padded to the longest row.
    """
    if shape is None and leaf.shape is None:
        return ArraySpec(None, leaf.dtype)
    wanted = (shape,) if hasattr(shape, "__index__") else shape
    known: Axes = leaf.shape if leaf.shape is not None else (None,) * len(wanted)
    asked = known if shape is None else tuple(None if axis in (None, -1) else int(axis) for axis in wanted)
    axes = [own if to is None else to for own, to in zip(known, asked, strict=True)]
    return ArraySpec((rows, *axes), leaf.dtype)


def padded_spec(node: Operator, padded_shapes: Any, rows: int | None) -> Spec:
    """Return the spec of batches with ``rows`` rows, padded to ``padded_shapes``. If ``rows`` is None, batch sizes
    vary."""
    spec = spec_of(node.input)
    if is_unknown(spec):
        return spec
    structure, leaves = spec
    shapes = [None] * len(leaves) if padded_shapes is None else structure.flatten(padded_shapes)
    return structure, tuple(padded_leaf(leaf, rows, shape) for leaf, shape in zip(leaves, shapes, strict=True))


def stacked_spec(node: Operator, rows: int | None, strings: Strings | None = None) -> Spec:
    """Return the spec of batches that stack ``rows`` rows, as ``batch`` does. If ``rows`` is None, batch sizes vary."""
    structure, leaves = spec_of(node.input)
    return structure, tuple(stacked_leaf(leaf, rows, strings) for leaf in leaves)


@spec_of.register
def _(node: PaddedBatch) -> Spec:
    return padded_spec(node, node.padded_shapes, node.batch_size if node.drop_remainder else None)


@spec_of.register
def _(node: Rebatch) -> Spec:
    same = len(set(node.sizes)) == 1 and node.drop_remainder
    return stacked_spec(node, node.sizes[0] if same else None, node.strings)


@spec_of.register
def _(node: Window) -> Spec:
    if node.as_datasets:
        structure, leaves = spec_of(node.input)
        return structure, (UNKNOWN_SPEC,) * len(leaves)
    return stacked_spec(node, node.size if node.drop_remainder else None)


@spec_of.register
def _(node: Bucket) -> Spec:
    return padded_spec(node, node.padded_shapes, None) if node.padding else stacked_spec(node, None)


@spec_of.register
def _(node: Pack) -> Spec:
    spec = spec_of(node.input)
    if is_unknown(spec) and node.fields is None:
        return spec
    structure, leaves = spec
    named = dict(zip(structure.paths(), leaves, strict=True))
    packed = [_packed_leaf(named.get(name, UNKNOWN_SPEC), node.max_length) for name in node.fields or named]
    marks = ArraySpec((node.max_length,), np.dtype(np.int32))
    return packed_structure(structure, node.fields), (*packed, marks, marks)


def _packed_leaf(leaf: ArraySpec, width: int) -> ArraySpec:
    return ArraySpec(None if not leaf.shape else (width, *leaf.shape[1:]), leaf.dtype)


# -- cardinality


@cardinality.register
def _(node: PaddedBatch) -> int:
    return batches_of_rows(cardinality(node.input), node.batch_size, drop_remainder=node.drop_remainder)


@cardinality.register
def _(node: Rebatch) -> int:
    rows = cardinality(node.input)
    if rows < 0:
        return rows
    rounds, left = divmod(rows, sum(node.sizes))
    count = rounds * len(node.sizes)
    for size in node.sizes:
        if left < size:
            return count + (left > 0 and not node.drop_remainder)
        left -= size
        count += 1
    return count


@rows_of_each_batch.register
def _(node: PaddedBatch) -> int | None:
    return node.batch_size if node.drop_remainder else None


@rows_of_each_batch.register
def _(node: Rebatch) -> int | None:
    return only_one(node.sizes) if node.drop_remainder else None


@cardinality.register
def _(node: Window) -> int:
    rows = cardinality(node.input)
    if rows < 0:
        return rows
    return max(0, (rows - node.span) // node.shift + 1) if node.drop_remainder else -(-rows // node.shift)


@cardinality.register(Bucket)
@cardinality.register(Pack)
def _(node: Operator) -> int:
    rows = cardinality(node.input)
    return rows if rows in (0, INFINITE) else UNKNOWN
