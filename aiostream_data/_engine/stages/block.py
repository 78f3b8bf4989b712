"""Discard rows and shards that the user has blocked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.flow.stage import Stage
from aiostream_data._engine.flow.stage_io import Inlet, Outlet
from aiostream_data._engine.resume.kept_log import KeptLog
from aiostream_data._engine.resume.lineage_writer import BookWriter
from aiostream_data._engine.resume.places import Place
from aiostream_data._engine.resume.position import State
from aiostream_data.plan.blocked_rows import Block, blocked_name
from aiostream_data.rows.id_arrays import SPLIT_BITS
from aiostream_data.rows.records import Chunk
from aiostream_data.rows.row_ids import RowIds


@dataclass
class BlockStage(Stage):
    """Stage of a ``Block`` plan node: discards blocked rows."""

    def __post_init__(self) -> None:
        self._log = KeptLog()
        self._indices: dict[int, NDArray[np.int64] | None] = {}

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        async for chunk in inlets[0]:
            piece = self._log.begin(len(chunk))
            kept = np.flatnonzero(~self._blocked(chunk.ids))
            piece.kept = kept
            outlet.drop(len(chunk) - len(kept))
            await outlet.send(chunk if len(kept) == len(chunk) else await self.hop(_taken, chunk, kept))

    def rows_accounted(self, outlet: Outlet) -> int | None:
        return outlet.rows

    def at(self, rows: int, book: BookWriter) -> State:
        return self.inputs[0].at(self._log.input_rows(rows), book)

    def forget(self, rows: int) -> None:
        self.inputs[0].forget(self._log.input_rows(rows))
        self._log.forget(rows)

    @classmethod
    def schema(cls, place: Place) -> Iterator[Place]:
        yield place.of_input(place.part, rows=place.rows.or_more)

    def _blocked(self, ids: RowIds) -> NDArray[np.bool_]:
        """Return a boolean mask of the rows that were made from at least one blocked source row."""
        blocked = np.zeros(len(ids), bool)
        for pair in ids.pairs():
            for split in np.unique(pair.splits).tolist():
                if split >> SPLIT_BITS > 0:
                    indices = self._indices_of(split)
                    rows = pair.splits == split
                    if indices is None:
                        blocked |= rows
                    elif len(indices):
                        blocked |= rows & np.isin(pair.ordinals, indices)
        return blocked

    def _indices_of(self, split: int) -> NDArray[np.int64] | None:
        """Return the blocked row numbers of a shard, or None if all rows of the shard are blocked."""
        if split not in self._indices:
            node: Block = self.node
            name = blocked_name(self.context.services.origins.url_and_index(split, 0)[0])
            found = [index for blocked, index in node.blocked.rows if blocked == name]
            self._indices[split] = None if name in node.blocked.shards else np.array(sorted(found), np.int64)
        return self._indices[split]


def _taken(chunk: Chunk, rows: NDArray[np.int64]) -> Chunk:
    return chunk.take(rows).with_lease(chunk.lease)
