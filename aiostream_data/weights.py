"""Stop rules and weights of dataset mixtures: validation, lookup by row, and conversion to integer shares.

A schedule defines the weights for each output row of a mixture. The schedule is a list of steps, or a function called
at regular intervals. Weight changes made during a run override the schedule.
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
"""One weight per input of a mixture, in the order of the inputs."""

Weights: TypeAlias = Sequence[float] | Mapping[str, float]
WeightPlan: TypeAlias = Weights | Sequence[tuple[int, Weights]] | Callable[[int], Weights]
"""Weights of a mixture: constants, a list of (first row, weights) steps, or a function of the row number."""

Stop: TypeAlias = Literal["first", "all"]
"""``"first"`` ends the mixture when the next row is due from an exhausted input.

``"all"`` ends the mixture when every input is exhausted.
"""

STOPS: Final = get_args(Stop)

UNIT = 1 << 40
"""Maximum sum of integer shares. Shares with a larger exact sum are rounded, so that their sum is this maximum."""


@dataclass(frozen=True, slots=True)
class WeightSpan:
    """Weights for a range of rows; ``until`` is the first row after the range, or None if the weights never change."""

    weights: Vector
    until: int | None


class WeightChange(NamedTuple):
    """Weights set during a run for rows from ``first_row`` on, and the weights planned by the schedule for that row."""

    first_row: int
    weights: Vector
    planned: Vector


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Weights of the inputs for each output row of a mixture.

    Attributes:
        names: Names of the mixture's inputs.
        steps: (first row, weights) pairs in ascending order, starting at row 0; empty if ``function`` is set.
        function: Function called with row 0, ``every``, 2 * ``every`` ...; it returns the weights from that row on.
        every: Number of rows between two calls of ``function``.
        changes: Weight changes made during the run, in row order. These changes replace the schedule from the first
            change on.
    """

    names: tuple[str, ...]
    steps: tuple[tuple[int, Vector], ...] = ()
    function: Callable[[int], Any] | None = None
    every: int = 1
    changes: tuple[WeightChange, ...] = ()

    def at(self, row: int) -> WeightSpan:
        """Return the weights for ``row``, and the row at which these weights stop applying.

        Raises:
            PlanError: The function of the schedule returned invalid weights.
        """
        if not self.changes:
            return self.planned_at(row)
        first = self.changes[0].first_row
        if row >= first:
            return _step_at([(change.first_row, change.weights) for change in self.changes], row)
        planned = self.planned_at(row)
        return WeightSpan(planned.weights, first if planned.until is None else min(first, planned.until))

    def planned_at(self, row: int) -> WeightSpan:
        """Return the weights that the schedule plans for ``row``, ignoring changes made during the run."""
        if self.function is None:
            return _step_at(self.steps, row)
        asked = row - row % self.every
        weights = vector_of(self.function(asked), self.names, f"the weights for row {asked}")
        return WeightSpan(weights, asked + self.every)

    def changed(self, row: int, weights: Vector) -> Schedule:
        """Return the schedule with new weights from ``row`` on.

        Earlier changes for ``row`` or later rows are discarded.
        """
        kept = [change for change in self.changes if change.first_row < row]
        return replace(self, changes=(*kept, WeightChange(row, weights, self.planned_at(row).weights)))

    def with_changes_of(self, state: list[Any]) -> Schedule:
        """Return the schedule with the weight changes from a saved ``changes_state``.

        A saved weight change is discarded if the two schedules plan different weights for its row. If the pipeline
        defines new weights, they therefore take effect.
        """
        changes = (WeightChange(row, tuple(weights), tuple(planned)) for row, weights, planned in state)
        kept = [change for change in changes if self.planned_at(change.first_row).weights == change.planned]
        return replace(self, changes=tuple(kept))

    def since(self, row: int) -> Schedule:
        """Return the schedule without the weight changes that have no effect from ``row`` on."""
        over = sum(change.first_row <= row for change in self.changes) - 1
        return replace(self, changes=self.changes[over:]) if over > 0 else self

    @property
    def changes_state(self) -> list[Any]:
        """Changes as JSON-compatible data."""
        return [[change.first_row, list(change.weights), list(change.planned)] for change in self.changes]

    @property
    def always_positive(self) -> bool:
        """True if every step of the schedule gives every input a weight above 0.

        The value is False for a schedule with a function.
        """
        return self.function is None and all(min(weights) > 0 for _, weights in self.steps)


def _step_at(steps: Sequence[tuple[int, Vector]], row: int) -> WeightSpan:
    number = bisect_right(steps, row, key=lambda step: step[0])
    return WeightSpan(steps[number - 1][1], steps[number][0] if number < len(steps) else None)


def schedule_of(weights: WeightPlan | None, names: tuple[str, ...], every: int = 1) -> Schedule:
    """Convert the user's ``weights`` argument to a schedule. None means equal weights.

    Raises:
        PlanError: The weights are not numbers, their count is wrong, one is negative, all are 0, or the steps are out
            of order.
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
        raise PlanError(f"the rows of a schedule must start at 0 and increase, got {rows}")
    return tuple(checked)


def vector_of(weights: Any, names: tuple[str, ...], what: str = "weights") -> Vector:
    """Convert weights to a tuple with one float per input. The weights are a sequence, or a dict by input name.

    Raises:
        PlanError: The weights are not one finite, non-negative number per input, or all are 0.
    """
    if isinstance(weights, Mapping):
        if set(weights) != set(names):
            raise PlanError(f"{what} must have the names {', '.join(names)}, got {', '.join(map(str, weights))}")
        weights = [weights[name] for name in names]
    listed = _listed(weights, what)
    if len(listed) != len(names):
        raise PlanError(f"{what} must have one number per dataset ({len(names)}), got {len(listed)}")
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
    """Convert weights to integer shares with the same ratios.

    A weight counts as the decimal number that ``repr`` prints, so weights 0.8 and 0.2 have the exact ratio 4 to 1. The
    sum of all shares is between ``UNIT`` / 2 and ``UNIT``. Ratios that require larger integers are rounded. A positive
    weight never becomes a share of 0.
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
