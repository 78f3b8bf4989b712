"""What a mixture is told: when to stop, and weights: checked, looked up by row, and made whole-number shares.

A schedule says which weights are in force at a row of the mixture's output: a step function that was
written down, or a function asked every so many rows. Changes made while running come on top of it.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

from aiostream_data.errors import PlanError

Vector: TypeAlias = tuple[float, ...]
"""One weight per input, in the order of the inputs."""

Weights: TypeAlias = Sequence[float] | Mapping[str, float]
WeightPlan: TypeAlias = Weights | Sequence[tuple[int, Weights]] | Callable[[int], Weights]
"""Weights for all rows; for the rows from a number on, several times; or as a function of the row number."""

Stop: TypeAlias = Literal["first", "all"]
"""End as soon as an input has no row although it is its turn, or when every input is exhausted."""

STOPS: Final = get_args(Stop)

UNIT = 1 << 40
"""Most shares that weights are divided into: the resolution of proportions that are no small fractions."""


@dataclass(frozen=True, slots=True)
class WeightSpan:
    """Weights, and the first row for which they are no longer in force; None when they stay."""

    weights: Vector
    until: int | None


class WeightChange(NamedTuple):
    """Weights set from a row on, and those that were planned for that row."""

    first_row: int
    weights: Vector
    planned: Vector


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Which weights are in force at which row.

    Attributes:
        names: Names of the inputs.
        steps: (first row, weights), ascending, from row 0 on; empty with a ``function``.
        function: Asked for the weights at row 0, ``every``, 2 ``every`` ...
        changes: In the order of their rows; from the first of them on, they alone count.
    """

    names: tuple[str, ...]
    steps: tuple[tuple[int, Vector], ...] = ()
    function: Callable[[int], Any] | None = None
    every: int = 1
    changes: tuple[WeightChange, ...] = ()

    def at(self, row: int) -> WeightSpan:
        """Return the weights of ``row``, and until when they hold.

        Raises:
            PlanError: The function returned something that cannot be weights.
        """
        if not self.changes:
            return self.planned_at(row)
        first = self.changes[0].first_row
        if row >= first:
            return _step_at([(change.first_row, change.weights) for change in self.changes], row)
        planned = self.planned_at(row)
        return WeightSpan(planned.weights, first if planned.until is None else min(first, planned.until))

    def planned_at(self, row: int) -> WeightSpan:
        """Return what :meth:`at` would without any changes."""
        if self.function is None:
            return _step_at(self.steps, row)
        asked = row - row % self.every
        weights = vector_of(self.function(asked), self.names, f"the weights for row {asked}")
        return WeightSpan(weights, asked + self.every)

    def changed(self, row: int, weights: Vector) -> Schedule:
        """Return the schedule with other weights from ``row`` on; later changes are given up."""
        kept = [change for change in self.changes if change.first_row < row]
        return replace(self, changes=(*kept, WeightChange(row, weights, self.planned_at(row).weights)))

    def with_changes_of(self, state: list[Any]) -> Schedule:
        """Return the schedule with the changes that ``changes_state`` of an earlier one describes.

        A change is left out when this schedule has other weights for its row than the earlier one had:
        whoever plans new weights wants those.
        """
        changes = (WeightChange(row, tuple(weights), tuple(planned)) for row, weights, planned in state)
        kept = [change for change in changes if self.planned_at(change.first_row).weights == change.planned]
        return replace(self, changes=tuple(kept))

    def since(self, row: int) -> Schedule:
        """Return the schedule without the changes that no row from ``row`` on is under."""
        over = sum(change.first_row <= row for change in self.changes) - 1
        return replace(self, changes=self.changes[over:]) if over > 0 else self

    @property
    def changes_state(self) -> list[Any]:
        """The changes as plain data."""
        return [[change.first_row, list(change.weights), list(change.planned)] for change in self.changes]

    @property
    def always_positive(self) -> bool:
        """True when the plan alone tells that every input has a weight above 0 at every row."""
        return self.function is None and all(min(weights) > 0 for _, weights in self.steps)


def _step_at(steps: Sequence[tuple[int, Vector]], row: int) -> WeightSpan:
    number = bisect_right(steps, row, key=lambda step: step[0])
    return WeightSpan(steps[number - 1][1], steps[number][0] if number < len(steps) else None)


def schedule_of(weights: WeightPlan | None, names: tuple[str, ...], every: int = 1) -> Schedule:
    """Return the schedule that ``weights`` mean: None for equal ones.

    Raises:
        PlanError: They are no weights, not one per input, negative, all 0, or steps are out of order.
    """
    if weights is None:
        return Schedule(names=names, steps=((0, (1.0,) * len(names)),))
    if callable(weights):
        schedule = Schedule(names=names, function=weights, every=every)
        schedule.planned_at(0)
        return schedule
    if not isinstance(weights, Mapping):
        weights = _listed(weights, "weights")
        if weights and isinstance(weights[0], (tuple, list)):
            return Schedule(names=names, steps=_steps_of(weights, names))
    return Schedule(names=names, steps=((0, vector_of(weights, names)),))


def _steps_of(steps: Sequence[Any], names: tuple[str, ...]) -> tuple[tuple[int, Vector], ...]:
    checked: list[tuple[int, Vector]] = []
    for step in steps:
        if not isinstance(step, (tuple, list)) or len(step) != 2 or not hasattr(step[0], "__index__"):
            raise PlanError(f"a step of a schedule must be (first row, weights), got {step!r}")
        row = int(step[0].__index__())
        checked.append((row, vector_of(step[1], names, f"the weights from row {row} on")))
    rows = [row for row, _ in checked]
    if rows[0] != 0 or any(later <= row for row, later in pairwise(rows)):
        raise PlanError(f"the steps of a schedule must begin with row 0 and ascend, got rows {rows}")
    return tuple(checked)


def vector_of(weights: Any, names: tuple[str, ...], what: str = "weights") -> Vector:
    """Return ``weights``, by input or by name, as one float per input.

    Raises:
        PlanError: They are not one finite number of at least 0 per input, or all are 0.
    """
    if isinstance(weights, Mapping):
        if set(weights) != set(names):
            raise PlanError(f"{what} must have the names {', '.join(names)}, got {', '.join(map(str, weights))}")
        weights = [weights[name] for name in names]
    listed = _listed(weights, what)
    if len(listed) != len(names):
        raise PlanError(f"{what} must be one number for each of {len(names)} data sets, got {len(listed)}")
    try:
        vector = tuple(float(weight) for weight in listed)
    except (TypeError, ValueError):
        raise PlanError(f"{what} must be numbers, got {listed!r}") from None
    if not all(math.isfinite(weight) and weight >= 0 for weight in vector) or not any(vector):
        raise PlanError(f"{what} must be finite, at least 0, and not all 0, got {listed!r}")
    return vector


def _listed(weights: Any, what: str) -> list[Any]:
    if isinstance(weights, (str, bytes)) or not isinstance(weights, Iterable):
        raise PlanError(f"{what} must be a sequence of numbers or a dict by name, got {type(weights).__name__}")
    return list(weights)


def shares_of(weights: Vector) -> list[int]:
    """Return whole numbers in the weights' proportions.

    Weights count as the decimal numbers they print as: 0.8 and 0.2 are 4 to 1, exactly. The sum is
    between ``UNIT`` / 2 and ``UNIT``; proportions that need larger numbers are rounded to it, and no
    positive weight is rounded to 0.
    """
    exact = [Fraction(repr(weight)) for weight in weights]
    scale = math.lcm(*(weight.denominator for weight in exact))
    numerators = [int(weight * scale) for weight in exact]
    divisor = math.gcd(*numerators)
    shares = [number // divisor for number in numerators]
    total = sum(shares)
    if total <= UNIT:
        return [share * (UNIT // total) for share in shares]
    rounded = [max(1, share * UNIT // total) if share else 0 for share in shares]
    largest = rounded.index(max(rounded))
    rounded[largest] += UNIT - sum(rounded)
    return rounded
