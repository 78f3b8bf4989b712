"""Sizes of the results of user functions, which all runs of one operator learn together.

A function of ``interleave`` that returns ``dataset.map(f)`` makes a run of ``map`` for each element, and many of these
runs work at the same time. Without common sizes, each of them would begin with a call whose result has an unknown size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from weakref import WeakSet

from aiostream_data._engine.calls.pacing import code_of
from aiostream_data._engine.flow.context import RunContext
from aiostream_data.plan.operators import Call


class HasCalls(Protocol):
    """Interface of a run of an operator, which counts its calls."""

    @property
    def in_flight(self) -> int:
        """Number of calls whose results have not been emitted."""


@dataclass
class ResultSizes:
    """Sizes of the results of one operator.

    Attributes:
        growth: Recent maximum of the ratio of output to input.
        has_seen_one: True if a call has returned.
        runs: Runs of the operator that have begun a call before one has returned.
    """

    growth: float = 1.0
    has_seen_one: bool = False
    runs: WeakSet[HasCalls] = field(default_factory=WeakSet)

    @property
    def in_flight(self) -> int:
        """Number of calls that have begun before one has returned."""
        return sum(max(1, run.in_flight) for run in self.runs)


class SizesOfResults:
    """Sizes of the results of all operators in inner datasets. For the event loop."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Sequence[object], ResultSizes]] = {}

    def of(self, place: str, functions: Sequence[Callable[..., Any]]) -> ResultSizes:
        """Return the sizes of an operator. They are new if the functions have other code than those of the last run.

        Args:
            place: Key of the operator; see :meth:`.RunContext.place`.
        """
        codes = [code_of(function) for function in functions]
        known = self._known.get(place)
        if known is None or known[0] != codes:
            known = self._known[place] = (codes, ResultSizes())
        return known[1]


@dataclass(frozen=True)
class SharedResults:
    """What the result budgets of several runs of one operator share.

    Attributes:
        sizes: Sizes of the results of all runs.
        first_calls: Maximum number of calls of all runs until the first one returns.
        is_awaited: Function that returns True if all later stages and the consumer wait for the run.
    """

    sizes: ResultSizes
    first_calls: int
    is_awaited: Callable[[], bool]


def shared_results(
    context: RunContext, nodes: Sequence[Call], first_calls: int, is_awaited: Callable[[], bool]
) -> SharedResults | None:
    """Return what all runs of an operator in inner datasets share. Return None for an operator outside of them.

    Args:
        nodes: The operator, after earlier operators that run in the same calls.
    """
    if not context.is_inner:
        return None
    functions = [node.function_called for node in nodes]
    sizes = context.services.features.of(SizesOfResults).of(context.place(nodes[-1]), functions)
    return SharedResults(sizes, first_calls, is_awaited)
