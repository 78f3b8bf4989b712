"""Leave out the rows that are another worker process's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from aiostream_data._engine.places import Place
from aiostream_data._engine.position import State
from aiostream_data._engine.state_writer import BookWriter
from aiostream_data._engine.tail import Step
from aiostream_data.plan.subprocess import WorkerShard
from aiostream_data.records import Chunk


@dataclass
class WorkerShardStep(Step):
    """Running form of ``WorkerShard``.

    Its place is that of its input, behind the block that the last row is in: the same for any number of workers.
    """

    def push(self, chunk: Chunk) -> Chunk | None:
        node: WorkerShard = self.node
        first = self.rows_in - len(chunk)
        blocks = np.arange(first, self.rows_in) // node.block
        mine = np.flatnonzero(blocks % node.workers == node.index)
        self.dropped += len(chunk) - len(mine)
        if not len(mine):
            return None
        start, stop = int(mine[0]), int(mine[-1]) + 1
        return chunk.slice(start, stop) if stop - start == len(mine) else chunk.take(mine)

    def at(self, rows: int, book: BookWriter) -> State:
        return self.source.at(self._input_rows(rows), book)

    def forget(self, rows: int) -> None:
        self.source.forget(self._input_rows(rows))

    def resume(self, state: State) -> State:
        return state

    @classmethod
    def schema(cls, place: Place) -> Iterator[Place]:
        yield place.of_input(place.part, rows=place.rows.or_more)

    def _input_rows(self, rows: int) -> int:
        """Return up to where the input goes of which ``rows`` rows are this worker's."""
        node: WorkerShard = self.node
        if rows == 0:
            return 0
        blocks, rest = divmod(rows - 1, node.block)
        return min((blocks * node.workers + node.index) * node.block + rest + 1, self.rows_in)
