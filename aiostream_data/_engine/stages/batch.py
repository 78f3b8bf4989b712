"""Stack consecutive rows into batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from aiostream_data._engine.failures.carried_error import PartlyDone
from aiostream_data._engine.flow.fused_steps import Step
from aiostream_data._engine.resume.lineage_writer import BookWriter
from aiostream_data._engine.resume.places import Place, Rows
from aiostream_data._engine.resume.position import State
from aiostream_data.errors import StateMismatchError
from aiostream_data.plan.operators import Batch
from aiostream_data.rows.lineage import Beside, CutFrom, Lineage, MadeOf, concat_lineages
from aiostream_data.rows.records import Chunk, Items
from aiostream_data.rows.row_ids import OTHER_PIPELINE
from aiostream_data.state_fields import MAX_COUNT
from aiostream_data.transforms import batching


@dataclass
class BatchStep(Step):
    """Step of a ``Batch`` plan node: stacks rows into batches."""

    def __post_init__(self) -> None:
        node: Batch = self.node
        order = batching.BatchOrder(node.batch_size, node.drop_remainder)
        self._batcher = self._new_batcher(order)
        self._held = self.context.services.budget.charge(0, node.label)
        self._batched = 0
        self._batched_nbytes = 0

    def push(self, chunk: Chunk) -> Chunk | None:
        nbytes = self._held.nbytes + chunk.nbytes
        try:
            batches = self._batcher.push(chunk, self.input_is_own)
        except Exception as error:
            raise PartlyDone(self._as_items(self._batcher.batches), error) from error
        self._held.resize(self._batcher.nbytes)
        # Emitted bytes = input bytes minus held bytes; measuring every array would cost far more.
        self._batched_nbytes = max(0, nbytes - self._held.nbytes)
        return self._as_items(batches)

    def finish(self) -> Iterator[Chunk]:
        self._batched_nbytes = self._held.nbytes
        last = self._as_items(self._batcher.finish())
        self.dropped += self._batcher.dropped
        if last is not None:
            yield last

    def close(self) -> None:
        self._batcher.drop()
        self._held.end()

    def nbytes_of(self, chunk: Chunk) -> int:
        return self._batched_nbytes

    def at(self, rows: int, book: BookWriter) -> State:
        return self.source.at(self._input_rows(rows), book)

    def forget(self, rows: int) -> None:
        self.source.forget(self._input_rows(rows))

    def resume(self, state: State) -> State:
        return state  # rows of an incomplete batch are read again

    @classmethod
    def schema(cls, place: Place) -> Iterator[Place]:
        size, (least, most) = place.node.batch_size, place.rows
        of_input = Rows((least - 1) * size + 1 if least else 0, min(MAX_COUNT, most * size))
        yield place.of_input(place.part, rows=of_input)

    def _input_rows(self, batches: int) -> int:
        return min(batches * int(self.node.batch_size), self.rows_in)  # the last batch may be smaller

    async def recall(self, lineage: Lineage) -> Chunk:
        """Recompute batches from the rows that the batches' lineage lists."""
        entries = lineage.made_of or []
        if len(entries) != len(lineage) or not all(_is_batch(entry) for entry in entries):
            raise StateMismatchError(["the row ids do not list the rows of the batches"], OTHER_PIPELINE)
        lineages = [entry if isinstance(entry, Lineage) else Lineage(entry) for entry in entries if entry is not None]
        rows = await self.context.recall(self.node.input, concat_lineages(lineages))
        order = batching.BatchOrder(max(map(len, lineages)))
        batches: list[batching.FullBatch] = []
        first = 0
        for part in lineages:
            batcher = self._new_batcher(order)
            batches += batcher.push(rows.slice(first, first + len(part))) + batcher.finish()
            first += len(part)
        made = self._as_items(batches)
        assert made is not None
        return made.with_made_of(made.made_of)  # resets the runs, which belong only to the last batch

    def _new_batcher(self, order: batching.BatchOrder) -> batching.Batcher:
        node: Batch = self.node
        services = self.context.services
        return batching.Batcher(
            order,
            services.origins.describe,
            node.parts_from,
            node.strings or "objects",
            services.blocks,
            services.budget.limit,
        )

    def rows_accounted(self) -> int | None:
        return self._batched

    def _as_items(self, batches: list[batching.FullBatch]) -> Items | None:
        """Return batches as elements; see :func:`.batching.as_items`."""
        self._batched += sum(map(len, batches))
        return batching.as_items(batches, self._batcher.runs)


def _is_batch(entry: MadeOf | None) -> bool:
    return entry is not None and not isinstance(entry, (CutFrom, Beside))
