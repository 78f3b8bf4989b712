"""Stack consecutive rows into batches, and take batches apart again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.position import Log, State, taken_up
from aiostream_data._engine.state_writer import BookWriter
from aiostream_data._engine.tail import Step
from aiostream_data.plan.operators import Batch
from aiostream_data.records import (
    Beside,
    Chunk,
    CutFrom,
    Items,
    Lineage,
    MadeOf,
    concat_lineages,
    last_ordinals,
    of_one_width,
    without_last_pair,
)
from aiostream_data.transforms import batching
from aiostream_data.transforms.unbatch import split_rows


@dataclass
class BatchStep(Step):
    """Running form of ``Batch``."""

    def __post_init__(self) -> None:
        node: Batch = self.node
        order = batching.BatchOrder(node.batch_size, node.drop_remainder)
        self._batcher = batching.Batcher(order, self.context.services.origins.describe, node.in_parts)
        self._held = self.context.services.budget.charge(0)
        self._batched = 0
        self._batched_nbytes = 0

    def push(self, chunk: Chunk) -> Chunk | None:
        nbytes = self._held.nbytes + chunk.nbytes
        batches = self._batcher.push(chunk, self.input_is_own)
        self._held.resize(self._batcher.nbytes)
        # What came in and is not carried over went out; asking every array for its size costs far more.
        self._batched_nbytes = max(0, nbytes - self._held.nbytes)
        return self._as_items(batches)

    def finish(self) -> Iterator[Chunk]:
        self._batched_nbytes = self._held.nbytes
        last = self._as_items(self._batcher.finish())
        self.dropped += self._batcher.dropped
        if last is not None:
            yield last

    def close(self) -> None:
        self._held.end()

    def nbytes_of(self, chunk: Chunk) -> int:
        return self._batched_nbytes

    def at(self, rows: int, book: BookWriter) -> State:
        return self.source.at(self._input_rows(rows), book)

    def forget(self, rows: int) -> None:
        self.source.forget(self._input_rows(rows))

    def resume(self, state: State) -> State:
        return state  # the rows of a batch that is not full yet have not been given, and are read again

    def _input_rows(self, batches: int) -> int:
        return min(batches * int(self.node.batch_size), self.rows_in)  # the last batch may be a smaller one

    async def recall(self, lineage: Lineage) -> Chunk:
        """Return batches, each of the rows that it is known to have been made of."""
        entries = lineage.made_of or []
        if len(entries) != len(lineage) or not all(_is_batch(entry) for entry in entries):
            raise ValueError("these ids do not say what the batches were made of")
        lineages = [entry if isinstance(entry, Lineage) else Lineage(entry) for entry in entries if entry is not None]
        rows = await self.context.recall(self.node.input, concat_lineages(lineages))
        order = batching.BatchOrder(max(map(len, lineages)))
        batches: list[batching.Batch] = []
        first = 0
        for part in lineages:
            batcher = batching.Batcher(order, self.context.services.origins.describe, self.node.in_parts)
            batches += batcher.push(rows.slice(first, first + len(part))) + batcher.finish()
            first += len(part)
        made = self._as_items(batches)
        assert made is not None
        return made

    def rows_accounted(self) -> int | None:
        return self._batched

    def _as_items(self, batches: list[batching.Batch]) -> Items | None:
        """Return batches as elements; each has the id of its first row, and those of all rows beside it."""
        if not batches:
            return None
        self._batched += sum(map(len, batches))
        first = np.concatenate(of_one_width([batch.ids[:1] for batch in batches]))
        return Items([batch.element for batch in batches], first, None, [batch.rows for batch in batches])


@dataclass
class UnbatchStep(Step):
    """Running form of ``Unbatch``."""

    def __post_init__(self) -> None:
        self._log: Log[tuple[int, list[int]]] = Log()
        self._skip = 0

    def push(self, chunk: Chunk) -> Chunk | None:
        rows, sizes = split_rows(chunk, self.context.services.origins.describe)
        cut = min(self._skip, len(rows))
        self._log.add(self.rows_out - self._skip, (self.rows_in - len(chunk), sizes))
        self._skip -= cut
        return rows.slice(cut, len(rows)) if cut else rows

    def at(self, rows: int, book: BookWriter) -> State:
        elements, skip = self._place(rows)
        return {"op": "unbatch", "skip": skip, "input": self.source.at(elements, book)}

    def forget(self, rows: int) -> None:
        self._log.forget(rows)
        self.source.forget(self._place(rows)[0])

    def resume(self, state: State) -> State:
        state = taken_up(state, "unbatch")
        self._skip = self._skipped = state["skip"]
        return state["input"]

    _skipped: int = 0

    def _place(self, rows: int) -> tuple[int, int]:
        """Return how many elements were used up with ``rows`` rows, and how many rows of the next one."""
        found = self._log.find(rows)
        if found is None:
            return 0, self._skipped
        start, (first, sizes) = found
        stops = np.cumsum(np.array([0, *sizes]))
        element = int(np.searchsorted(stops, rows - start, side="right")) - 1
        return first + element, rows - start - int(stops[element])

    async def recall(self, lineage: Lineage) -> Chunk:
        """Return rows, cut again out of the elements they were cut from."""
        index = last_ordinals(lineage.ids)
        elements, numbers = _elements_of(lineage)
        whole = await self.context.recall(self.node.input, elements)
        rows, sizes = split_rows(whole, self.context.services.origins.describe)
        firsts = np.cumsum(np.array([0, *sizes]))
        return rows.take(firsts[numbers] + index)

    def rows_accounted(self) -> int | None:
        return None


def _is_batch(entry: MadeOf | None) -> bool:
    return entry is not None and not isinstance(entry, (CutFrom, Beside))


def _elements_of(lineage: Lineage) -> tuple[Lineage, NDArray[np.int64]]:
    """Return the elements that rows were cut from, each once, and for every row which of them."""
    known: dict[Any, int] = {}
    elements: list[Lineage] = []
    numbers = np.empty(len(lineage), np.int64)
    plain = without_last_pair(lineage.ids)
    for row in range(len(lineage)):
        entry = lineage.of(row)
        key = id(entry) if isinstance(entry, CutFrom) else plain[row].tobytes()
        if key not in known:
            known[key] = len(elements)
            elements.append(
                Lineage(entry.ids, entry.made_of) if isinstance(entry, CutFrom) else Lineage(plain[row : row + 1])
            )
        numbers[row] = known[key]
    return concat_lineages(elements), numbers
