"""Nodes of ``sample_from`` with a data set of weights: the choices made from the weights, and the mixture."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aiostream_data.plan.base import Operator
from aiostream_data.plan.cardinality import cardinality
from aiostream_data.plan.mixing import Choose
from aiostream_data.plan.spec import ArraySpec, Spec, spec_of
from aiostream_data.plan.written import Verbatim, call_arguments
from aiostream_data.rows.structure import LEAF


@dataclass(frozen=True, eq=False, kw_only=True)
class WeightedChoices(Operator):
    """Node that emits the index of an input of a mixture for each vector of weights.

    Attributes:
        choices_of: Names of the mixture's inputs. Each element has one weight per input.
        random: If True, each index is drawn at random. If False, the indices follow the weights exactly.
        seed: Seed for ``random``.
    """

    choices_of: tuple[str, ...]
    random: bool = False
    seed: int | None = None

    @property
    def label(self) -> str:
        return "weights"

    def detail(self) -> str:
        return call_arguments(list(self.choices_of), random=(self.random, False), seed=(self.seed, None))


@dataclass(frozen=True, eq=False, kw_only=True)
class MixByWeights(Choose):
    """Node that emits rows of its inputs in proportion to weights from a data set.

    The last input is a :class:`WeightedChoices` node.
    """

    @property
    def label(self) -> str:
        return "sample_from"

    def detail(self) -> str:
        return call_arguments(weights=(Verbatim("<a dataset>"), None), stop=(self.stop, "first"))


@spec_of.register
def _(node: WeightedChoices) -> Spec:
    return LEAF, (ArraySpec((), np.dtype(np.int64)),)


@cardinality.register
def _(node: WeightedChoices) -> int:
    return cardinality(node.input)
