"""Nodes of ``ragged_batch`` and ``sparse_batch``: batches of rows with different shapes, without padding."""

from __future__ import annotations

from dataclasses import dataclass

from aiostream_data.plan.element_nbytes import most_nbytes
from aiostream_data.plan.spec import UNKNOWN_SPEC, ArraySpec, Spec, spec_of
from aiostream_data.plan.windows import Axes, PaddedBatch, is_unknown
from aiostream_data.plan.written import call_arguments
from aiostream_data.rows.structure import LEAF


@dataclass(frozen=True, eq=False, kw_only=True)
class RaggedBatch(PaddedBatch):
    """Node that makes batches whose arrays are ragged along the first axis of the rows.

    Attributes:
        dense: Paths of the leaves whose shape the plan knows. These leaves are stacked as in ``batch``.
    """

    dense: frozenset[str] = frozenset()

    @property
    def label(self) -> str:
        return "ragged_batch"

    def detail(self) -> str:
        return call_arguments(self.batch_size, drop_remainder=(self.drop_remainder, False))


@dataclass(frozen=True, eq=False, kw_only=True)
class SparseBatch(PaddedBatch):
    """Node that makes sparse arrays of SciPy. Each row holds all values of one dense array.

    Attributes:
        row_shape: Shape of a row of the batch. An axis of None has the length of the longest row of the batch.
    """

    row_shape: Axes

    @property
    def label(self) -> str:
        return "sparse_batch"

    def detail(self) -> str:
        return call_arguments(self.batch_size, list(self.row_shape), drop_remainder=(self.drop_remainder, False))


def dense_leaves(spec: Spec) -> frozenset[str]:
    """Return the paths of the leaves whose rows all have the same known shape."""
    structure, leaves = spec
    if is_unknown(spec):
        return frozenset()
    return frozenset(path for path, leaf in zip(structure.paths(), leaves, strict=True) if _is_dense(leaf))


def _is_dense(leaf: ArraySpec) -> bool:
    return leaf.shape is not None and not leaf.ragged and None not in leaf.shape


@spec_of.register
def _(node: RaggedBatch) -> Spec:
    spec = spec_of(node.input)
    if is_unknown(spec):
        return spec
    structure, leaves = spec
    rows = node.batch_size if node.drop_remainder else None
    batched = [
        leaf
        if leaf.shape is None
        else ArraySpec((rows, *leaf.shape), leaf.dtype)
        if path in node.dense
        else ArraySpec((rows, None, *leaf.shape[1:]), leaf.dtype, ragged=True)
        for path, leaf in zip(structure.paths(), leaves, strict=True)
    ]
    return structure, tuple(batched)


@spec_of.register
def _(node: SparseBatch) -> Spec:
    return LEAF, (UNKNOWN_SPEC,)


@most_nbytes.register
def _(node: SparseBatch) -> None:
    return None
