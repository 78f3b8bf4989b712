"""Nodes that mix the rows of several inputs by weights or choices, with their element specs and cardinalities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from aiostream_data._native import deal_rows
from aiostream_data.errors import PlanError
from aiostream_data.plan.alike import common_spec
from aiostream_data.plan.base import INFINITE, UNKNOWN, Node, walk
from aiostream_data.plan.cardinality import cardinality
from aiostream_data.plan.defaults import SCHEDULE_EVERY
from aiostream_data.plan.spec import Spec, spec_of
from aiostream_data.plan.validate import check_rereadable
from aiostream_data.plan.written import Verbatim, call_arguments
from aiostream_data.weights import Schedule, Stop, Weights, shares_of

LONGEST_PERIOD = 1 << 20
"""If a mixing order repeats only after more rows than this, the cardinality of a finite mixture is unknown."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Mix(Node):
    """Node that emits rows of its inputs in proportion to weights.

    Attributes:
        schedule: Names of the inputs, and their weights for each range of rows.
        stop: "first" ends the mixture when the input chosen next is exhausted, "all" when every input is exhausted.
        random: If True, the input of every row is chosen at random. If False, the emitted rows follow the weights
            exactly.
        seed: Seed for ``random``.
    """

    nodes: tuple[Node, ...]
    schedule: Schedule
    stop: Stop
    random: bool = False
    seed: int | None = None

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.nodes

    @property
    def label(self) -> str:
        return "sample_from"

    def detail(self) -> str:
        return call_arguments(
            weights=(_weights(self.schedule), None),
            seed=(self.seed, None),
            stop=(self.stop, "first"),
            random=(self.random, False),
            schedule_every=(self.schedule.every if self.schedule.function else SCHEDULE_EVERY, SCHEDULE_EVERY),
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Choose(Node):
    """Node that emits rows of several inputs in a given order.

    Each row of ``choices`` is the index of the input that provides the next row.
    """

    choices: Node
    nodes: tuple[Node, ...]
    names: tuple[str, ...]
    stop: Stop

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (*self.nodes, self.choices)

    @property
    def label(self) -> str:
        return "choose_from"

    def detail(self) -> str:
        return call_arguments(stop=(self.stop, "first"))


def _weights(schedule: Schedule) -> object:
    """Return the weights in the form of the user's argument: a set, a list of (first row, weights) or a function.
    Return None if all weights are equal."""
    if [set(weights) for _, weights in schedule.steps] == [{1.0}]:
        return None
    if schedule.function is not None:
        return schedule.function
    named = list(schedule.names) != [str(number) for number in range(len(schedule.names))]
    steps = [
        (row, _by_name(schedule.names, weights) if named else f"[{', '.join(f'{weight:g}' for weight in weights)}]")
        for row, weights in schedule.steps
    ]
    return Verbatim(steps[0][1] if len(steps) == 1 else "[" + ", ".join(f"({row}, {by})" for row, by in steps) + "]")


def _by_name(names: Sequence[str], weights: Sequence[float]) -> str:
    return "{" + ", ".join(f"{name!r}: {weight:g}" for name, weight in zip(names, weights, strict=True)) + "}"


def check_shared(nodes: Sequence[Node], operation: str) -> None:
    """Raise an error if two inputs use the same source and the source can be read only once.

    Raises:
        StageBuildError: Two inputs share a source that can be read only once.
    """
    seen: set[Node] = set()
    for node in nodes:
        if not seen.isdisjoint(walk(node)):
            check_rereadable(node, f"{operation}() of datasets that share a source")
        seen.update(walk(node))


def mixture_meant(plan: Node, weights: Weights) -> Mix:
    """Find the mixture for new weights: the only mixture of the plan, or the mixture with the same input names.

    Raises:
        PlanError: The plan has no mixture, or not exactly one mixture with these names.
    """
    mixtures = [node for node in walk(plan) if isinstance(node, Mix)]
    if not mixtures:
        raise PlanError("cannot set weights: the plan has no sample_from()")
    named = [node for node in mixtures if isinstance(weights, Mapping) and set(weights) == set(node.schedule.names)]
    found = named if len(mixtures) > 1 else mixtures
    if len(found) != 1:
        known = "; ".join(", ".join(node.schedule.names) for node in mixtures)
        raise PlanError(f"weights must be a dict with the names of one mixture of the plan: {known}")
    return found[0]


# -- element specs


@spec_of.register(Mix)
@spec_of.register(Choose)
def _(node: Mix | Choose) -> Spec:
    return common_spec([spec_of(child) for child in node.nodes])


# -- cardinality


@cardinality.register
def _(node: Mix) -> int:
    counts = [cardinality(child) for child in node.nodes]
    if all(count == INFINITE for count in counts):
        return INFINITE
    if node.schedule.function is not None or len(node.schedule.steps) > 1:
        return _sum(counts) if node.stop == "all" and node.schedule.always_positive else UNKNOWN
    weights = node.schedule.steps[0][1]
    if node.stop == "all":
        return _sum([count for count, weight in zip(counts, weights, strict=True) if weight])
    return UNKNOWN if node.random else _rows_until_exhausted(shares_of(weights), counts)


@cardinality.register
def _(node: Choose) -> int:
    *counts, choices = (cardinality(child) for child in node.inputs)
    if choices == 0 or all(count == INFINITE for count in counts):
        return choices
    return UNKNOWN


def _sum(counts: Sequence[int]) -> int:
    if INFINITE in counts:
        return INFINITE
    return UNKNOWN if UNKNOWN in counts else sum(counts)


def _rows_until_exhausted(shares: Sequence[int], counts: Sequence[int]) -> int:
    """Return the number of rows that a mixture emits before it would read from an exhausted input.

    The order in which inputs are chosen is periodic.
    """
    drawn = [(number, count) for number, count in enumerate(counts) if shares[number]]
    if any(count == UNKNOWN for _, count in drawn):
        return UNKNOWN
    in_period = np.array(shares, np.int64) // np.gcd.reduce(shares)
    period = int(in_period.sum())
    finite = [(number, count) for number, count in drawn if count != INFINITE]
    if not finite:
        return INFINITE
    if period > LONGEST_PERIOD:
        return UNKNOWN
    which = deal_rows(np.array(shares, np.int64), np.zeros(len(shares), np.int64), period)
    lengths = []
    for number, count in finite:
        periods, rest = divmod(count, int(in_period[number]))
        lengths.append(periods * period + int(np.flatnonzero(which == number)[rest]))
    return min(lengths)
