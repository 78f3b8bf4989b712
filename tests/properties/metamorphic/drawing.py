"""A drawn plan: a tree of steps that prints as a program, and what further steps must know of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Literal

Kind = Literal["number", "row", "text", "example", "sequence", "sequences", "batch", "other"]
"""What an element is. Numbers, rows, text and examples can be batched; only map() can use the others."""

STACKABLE: tuple[Kind, ...] = ("number", "row", "text", "example")

MOST = 70
"""Elements of a plan, at most, about."""


@dataclass(frozen=True)
class Step:
    """One operator or source.

    Attributes:
        text: Program text, in which ``@0``, ``@1`` ... stand for the inputs.
        inputs: The steps below.
    """

    text: str
    inputs: tuple[Step, ...] = ()

    @property
    def code(self) -> str:
        """Return the program text with the text of all inputs in it."""
        text = self.text
        for number, step in enumerate(self.inputs):
            text = text.replace(f"@{number}", step.code)
        return text

    @property
    def size(self) -> int:
        return 1 + sum(step.size for step in self.inputs)


@dataclass(frozen=True)
class Drawn:
    """A plan, and what further steps must know of it.

    Attributes:
        step: The program.
        kind: What an element is.
        most: Upper bound of the number of elements.
        ordered: False when the order may differ between runs; elements do not depend on it then.
        free: Nothing depends on the order of the input, so that ``deterministic=False`` changes no row.
        named: Rows keep names of their own in any order. Not so above ``batch``, whose rows are named by place.
        row_kind: What the rows of an element are, for a batch.
        rows: Upper bound of the rows of a batch.
        grouped: Some step puts several rows together, so that ranks may share something else than rows.
    """

    step: Step
    kind: Kind
    most: int
    ordered: bool = True
    free: bool = True
    named: bool = True
    row_kind: Kind = "other"
    rows: int = 1
    grouped: bool = False

    @property
    def code(self) -> str:
        return self.step.code

    @property
    def is_counted(self) -> bool:
        """Return False if there may be fewer elements than the cardinality: an empty repetition ends ``repeat()``."""
        return ".repeat()" not in self.code

    @property
    def may_draw(self) -> bool:
        """Return True if draws by row can be the same in every run; see :meth:`drawing`."""
        return self.named or self.ordered

    def drawing(self) -> Drawn:
        """Return this plan as one above which functions draw by row: in order, where the order names the rows."""
        return self if self.named else self.depending_on_order()

    def then(self, call: str, **changes: Any) -> Drawn:
        """Return this plan with one more call at its end."""
        return replace(self, step=Step(f"@0.{call}", (self.step,)), **changes)

    def within(self, text: str, **changes: Any) -> Drawn:
        """Return this plan as ``@0`` of a larger expression."""
        return replace(self, step=Step(text, (self.step,)), **changes)

    def depending_on_order(self) -> Drawn:
        """Return this plan, marked as one whose elements depend on the order below."""
        assert self.ordered, "a step that depends on the order was drawn above one without an order"
        return replace(self, free=False)


def one_of(random: Random, *values: Any) -> Any:
    """Return one of the values."""
    return values[random.randrange(len(values))]


def chance(random: Random, share: float) -> bool:
    """Return True in about this share of all cases."""
    return random.random() < share


def arguments(*given: Any, **named: Any) -> str:
    """Return arguments as they are written, without those that are None."""
    parts = [str(value) for value in given]
    parts += [f"{name}={value!r}" for name, value in named.items() if value is not None]
    return ", ".join(parts)


def seed_or_none(random: Random) -> int | None:
    return None if chance(random, 0.6) else random.randrange(4)


def weighted(random: Random, table: Sequence[tuple[float, Any]]) -> Any:
    """Return one entry of (weight, value) pairs."""
    return random.choices([value for _, value in table], [weight for weight, _ in table])[0]
