"""Node of ``batch(collate=...)``: a user function makes each batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aiostream_data.plan.base import Operator
from aiostream_data.plan.cardinality import batches_of_rows, cardinality
from aiostream_data.plan.written import call_arguments


@dataclass(frozen=True, eq=False, kw_only=True)
class CollatedBatch(Operator):
    """Node that emits ``collate(elements)`` for each ``batch_size`` consecutive elements."""

    batch_size: int
    collate: Callable[[list[Any]], Any]
    drop_remainder: bool = False

    @property
    def label(self) -> str:
        return "batch"

    def detail(self) -> str:
        return call_arguments(
            self.batch_size, collate=(self.collate, None), drop_remainder=(self.drop_remainder, False)
        )


@cardinality.register
def _(node: CollatedBatch) -> int:
    return batches_of_rows(cardinality(node.input), node.batch_size, drop_remainder=node.drop_remainder)
