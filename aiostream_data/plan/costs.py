"""The node that puts rows into batches by what they cost, and what is known of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, get_args

from aiostream_data.plan.base import INFINITE, UNKNOWN, Operator
from aiostream_data.plan.cardinality import cardinality
from aiostream_data.plan.spec import Spec, spec_of
from aiostream_data.plan.windows import padded_spec, stacked_spec
from aiostream_data.plan.written import call_arguments

TooLarge: TypeAlias = Literal["raise", "skip", "alone"]
"""What becomes of an element that alone costs more than a batch may."""

TOO_LARGE: Final = get_args(TooLarge)


@dataclass(frozen=True, eq=False, kw_only=True)
class CostBatch(Operator):
    """Consecutive elements stacked into batches that never cost more than ``max_cost``.

    Attributes:
        cost: Tells what an element costs, or is the name of the leaf whose length is the cost; None for the only
            leaf that has one.
        padded: Short rows are filled up, and a batch costs its rows times the largest cost among them; else they
            are stacked as ``batch`` does, and it costs the sum.
        padded_shapes, padding_values: As the user gave them.
        on_too_large: What becomes of an element that alone costs more.
        batch_size: The most rows of a batch; None for any number.
    """

    max_cost: int
    cost: Callable[..., int] | str | None = None
    padded: bool = True
    padded_shapes: Any = None
    padding_values: Any = None
    on_too_large: TooLarge = "raise"
    batch_size: int | None = None
    drop_remainder: bool = False

    @property
    def label(self) -> str:
        return "batch_by_cost"

    @property
    def method(self) -> str:
        return "batch"

    def detail(self) -> str:
        return call_arguments(
            *(() if self.batch_size is None else (self.batch_size,)),
            max_cost=(self.max_cost, None),
            cost=(self.cost, None),
            padded=(self.padded, True),
            padded_shapes=(self.padded_shapes, None),
            padding_values=(self.padding_values, None),
            on_too_large=(self.on_too_large, "raise"),
            drop_remainder=(self.drop_remainder, False),
        )


@spec_of.register
def _(node: CostBatch) -> Spec:
    return padded_spec(node, node.padded_shapes, None) if node.padded else stacked_spec(node, None)


@cardinality.register
def _(node: CostBatch) -> int:
    rows = cardinality(node.input)
    return rows if rows in (0, INFINITE) else UNKNOWN
