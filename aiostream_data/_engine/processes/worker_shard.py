"""Leave out the rows that are another worker process's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from aiostream_data._engine.flow.fused_steps import Step
from aiostream_data._engine.resume.lineage_writer import BookWriter
from aiostream_data._engine.resume.places import Place
from aiostream_data._engine.resume.position import State, taken_up
from aiostream_data.plan.subprocess import LoaderShard, WorkerShard
from aiostream_data.rows.records import Chunk


@dataclass
class WorkerShardStep(Step):
    """Running form of ``WorkerShard``.

    Its place is that of its input, behind the block that the last row is in: the same for any number of workers.

    Attributes:
        begun: How many rows of the input came before the first that is pushed, in its round of all workers.
    """

    begun: int = 0

    def push(self, chunk: Chunk) -> Chunk | None:
        node: WorkerShard = self.node
        stop = self.begun + self.rows_in
        blocks = np.arange(stop - len(chunk), stop) // node.block
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
        of_before = min(node.block, max(0, self.begun - node.index * node.block))
        blocks, rest = divmod(of_before + rows - 1, node.block)
        return min((blocks * node.workers + node.index) * node.block + rest + 1 - self.begun, self.rows_in)


@dataclass
class LoaderShardStep(WorkerShardStep):
    """Running form of ``LoaderShard``.

    Its place says besides how far the round of all workers has come, as the next block may be another worker's.
    """

    kind: ClassVar[str] = "loader_shard"

    def at(self, rows: int, book: BookWriter) -> State:
        node: LoaderShard = self.node
        of_input = self._input_rows(rows)
        row = (self.begun + of_input) % (node.workers * node.block)
        return {"op": self.kind, "row": row, "input": self.source.at(of_input, book)}

    def resume(self, state: State) -> State:
        if state is None:
            return None
        found = taken_up(state, self.kind)
        self.begun = found["row"]
        return found["input"]

    @classmethod
    def schema(cls, place: Place) -> Iterator[Place]:
        fields = place.fields(cls.kind, "row", "input")
        if place.node is not None:
            fields["row"].integer(0, place.node.workers * place.node.block - 1)
        yield place.of_input(fields["input"], rows=place.rows.or_more)
