"""Shuffle rows with a bounded buffer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from aiostream_data._engine.flow.chunk_sizes import most_chunk_nbytes, rows_of_a_chunk
from aiostream_data._engine.flow.context import hop
from aiostream_data._engine.flow.fused_steps import Step
from aiostream_data._engine.resume.lineage_writer import BookWriter
from aiostream_data._engine.resume.places import Place
from aiostream_data._engine.resume.position import State
from aiostream_data._engine.resume.shuffle_resume import ShufflePosition, input_place
from aiostream_data._engine.sources.listed_shards import gains_rows
from aiostream_data.errors import MemoryBudgetError, StateMismatchError
from aiostream_data.metrics.counters import ON_DISK, PEAK_ON_DISK
from aiostream_data.plan.operators import AUTO_BUFFER_NBYTES, Shuffle
from aiostream_data.rows.lineage import Lineage
from aiostream_data.rows.records import Chunk, lineage_of
from aiostream_data.transforms.shuffle_buffer import ShuffleBuffer, ShuffleOrder
from aiostream_data.transforms.spilled_slots import Spill

FIRST_PIECE_ROWS = 64
"""Number of rows to recompute first when refilling a large shuffle buffer. The stage measures their size."""


@dataclass
class ShuffleStep(Step):
    """Step of a ``Shuffle`` plan node: shuffles rows with a buffer."""

    kind: ClassVar[str] = "shuffle"
    makes_own_rows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        node: Shuffle = self.node
        epoch = self.context.epoch if node.reshuffle_each_iteration else 0
        order = ShuffleOrder(node.buffer_rows, self.context.key(node, node.seed, "shuffle", epoch), node.growing)
        self._budget = self.context.services.budget
        folder = node.spill_folder
        spill = None if folder is None else Spill.within(folder, self._budget.limit)
        self._buffer = ShuffleBuffer(order, AUTO_BUFFER_NBYTES if node.growing else None, spill)
        self._position = ShufflePosition(self._buffer)
        self._on_disk = 0
        self._held = self._budget.charge(0, "shuffle")
        self._passes_nbytes = 0  # size of a row that may exceed the limit

    def push(self, chunk: Chunk) -> Chunk | None:
        if self._buffer.order.drained:
            raise StateMismatchError(
                [f"shuffle() had received all {self._buffer.order.pushed:,} rows of its input, and now it has more"],
                "If rows were appended to a file, remove them until the next epoch begins, or write them into a new "
                'file and pass allow=["shards"].',
                head="cannot resume with these rows:",
            )
        self._position.push(lineage_of(chunk))
        # Reserve twice the size: variable-length columns over-allocate by up to 100 %.
        self._passes_nbytes = max(self._passes_nbytes, 2 * self._budget.passes(chunk))
        shuffled = self._buffer.push(chunk)
        self._note_held()
        self._check_fits(len(self._buffer), self._buffer.nbytes, self._budget.limit)
        return shuffled

    def finish(self) -> Iterator[Chunk]:
        rows_at_once = self._rows_of_a_chunk(len(self._buffer), self._buffer.rows_nbytes)
        while (shuffled := self._buffer.drain(rows_at_once)) is not None:
            self._note_held()
            yield shuffled

    def _rows_of_a_chunk(self, rows: int, nbytes: int) -> int:
        """Return the number of rows per chunk while draining the buffer.

        Rows in the spill file need new memory when they are read back.
        """
        at_once = rows_of_a_chunk(rows, nbytes, most_chunk_nbytes(self._budget.limit))
        if not self._buffer.nbytes_on_disk:
            return at_once
        return max(1, min(at_once, self._budget.channel_nbytes * rows // max(1, nbytes)))

    def close(self) -> None:
        self._buffer.drop()
        self._note_held()

    def at(self, rows: int, book: BookWriter) -> State:
        return self._position.at(rows, self.source, book)

    def forget(self, rows: int) -> None:
        self._position.forget(rows, self.source)

    def resume(self, state: State) -> State:
        more_follow = gains_rows(self.context, self.node.input)
        return self._position.resume(state, self.context.services.book, rows_follow=more_follow)

    @classmethod
    def schema(cls, place: Place) -> Iterator[Place]:
        yield input_place(place)

    async def refill(self) -> None:
        state, rows_held = self._position.state, self._position.rows_held
        if state is None:
            return
        if self._buffer.spill is None:
            await self._hop(self._buffer.restore, state, [await self._recalled(rows_held)])
        else:
            await self._refill_in_pieces(state, rows_held, self._buffer.spill.memory_nbytes)
        self._note_held()
        self.rows_in += len(rows_held)

    async def _refill_in_pieces(self, state: State, rows_held: Lineage, most_nbytes: int) -> None:
        """Recompute the buffered rows in reading order, in pieces of about ``most_nbytes`` bytes each."""
        order = rows_held.ids.order()
        await self._hop(self._buffer.begin_restore, state, order)
        first, rows = 0, FIRST_PIECE_ROWS
        while first < len(order):
            piece = await self._recalled(rows_held.take(order[first : first + rows]))
            await self._hop(self._buffer.give_back, piece)
            self._note_held()
            first += len(piece)
            rows = max(1, min(8 * rows, most_nbytes * len(piece) // max(1, piece.nbytes)))
        await self._hop(self._buffer.end_restore)

    def _recalled(self, lineage: Lineage) -> Awaitable[Chunk]:
        return self.context.recall(self.node.input, lineage)

    async def _hop(self, work: Callable[..., None], *args: Any) -> None:
        await hop(self.counters, self.context.services.pool.submit(work, *args))

    def _note_held(self) -> None:
        """Report the memory used by the buffered rows and the size of the spill file."""
        self._held.resize(self._buffer.nbytes)
        on_disk = self._buffer.nbytes_on_disk
        if on_disk != self._on_disk:
            extra = self.counters.extra
            now = extra.get(ON_DISK, 0) + on_disk - self._on_disk
            extra[ON_DISK], extra[PEAK_ON_DISK] = now, max(now, extra.get(PEAK_ON_DISK, 0))
            self._on_disk = on_disk

    def _check_fits(self, rows: int, nbytes: int, limit: int) -> None:
        if nbytes > limit + self._passes_nbytes and rows < self._buffer.order.buffer_size:
            raise MemoryBudgetError(
                f"cannot fill the buffer of shuffle({self.node.buffer_size!r}): {rows} rows already take {nbytes} "
                f"bytes, more than the memory limit of {limit} bytes. Use a smaller buffer_size, shuffle "
                "before decoding, or open the dataset with a larger memory_limit."
            )
