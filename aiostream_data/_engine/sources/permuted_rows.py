"""Emit all rows of an in-memory source in random order, without a shuffle buffer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from aiostream_data._engine.flow.context import RunContext
from aiostream_data._engine.resume.origins import Namespace
from aiostream_data._engine.sources.memory_rows import repetitions, rows_of, rows_per_split, spans
from aiostream_data.plan.operators import ENDLESS
from aiostream_data.plan.sources import Range, TensorSlices
from aiostream_data.rows.records import Chunk
from aiostream_data.transforms.permutation import IndexPermutation


@dataclass
class PermutedRows:
    """Generator of chunks from an in-memory source in random order.

    This class is not thread-safe: use it from one thread at a time.
    """

    node: TensorSlices | Range
    context: RunContext
    namespace: Namespace
    _repetition: int = -1
    _order: IndexPermutation | None = None

    def parts(self, skip: int) -> Iterator[tuple[int, int, int]]:
        """Yield the repetition number and the row range (start, stop) of every chunk, from row ``skip`` on."""
        node = self.node
        rows = rows_per_split(node)
        first, row = divmod(skip, max(1, rows))
        for repetition in repetitions(self.node.times if rows else 0, first):
            for start, stop in spans(node, row):
                yield repetition, start, stop
            row = 0

    def chunk(self, repetition: int, start: int, stop: int) -> Chunk:
        """Return rows ``start`` to ``stop`` in the random order of one repetition."""
        if self._order is None or self._repetition != repetition:
            self._order = IndexPermutation(self._key(repetition), rows_per_split(self.node))
            self._repetition = repetition
        ordinals = self._order.slice(start, stop)
        return rows_of(self.node, self.namespace, np.full(len(ordinals), repetition), ordinals)

    def _key(self, repetition: int) -> np.uint64:
        order = self.node.permuted
        assert order is not None
        # Use the epoch number that the repetition would have in a repeat() that is not folded into the source.
        times = ENDLESS if self.node.times is None else self.node.times
        epoch = self.context.epoch * times + repetition
        return self.context.key(self.node, order.seed, "permutation", epoch if order.reshuffle else 0)
