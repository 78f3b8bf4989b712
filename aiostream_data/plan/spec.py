"""Element specs, known before reading: shape and dtype of each leaf (array) (tf.data's ``element_spec``)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatch
from typing import Any, TypeAlias

import numpy as np

from aiostream_data.arguments import flag, integer, numpy_dtype, several
from aiostream_data.plan import operators as op
from aiostream_data.plan import sources as src
from aiostream_data.plan.base import Node, Operator, SameElements
from aiostream_data.plan.endless import Counter, Random
from aiostream_data.rows.array_likes import NoNumpyFormError, array_of
from aiostream_data.rows.columns import Column, VarColumn
from aiostream_data.rows.ragged import RaggedArray
from aiostream_data.rows.structure import LEAF, Structure, flatten, graft


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """Shape and dtype of one leaf (array) of an element.

    Attributes:
        shape: Tuple with one length per axis. The length is None for axes of varying length. If the whole shape is
            unknown, ``shape`` itself is None.
        dtype: NumPy dtype; ``object`` for bytes and str; None if unknown.
        ragged: True if the rows of a batch have different lengths (a RaggedArray).

    Raises:
        PlanError: An argument is not a valid shape, dtype or bool.
    """

    shape: tuple[int | None, ...] | None
    dtype: np.dtype[Any] | None
    ragged: bool = False

    def __post_init__(self) -> None:
        if self.shape is not None:
            axes = several("shape", self.shape, "a tuple of ints and None, or None")
            shape = tuple(None if axis is None else integer("an axis of shape", axis, 0) for axis in axes)
            object.__setattr__(self, "shape", shape)
        if self.dtype is not None:
            object.__setattr__(self, "dtype", numpy_dtype("dtype", self.dtype, "a dtype or None"))
        object.__setattr__(self, "ragged", flag("ragged", self.ragged))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ArraySpec):
            return NotImplemented
        # NumPy takes None for float64 in a comparison with a dtype.
        own, others = (self.dtype is None, self.dtype), (other.dtype is None, other.dtype)
        return (self.shape, self.ragged, *own) == (other.shape, other.ragged, *others)


UNKNOWN_SPEC = ArraySpec(None, None)

Spec: TypeAlias = tuple[Structure, tuple[ArraySpec, ...]]


@singledispatch
def spec_of(node: Node) -> Spec:
    """Return the structure and the leaf specs of a node's elements.

    If the structure is unknown, return a single unknown leaf.
    """
    return LEAF, (UNKNOWN_SPEC,)


def leaf_spec(value: Any) -> ArraySpec:
    """Return the spec of one leaf, given an example element."""
    if isinstance(value, RaggedArray):
        rows = np.asarray(value.values)
        return ArraySpec((len(value), None, *rows.shape[1:]), rows.dtype, ragged=True)
    try:
        array = array_of(value)
    except NoNumpyFormError:
        return UNKNOWN_SPEC
    return ArraySpec((), np.dtype(object)) if array is None else ArraySpec(array.shape, array.dtype)


def inferred_spec(node: Node, element: Any) -> Any:
    """Return the leaf specs of an element in its structure. Facts that the plan knows precede those of the element."""
    structure, leaves = flatten(element)
    found = [leaf_spec(leaf) for leaf in leaves]
    known_structure, known = spec_of(node)
    if known_structure == structure and known != (UNKNOWN_SPEC,):
        found = list(map(_completed, known, found))
    return structure.unflatten(found)


def _completed(known: ArraySpec, found: ArraySpec) -> ArraySpec:
    shape = found.shape if known.shape is None else known.shape
    return ArraySpec(shape, known.dtype or found.dtype, known.ragged or found.ragged)


def described(leaf: ArraySpec) -> str:
    """Return a spec as text for messages, such as ``float32[10, ?]``."""
    kind = "unknown" if leaf.dtype is None else "bytes or str" if leaf.dtype.hasobject else str(leaf.dtype)
    if leaf.shape is None:
        return kind + "[...]"
    axes = ", ".join("?" if axis is None else str(axis) for axis in leaf.shape)
    return kind + (f"[{axes}]" if leaf.shape else "") + (" (ragged)" if leaf.ragged else "")


@spec_of.register
def _(node: src.TensorSlices) -> Spec:
    leaves = iter(node.leaves)
    specs = []
    for is_nullable in node.structure.nullable_leaves():
        specs.append(_column_spec(next(leaves)))
        if is_nullable:
            next(leaves)
    return node.structure.plain, tuple(specs)


def _column_spec(column: Column) -> ArraySpec:
    if not isinstance(column, VarColumn):
        return ArraySpec(column.shape[1:], column.dtype)
    if column.kind == "array":
        return ArraySpec((None, *column.item_shape), column.dtype, ragged=True)
    return ArraySpec((), np.dtype(object))


@spec_of.register
def _(node: src.Tensors) -> Spec:
    structure, leaves = flatten(node.element)
    return structure, tuple(leaf_spec(leaf) for leaf in leaves)


@spec_of.register
def _(node: src.Range) -> Spec:
    return LEAF, (ArraySpec((), node.dtype),)


@spec_of.register(Counter)
@spec_of.register(Random)
def _(node: Counter | Random) -> Spec:
    return LEAF, (ArraySpec((), np.dtype(np.int64)),)


@spec_of.register
def _(node: src.Generator) -> Spec:
    if node.signature is None:
        return LEAF, (UNKNOWN_SPEC,)
    structure, leaves = flatten(node.signature, ArraySpec)
    return structure, tuple(leaves)


@spec_of.register
def _(node: src.ListFiles) -> Spec:
    return LEAF, (ArraySpec((), np.dtype(object)),)


@spec_of.register
def _(node: src.ReadFiles) -> Spec:
    text = ArraySpec((), np.dtype(object))
    spec: Spec = LEAF, (text,)
    for decoder in node.decoders:
        spec = _decoded(decoder)
    return spec


@spec_of.register(op.ParseExample)
@spec_of.register(op.ParseRows)
def _(node: op.ParseExample | op.ParseRows) -> Spec:
    return _decoded(node.decoder)


def _decoded(decoder: Any) -> Spec:
    specs = getattr(decoder, "element_specs", None)
    if specs is None:
        return LEAF, (UNKNOWN_SPEC,)
    leaves = tuple(ArraySpec(tuple(shape), np.dtype(dtype), ragged) for shape, dtype, ragged in specs)
    return decoder.structure, leaves


@spec_of.register
def _(node: SameElements) -> Spec:
    return spec_of(node.input)


@spec_of.register
def _(node: op.ToDevice) -> Spec:
    structure, leaves = spec_of(node.input)
    if node.transform is None or leaves == (UNKNOWN_SPEC,):
        return structure, leaves
    named = zip(structure.paths(), leaves, strict=True)
    outcome = node.transform.outcome([(path, leaf.shape, leaf.dtype, not leaf.ragged) for path, leaf in named])
    return structure, tuple(
        ArraySpec(shape, dtype, leaf.ragged) for (shape, dtype), leaf in zip(outcome, leaves, strict=True)
    )


def _per_leaf(node: Operator, change: Callable[[ArraySpec], ArraySpec]) -> Spec:
    structure, leaves = spec_of(node.input)
    return structure, tuple(change(leaf) for leaf in leaves)


@spec_of.register
def _(node: op.Batch) -> Spec:
    rows = node.batch_size if node.drop_remainder else None
    return _per_leaf(node, lambda leaf: stacked_leaf(leaf, rows, node.strings))


def stacked_leaf(leaf: ArraySpec, rows: int | None, strings: str | None = None) -> ArraySpec:
    """Return the spec of a leaf in batches that stack ``rows`` rows. If ``rows`` is None, batch sizes vary.

    Args:
        strings: Form of bytes and text; None for object arrays.
    """
    if strings is not None and leaf.shape == () and leaf.dtype == np.dtype(object):
        return _string_spec(strings, rows)
    if strings in ("ragged", "padded") and leaf.shape == () and leaf.dtype is None:  # numbers, bytes or text
        return UNKNOWN_SPEC
    return leaf if leaf.shape is None else _with_shape(leaf, (rows, *leaf.shape))


def _string_spec(form: str, rows: int | None) -> ArraySpec:
    """Return the spec of bytes or text in a batch. With "string_dtype", the dtype depends on the type of the rows."""
    if form in ("ragged", "padded"):
        return ArraySpec((rows, None), np.dtype(np.uint8), ragged=form == "ragged")
    return ArraySpec((rows,), np.dtype(object) if form == "columns" else None)


@spec_of.register
def _(node: op.Unbatch) -> Spec:
    return _per_leaf(node, lambda leaf: leaf if not leaf.shape else _with_shape(leaf, leaf.shape[1:]))


def _with_shape(leaf: ArraySpec, shape: tuple[int | None, ...]) -> ArraySpec:
    return ArraySpec(shape, leaf.dtype, leaf.ragged)


@spec_of.register
def _(node: op.Enumerate) -> Spec:
    structure, leaves = spec_of(node.input)
    return Structure("tuple", (), (LEAF, structure)), (ArraySpec((), np.dtype(np.int64)), *leaves)


@spec_of.register
def _(node: op.Zip) -> Spec:
    parts = [spec_of(child) for child in node.nodes]
    structure = graft(node.structure, [part[0] for part in parts])
    return structure, tuple(leaf for part in parts for leaf in part[1])
