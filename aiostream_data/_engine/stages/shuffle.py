"""Give rows in random order out of a bounded buffer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from aiostream_data._engine.pacing import rows_of_a_chunk
from aiostream_data._engine.tail import Step
from aiostream_data.errors import MemoryBudgetError
from aiostream_data.plan.operators import Shuffle
from aiostream_data.records import Chunk
from aiostream_data.transforms.shuffle import ShuffleBuffer, ShuffleOrder


@dataclass
class ShuffleStep(Step):
    """Running form of ``Shuffle``."""

    makes_own_rows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        node: Shuffle = self.node
        epoch = self.context.epoch if node.reshuffle_each_iteration else 0
        self._buffer = ShuffleBuffer(
            ShuffleOrder(node.buffer_size, self.context.key(node, node.seed, "shuffle", epoch))
        )
        self._budget = self.context.services.budget
        self._held = self._budget.charge(0)

    def push(self, chunk: Chunk) -> Chunk | None:
        shuffled = self._buffer.push(chunk)
        self._held.resize(self._buffer.nbytes)
        self._check_fits(len(self._buffer), self._buffer.nbytes, self._budget.limit)
        return shuffled

    def finish(self) -> Iterator[Chunk]:
        rows_at_once = rows_of_a_chunk(len(self._buffer), self._buffer.nbytes)
        while (shuffled := self._buffer.drain(rows_at_once)) is not None:
            self._held.resize(self._buffer.nbytes)
            yield shuffled

    def close(self) -> None:
        self._held.end()

    def _check_fits(self, rows: int, nbytes: int, limit: int) -> None:
        if nbytes > limit and rows < self.node.buffer_size:
            raise MemoryBudgetError(
                f"shuffle({self.node.buffer_size}) already holds {nbytes} bytes in {rows} rows, more than the memory "
                f"limit of {limit} bytes; use a smaller buffer_size, shuffle before decoding, or open the data set "
                "with a larger memory_limit"
            )
