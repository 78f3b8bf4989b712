"""Stages for sources that never end. Each row depends only on its number, so that a run can start at any row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.flow.stage import NumberedRows
from aiostream_data._engine.flow.stage_io import Inlet, Outlet
from aiostream_data._engine.resume.origins import Namespace, always, local
from aiostream_data._engine.sources.memory_rows import row_spans
from aiostream_data.errors import CardinalityError
from aiostream_data.plan.endless import Counter, Random
from aiostream_data.rows.lineage import Lineage
from aiostream_data.rows.records import Chunk, Columns
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.rows.structure import LEAF
from aiostream_data.transforms.randomness import draws_below

_NUMBER_NBYTES = 8


@dataclass
class EndlessSource(NumberedRows):
    """Base class of stages that compute int64 numbers from row numbers."""

    @property
    def rows(self) -> float:
        """Number of rows that have an element; infinite by default."""
        return inf

    def numbers(self, start: int, stop: int) -> NDArray[np.int64]:
        """Return the elements of the rows ``start`` to ``stop`` (exclusive)."""
        raise NotImplementedError

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        for start, stop in row_spans(self.rows, _NUMBER_NBYTES, self._first):
            await outlet.send_work(self._chunk, start, stop)
        raise self._end_of_numbers()

    async def recall(self, lineage: Lineage) -> Chunk:
        _, ordinals = local(lineage.ids)
        rows = ordinals.tolist()
        if max(rows) >= self.rows:
            raise self._end_of_numbers()
        found = np.concatenate([self.numbers(row, row + 1) for row in rows])
        return Columns(LEAF, (found,), RowIds.of_source(self._namespace().base, ordinals))

    def _chunk(self, start: int, stop: int) -> Chunk:
        return Columns(LEAF, (self.numbers(start, stop),), RowIds.run(self._namespace().base, start, stop - start))

    def _end_of_numbers(self) -> CardinalityError:
        return CardinalityError(
            f"{self.node.label}() cannot emit element {self.rows:.0f}, because it exceeds int64. "
            f"Add take({self.rows:.0f}), or use a smaller step."
        )

    def _namespace(self) -> Namespace:
        return self.context.namespace(self.node, always(str(self.node.label)))


@dataclass
class CounterSource(EndlessSource):
    """Stage of a ``Counter`` plan node."""

    @property
    def rows(self) -> float:
        node: Counter = self.node
        return node.fitting

    def numbers(self, start: int, stop: int) -> NDArray[np.int64]:
        node: Counter = self.node
        first = node.start + start * node.step  # a Python int, which cannot overflow
        return first + np.arange(stop - start, dtype=np.int64) * np.int64(node.step)


@dataclass
class RandomSource(EndlessSource):
    """Stage of a ``Random`` plan node."""

    def __post_init__(self) -> None:
        node: Random = self.node
        epoch = self.context.epoch if node.rerandomize_each_iteration else 0
        self._key = self.context.key(node, node.seed, "random", epoch)

    def numbers(self, start: int, stop: int) -> NDArray[np.int64]:
        return draws_below(self._key, start, 1 << 32, stop - start)
