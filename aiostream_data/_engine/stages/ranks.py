"""Distribute the rows of one global order among ranks, and mark padding rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.flow.fused_steps import RowForRowStep, Step
from aiostream_data._engine.resume.lineage_writer import BookWriter
from aiostream_data._engine.resume.places import Place
from aiostream_data._engine.resume.position import State
from aiostream_data.plan.rank_nodes import MarkPadding, RankShard
from aiostream_data.ranks.padding import (
    as_padding,
    batches_with_marks,
    marked,
    padding_of,
    with_marks,
    without_padding,
)
from aiostream_data.rows.lineage import Lineage
from aiostream_data.rows.records import Chunk, gather
from aiostream_data.transforms.rank_rows import RankOrder


@dataclass
class RankShardStep(Step):
    """Step of a ``RankShard`` plan node: keeps the rows of this rank.

    The saved position is the input position after the last complete group of rows. The saved position is therefore the
    same on every rank, and for any number of ranks.
    """

    makes_own_rows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        node: RankShard = self.node
        self._order = RankOrder(node.rank, node.world_size, node.tail)
        self._held: Chunk | None = None
        self._charge = self.context.services.budget.charge(0, "ranks")
        self._fillers = 0

    def push(self, chunk: Chunk) -> Chunk | None:
        held = 0 if self._held is None else len(self._held)
        share = self._order.push(len(chunk))
        given = self._picked(chunk, share.give) if len(share.give) else None
        if not np.array_equal(share.hold, np.arange(held)):
            self._hold(self._picked(chunk, share.hold) if len(share.hold) else None)
        self.dropped += held + len(chunk) - len(share.give) - len(share.hold)
        return given

    def finish(self) -> Iterator[Chunk]:
        last = self._order.finish()
        held, self._held = self._held, None
        self.dropped += 0 if held is None else len(held)
        if held is None or last.give is None:
            return
        row = held.slice(last.give, last.give + 1)
        if last.is_filler:
            self._fillers += 1
        else:
            self.dropped -= 1
        yield as_padding(row) if last.is_filler and self.node.tail == "pad" else row

    def close(self) -> None:
        self._held = None
        self._charge.end()

    def at(self, rows: int, book: BookWriter) -> State:
        return self.source.at(self._order.input_rows(rows, self.rows_in), book)

    def forget(self, rows: int) -> None:
        self.source.forget(self._order.input_rows(rows, self.rows_in))

    def resume(self, state: State) -> State:
        self._order.restore({"seen": self.node.world_size})  # a saved state implies at least one row per rank
        return state

    @classmethod
    def schema(cls, place: Place) -> Iterator[Place]:
        yield place.of_input(place.part, rows=place.rows.of_all_ranks)

    async def recall(self, lineage: Lineage) -> Chunk:
        """Recompute rows of any rank. Padding rows keep their padding mark."""
        plain = Lineage(without_padding(lineage.ids), lineage.made_of)
        return marked(await self.context.recall(self.node.input, plain), padding_of(lineage.ids))

    def rows_accounted(self) -> int:
        return self.rows_out - self._fillers

    def _picked(self, chunk: Chunk, rows: NDArray[np.int64]) -> Chunk:
        """Concatenate the buffered rows and ``chunk``, and copy the rows with the given numbers."""
        if self._held is None:
            return gather([chunk], np.zeros(len(rows), np.int32), rows)
        held = len(self._held)
        which = (rows >= held).astype(np.int32)
        return gather([self._held, chunk], which, rows - held * which)

    def _hold(self, rows: Chunk | None) -> None:
        self._held = rows
        self._charge.resize(0 if rows is None else rows.nbytes)


@dataclass
class MarkPaddingStep(RowForRowStep):
    """Step of a ``MarkPadding`` plan node: marks padding rows."""

    def push(self, chunk: Chunk) -> Chunk:
        node: MarkPadding = self.node
        return batches_with_marks(chunk) if node.batches else with_marks(chunk)

    async def recall(self, lineage: Lineage) -> Chunk:
        return self.push(await self.context.recall(self.node.input, lineage))
