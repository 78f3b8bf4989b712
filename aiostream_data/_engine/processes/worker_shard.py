"""Discard the rows that other worker processes emit."""

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
    """Step that runs a ``WorkerShard`` node: it keeps only the rows of this worker.

    The saved position is the position of the step's input, so it does not depend on the number of workers.

    Attributes:
        begun: Number of input rows that precede the first pushed row in the current round (one block of rows per
            worker).
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
        """Return the number of input rows that this worker needs for its first ``rows`` output rows."""
        node: WorkerShard = self.node
        if rows == 0:
            return 0
        of_before = min(node.block, max(0, self.begun - node.index * node.block))
        blocks, rest = divmod(of_before + rows - 1, node.block)
        return min((blocks * node.workers + node.index) * node.block + rest + 1 - self.begun, self.rows_in)


@dataclass
class LoaderShardStep(WorkerShardStep):
    """Step that runs a ``LoaderShard`` node: it keeps only the rows of this worker.

    The saved position also stores the progress within the current round (one block of rows per worker). The next block
    of rows can belong to another worker.
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
