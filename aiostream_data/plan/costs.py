"""Node for batching by cost, with the node's element spec and cardinality."""

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
"""Names of the ways to handle an element that exceeds the maximum cost of a batch. With "alone", an element that
exceeds the maximum forms a batch of its own."""

TOO_LARGE: Final = get_args(TooLarge)


@dataclass(frozen=True, eq=False, kw_only=True)
class CostBatch(Operator):
    """Node that makes batches of consecutive elements and limits the cost of each batch.

    Attributes:
        max_cost: Maximum cost of a batch.
        cost: Function that returns the cost of an element, or name of the leaf (array) whose length is the cost.
            ``cost=None`` selects the only leaf that has a length.
        padded: If True, rows are padded, and a batch costs its number of rows times its largest row cost. If False,
            rows are stacked as by ``batch``, and a batch costs the sum of its row costs.
        padded_shapes, padding_values: Arguments from the user's call.
        on_too_large: Way to handle a single element that exceeds ``max_cost``.
        batch_size: Maximum number of rows per batch; None for no limit.
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
