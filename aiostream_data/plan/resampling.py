"""Node of the operator ``rejection_resample``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from aiostream_data.plan.base import INFINITE, UNKNOWN, Operator
from aiostream_data.plan.cardinality import cardinality
from aiostream_data.plan.spec import ArraySpec, Spec, spec_of
from aiostream_data.plan.written import call_arguments
from aiostream_data.rows.structure import LEAF, Structure


@dataclass(frozen=True, eq=False, kw_only=True)
class RejectionResample(Operator):
    """Node that emits pairs (class, element) and drops elements at random, so that classes have a target distribution.

    Attributes:
        class_fn: Function that returns the class of an element, an integer from 0.
        target: Weight of each class in the output.
        initial: Weight of each class in the input; None to estimate the distribution from the rows seen so far.
        seed: Seed of the random draws; None to use the seed of the loader.
    """

    class_fn: Callable[..., int]
    target: tuple[float, ...]
    initial: tuple[float, ...] | None = None
    seed: int | None = None

    @property
    def label(self) -> str:
        return "rejection_resample"

    def detail(self) -> str:
        initial = None if self.initial is None else list(self.initial)
        return call_arguments(self.class_fn, list(self.target), initial=(initial, None), seed=(self.seed, None))


@spec_of.register
def _(node: RejectionResample) -> Spec:
    structure, leaves = spec_of(node.input)
    return Structure("tuple", (), (LEAF, structure)), (ArraySpec((), np.dtype(np.int64)), *leaves)


@cardinality.register
def _(node: RejectionResample) -> int:
    rows = cardinality(node.input)
    return rows if rows in (0, INFINITE) else UNKNOWN
