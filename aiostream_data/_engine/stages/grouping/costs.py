"""Batch consecutive rows, with a limit for the cost of each batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.calls.user_numbers import numbers_of
from aiostream_data._engine.resume.lineage_writer import BookWriter
from aiostream_data._engine.resume.places import Place
from aiostream_data._engine.resume.position import Log, State
from aiostream_data._engine.stages.grouping.group_step import GroupStep
from aiostream_data.errors import BatchCostError
from aiostream_data.plan.costs import CostBatch
from aiostream_data.rows.lineage import Lineage
from aiostream_data.rows.records import Chunk, Items
from aiostream_data.transforms.collate import DescribeRow
from aiostream_data.transforms.costed import CostOrder
from aiostream_data.transforms.grouping import as_elements, rows_of_groups, stack_rows
from aiostream_data.transforms.held_rows import HeldRows
from aiostream_data.transforms.lengths import leaf_numbers, leaves_of, row_lengths, structure_of_rows, the_only_length
from aiostream_data.transforms.padding import PaddingRule, pad_rows

Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Ends:
    """End positions of consecutive batches, counted in input rows.

    Attributes:
        first: Number of input rows up to the end of the preceding batch.
        stops: For each batch, the number of input rows up to the batch's end.
    """

    first: int
    stops: Numbers


@dataclass
class CostBatchStep(GroupStep):
    """Step of a ``CostBatch`` plan node: limits the cost of each batch.

    Batches contain consecutive rows and do not depend on earlier batches. The saved position is therefore the input
    position after the last emitted batch.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        node: CostBatch = self.node
        self._order = CostOrder(node.max_cost, node.padded, node.batch_size, node.drop_remainder)
        limit = self.context.services.budget.limit
        self._rule = PaddingRule(node.padded_shapes, node.padding_values, limit=limit)
        self._ends: Log[_Ends] = Log()
        self._given = 0
        self._last_end = 0
        self._skipped = 0

    def push(self, chunk: Chunk) -> Chunk | None:
        costs = self._costs(chunk)
        rows = self._admitted(chunk, costs)
        self.lend(chunk)
        made = self._elements(self._rows, self._order.push(self.rows_in - len(chunk) + rows, costs[rows]))
        self.dropped = self._skipped
        self.keep(self._order.held())
        self.check_memory()
        return made

    def finish(self) -> Iterator[Chunk]:
        last = self._elements(self._rows, self._order.finish())
        if last is not None:
            yield last
        self.dropped = self._skipped + self._order.dropped
        self.keep(self._order.held())

    def at(self, rows: int, book: BookWriter) -> State:
        return self.source.at(self._input_rows(rows), book)

    def forget(self, rows: int) -> None:
        self._ends.forget(rows)
        self.source.forget(self._input_rows(rows))

    def resume(self, state: State) -> State:
        return state

    @classmethod
    def schema(cls, place: Place) -> Iterator[Place]:
        yield place.of_input(place.part, rows=place.rows.or_more)

    async def recall(self, lineage: Lineage) -> Chunk:
        made = self._stacked(*await self.recall_groups(lineage))
        assert made is not None
        return made

    def rows_accounted(self) -> int | None:
        return self._order.given

    def _costs(self, chunk: Chunk) -> Numbers:
        """Return the cost of each row. If a leaf is padded to a fixed length, each cost is at least that length."""
        node: CostBatch = self.node
        describe = self.context.services.origins.describe
        if callable(node.cost):
            return numbers_of(node.cost, chunk, "cost", describe, least=0)
        name = the_only_length(chunk) if node.cost is None else node.cost
        costs = row_lengths(leaves_of(chunk, (name,)), lambda row: describe(chunk.ids, row))
        structure = structure_of_rows(chunk)
        shape = self._rule.leaves(structure)[leaf_numbers(structure, (name,))[0]].shape
        return costs if not shape or shape[0] is None else np.maximum(costs, shape[0])

    def _admitted(self, chunk: Chunk, costs: Numbers) -> Numbers:
        """Apply the ``on_too_large`` policy to rows that cost more than ``max_cost``.

        Return the indices of the rows that are batched.
        """
        node: CostBatch = self.node
        too_large = costs > node.max_cost
        if node.on_too_large == "raise" and too_large.any():
            row = int(too_large.argmax())
            raise BatchCostError(self.context.services.origins.describe(chunk.ids, row), int(costs[row]), node.max_cost)
        if node.on_too_large == "alone":
            return np.arange(len(chunk))
        self._skipped += int(np.count_nonzero(too_large))
        return np.flatnonzero(~too_large)

    def _input_rows(self, batches: int) -> int:
        """Return the number of input rows up to the end of the first ``batches`` batches."""
        found = self._ends.find(batches)
        if found is None:
            return 0
        start, ends = found
        return ends.first if batches == start else int(ends.stops[batches - start - 1])

    def _elements(self, rows: HeldRows, batches: Sequence[Numbers]) -> Items | None:
        """Build one element per batch, and record the end of each batch in the log."""
        if batches:
            ends = _Ends(self._last_end, np.array([batch[-1] + 1 for batch in batches], np.int64))
            self._ends.add(self._given, ends)
            self._given += len(batches)
            self._last_end = int(ends.stops[-1])
        return self._stacked(rows, batches)

    def _stacked(self, rows: HeldRows, batches: Sequence[Numbers]) -> Items | None:
        make = self._padded if self.node.padded else stack_rows
        made = [(part, make) for part in rows_of_groups(rows, batches)]
        return as_elements(made, self.context.services.origins.describe)

    def _padded(self, rows: Chunk, describe: DescribeRow) -> Any:
        return pad_rows(rows, self._rule, describe)
