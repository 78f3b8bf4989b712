"""Emit all rows of an in-memory source in random order, without a shuffle buffer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from aiostream_data._engine.flow.context import RunContext
from aiostream_data._engine.resume.origins import Namespace
from aiostream_data._engine.sources.memory_rows import (
    SHORT_ROWS,
    epochs_of,
    long_spans,
    rows_of,
    short_spans,
)
from aiostream_data.plan.sources import Range, TensorSlices
from aiostream_data.rows.records import Chunk
from aiostream_data.transforms.permutation import IndexPermutation

MOST_REPETITIONS: Final = 64
"""Maximum number of repetitions of a short source in one chunk, because each needs a random order of its own."""


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

    def parts(self, skip: int) -> Iterator[tuple[int, int]]:
        """Yield the row range (start, stop) of every chunk, counted over all repetitions, from row ``skip`` on."""
        rows = self.node.rows
        if 0 < rows < SHORT_ROWS:
            for start, stop in short_spans(self.node, skip):
                for part in range(start, stop, MOST_REPETITIONS * rows):
                    yield part, min(part + MOST_REPETITIONS * rows, stop)
            return
        for repetition, start, stop in long_spans(self.node, skip):
            yield repetition * rows + start, repetition * rows + stop

    def chunk(self, start: int, stop: int) -> Chunk:
        """Return rows ``start`` to ``stop``, counted over all repetitions. Each repetition has its own random order."""
        rows = self.node.rows
        ordinals = []
        for repetition in range(start // rows, (stop - 1) // rows + 1):
            first = repetition * rows
            ordinals.append(self._order_of(repetition).slice(max(start - first, 0), min(stop - first, rows)))
        splits = np.arange(start, stop) // rows
        return rows_of(self.node, self.namespace, splits, np.concatenate(ordinals))

    def _order_of(self, repetition: int) -> IndexPermutation:
        if self._order is None or self._repetition != repetition:
            self._order = IndexPermutation(self._key(repetition), self.node.rows)
            self._repetition = repetition
        return self._order

    def _key(self, repetition: int) -> np.uint64:
        order = self.node.permuted
        assert order is not None
        # Use the epoch number that the repetition would have in a repeat() that is not folded into the source.
        epoch = self.context.epoch * epochs_of(self.node) + repetition
        return self.context.key(self.node, order.seed, "permutation", epoch if order.reshuffle else 0)
