"""Nodes that fix the number of elements: ``assert_cardinality`` and ``pad_to_cardinality``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aiostream_data.plan.base import Operator, SameElements
from aiostream_data.plan.cardinality import cardinality
from aiostream_data.plan.spec import UNKNOWN_SPEC, ArraySpec, Spec, spec_of
from aiostream_data.ranks import Tail
from aiostream_data.ranks.padding import marked_structure


@dataclass(frozen=True, eq=False, kw_only=True)
class AssertCardinality(SameElements):
    """Node that emits the elements of its input, and fails if their number is not ``count``.

    Attributes:
        count: Number of elements, or INFINITE.
    """

    count: int

    @property
    def label(self) -> str:
        return "assert_cardinality"

    def detail(self) -> str:
        return str(self.count)


@dataclass(frozen=True, eq=False, kw_only=True)
class PadToCardinality(Operator):
    """Node that adds a flag to each element, and repeats the last element until it has emitted ``rows`` elements.

    Attributes:
        rows: Number of elements to emit.
        own: Number of elements of the input, at least 1 and at most ``rows``.
    """

    rows: int
    own: int

    @property
    def label(self) -> str:
        return "pad_to_cardinality"

    @property
    def tail(self) -> Tail:
        """How the last elements are repeated; as for ranks."""
        return "pad"

    def detail(self) -> str:
        return str(self.rows)


@cardinality.register
def _(node: AssertCardinality) -> int:
    return node.count


@cardinality.register
def _(node: PadToCardinality) -> int:
    return node.rows


@spec_of.register
def _(node: PadToCardinality) -> Spec:
    structure, leaves = spec_of(node.input)
    if leaves == (UNKNOWN_SPEC,):  # the element may be a dict, so the flag's place is unknown
        return structure, leaves
    return marked_structure(structure), (*leaves, ArraySpec((), np.dtype(np.bool_)))
