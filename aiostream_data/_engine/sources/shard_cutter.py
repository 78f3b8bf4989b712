"""Split the byte ranges of one shard into records, and decode the records. Runs on worker threads.

Each chunk of records holds memory leases: on the block that contains its rows, and on its own index, ids and arrays.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.failures.shard_losses import MOST_AT_ONCE
from aiostream_data._engine.flow.chunk_sizes import CHUNK_ROWS, most_chunk_nbytes, rows_of_a_slice
from aiostream_data._engine.flow.first_failing_row import leading
from aiostream_data._engine.flow.sizes import chunk_nbytes
from aiostream_data._engine.flow.step_sizes import ROW_NBYTES
from aiostream_data._engine.memory.budget import DECODED, Budget
from aiostream_data._engine.memory.buffers import BlockPool
from aiostream_data._engine.memory.decompressor_memory import SMALL_NBYTES, DecompressorMemory
from aiostream_data._engine.resume.shard_offsets import ShardOffsets
from aiostream_data._engine.sources.shard_chunks import alike, decode, own_nbytes, refers_to
from aiostream_data._engine.sources.shard_ranges import RangeBlock, RecordLease
from aiostream_data._native import Alone, Charge
from aiostream_data.codecs.zstd_blocks import MAX_BLOCK_NBYTES
from aiostream_data.errors import CorruptRecordError, MemoryBudgetError
from aiostream_data.formats.base import Loss
from aiostream_data.formats.record_runs import RecordRun
from aiostream_data.formats.stream import RecordStream
from aiostream_data.plan.sources import ReadFiles
from aiostream_data.rows.columns import Column, VarColumn
from aiostream_data.rows.records import Chunk, Columns, concat, records_chunk
from aiostream_data.rows.row_ids import RowIds

SMALL_CHUNK_NBYTES = 64 << 10
"""Skipped records can split a chunk into small chunks. The reader merges chunks below this size in bytes."""


class RecordsLease(NamedTuple):
    """Memory lease of a chunk that refers to the bytes of a shard.

    Attributes:
        buffer: Lease on these bytes.
        own: Charge for the index, the ids and the other arrays of the chunk.
    """

    buffer: object
    own: Charge


@dataclass
class ShardCutter:
    """Splitter of one attempt to read a shard.

    Attributes:
        url, number, split: URL of the shard, its number within its source, and its split number in row ids.
        offsets: Known byte offsets of records. Receives the offsets of records that are found.
        memory: Memory of the decompressor.
        waiting: Memory charge of partially received records.
        first: Number of the first record to return. Earlier records are split but not returned.
        row: Number of the next record.
        alone: Permit to collect a large record, or None.
        lost: Record number and loss of each record that the current hop has skipped.
        damage: Error to raise after the rows of the current hop were sent, or None.
    """

    node: ReadFiles
    url: str
    number: int
    split: int
    offsets: ShardOffsets
    budget: Budget
    blocks: BlockPool
    memory: DecompressorMemory
    waiting: Charge
    first: int = 0
    row: int = 0
    alone: Alone | None = None
    lost: list[tuple[int, Loss]] = field(default_factory=list)
    damage: Exception | None = None
    _block: tuple[NDArray[np.uint8], Charge] | None = None  # decompressed block while it is being split
    _joined: tuple[weakref.ref[NDArray[np.uint8]], weakref.ref[RecordLease]] | None = None  # from several blocks
    _made: int = 0  # bytes made by the current hop

    @staticmethod
    def step_nbytes(stream: RecordStream, block: RangeBlock | None) -> int:
        """Return the maximum number of bytes that one decompression step allocates."""
        index = ROW_NBYTES * stream.step.rows
        if stream.is_compressed or stream.is_unknown:  # a zstd block is never split
            made = max(stream.step.nbytes, MAX_BLOCK_NBYTES)
            return 2 * made + stream.step.headroom_nbytes + index
        joins = block is not None and stream.tail_nbytes > block.headroom
        return index + (stream.tail_nbytes + len(block.data) if joins and block is not None else 0)

    def lend(self, nbytes: int) -> NDArray[np.uint8]:
        """Allocate memory for a decompressed block, and charge this memory to the budget."""
        data = self.blocks.lend(nbytes)
        self._block = (data, self.budget.charge(nbytes, DECODED))
        self._made += nbytes
        return data

    def cut(
        self, stream: RecordStream, pieces: Iterator[VarColumn], block: RangeBlock | None, room_nbytes: int
    ) -> tuple[deque[Chunk], bool]:
        """Run :meth:`_cut_and_decode`. If skipped records have split chunks, merge the small chunks."""
        chunks, more = self._cut_and_decode(stream, pieces, block, room_nbytes)
        if not self.lost:
            return chunks, more
        joined: deque[Chunk] = deque()
        for group in alike(chunks, CHUNK_ROWS, SMALL_CHUNK_NBYTES):
            chunk = concat(group)
            joined.append(chunk if len(group) == 1 else chunk.with_lease(self._charged(chunk)))
        return joined, more

    def _charged(self, chunk: Chunk) -> Charge:
        return self.budget.charge(chunk_nbytes(chunk), DECODED)

    def _cut_and_decode(
        self, stream: RecordStream, pieces: Iterator[VarColumn], block: RangeBlock | None, room_nbytes: int
    ) -> tuple[deque[Chunk], bool]:
        """Read records from the stream and decode these records, as long as the next step fits into ``room_nbytes``.

        Returns:
            The chunks, and True if the stream may yield more records.

        Raises:
            CorruptRecordError: The data of the shard is damaged. Previous calls have returned all chunks before the
                damage.
            MemoryBudgetError: Decompression makes a record that does not fit into the memory limit. Previous calls have
                returned all chunks before that record.
            ExampleParseError: A record cannot be parsed as an Example message. Previous calls have returned all chunks
                before that record.
        """
        chunks: deque[Chunk] = deque()
        step, held = self.step_nbytes(stream, block), stream.held_nbytes
        most_nbytes = most_chunk_nbytes(self.budget.limit)
        self._made = 0
        reserved = max(self.memory.nbytes, SMALL_NBYTES)
        while self._made + max(0, stream.held_nbytes - held) + step <= room_nbytes and len(self.lost) < MOST_AT_ONCE:
            if stream.window_nbytes > reserved:
                return chunks, True
            column = self._next_column(pieces, had_some=bool(chunks))
            if column is None or not (len(column) or len(column.values)):  # the block is used up
                self._block = None
            if column is None:
                return chunks, self.damage is not None
            rows = rows_of_a_slice(len(column), column.nbytes, most_nbytes)
            for start in range(0, len(column), rows):
                offset = stream.offset_of(int(column.starts[start]))
                if offset is not None:
                    self.offsets.learn(self.number, self.row, offset)
                for chunk in self._chunks(column.slice(start, start + rows)):
                    chunks.append(self._leased(chunk, column, block))
                if self.damage is not None:
                    return chunks, True
        return chunks, True

    def _next_column(self, pieces: Iterator[VarColumn], had_some: bool) -> VarColumn | None:
        """Return the next column, or None at the end of the stream.

        Raise a damage error only after all chunks before the damage have been returned.
        """
        if self.damage is not None:
            raise self.damage
        try:
            return next(pieces, None)
        except (CorruptRecordError, MemoryBudgetError) as error:
            if not had_some:
                raise
            self.damage = error
            return None

    def decoded(self, run: RecordRun, columns: tuple[Column, ...], lease: object) -> Chunk:
        """Return the rows of a run, without the rows before ``first``."""
        row, self.row = self.row, self.row + run.rows
        self.offsets.learn(self.number, row, run.start)
        chunk = Columns(run.structure, columns, RowIds.run(self.split, row, run.rows), lease)
        return chunk.slice(min(max(0, self.first - row), run.rows), run.rows)

    def lose(self, loss: Loss) -> None:
        """Assign the next record number to a skipped record. Record the loss unless the number is below ``first``."""
        ordinal, self.row = self.row, self.row + 1
        if ordinal >= self.first:
            self.lost.append((ordinal, loss))

    def _leased(self, chunk: Chunk, column: VarColumn, block: RangeBlock | None) -> Chunk:
        """Return the chunk with memory leases on its own arrays and on the buffer that contains its rows."""
        own = own_nbytes(chunk, partial(refers_to, column.values))
        if own is None:
            self._made += ROW_NBYTES * len(chunk)  # decoded arrays are charged but do not end the hop
            return chunk.with_lease(self._charged(chunk))
        self._made += own
        return chunk.with_lease(
            RecordsLease(self._buffer_lease(column.values, block), self.budget.charge(own, DECODED))
        )

    def _buffer_lease(self, values: NDArray[np.uint8], block: RangeBlock | None) -> object:
        """Return the memory lease of the range, decompressed block or joined record that contains ``values``."""
        if block is not None and (values is block.data or np.may_share_memory(values, block.data)):
            return block.lease
        if self._block is not None and np.may_share_memory(values, self._block[0]):
            return self._block[1]
        lease = self._lease_of_joined(values)
        if lease is None:
            alone, self.alone = self.alone, None
            if alone is not None:
                alone.gathered()
            self.waiting.end()  # the partial record was copied into this buffer
            lease = RecordLease(self.budget.charge(values.nbytes, DECODED), alone)
            self._joined = weakref.ref(values), weakref.ref(lease)
            self._made += values.nbytes
        return lease

    def _lease_of_joined(self, values: NDArray[np.uint8]) -> RecordLease | None:
        """Return the last joined record's lease, or None if ``values`` is another buffer or the lease has ended."""
        if self._joined is None or self._joined[0]() is not values:
            return None
        return self._joined[1]()

    def _chunks(self, column: VarColumn) -> Sequence[Chunk]:
        """Decode the rows of a column in order. Stop at the first row that cannot be decoded."""
        first, self.row = self.row, self.row + len(column)
        if first < self.first:  # sent before the state was saved
            left_out = min(self.first - first, len(column))
            column, first = column.slice(left_out, len(column)), first + left_out

        def decoded(start: int, stop: int) -> Chunk:
            ids = RowIds.run(self.split, first + start, stop - start)
            chunk: Chunk = records_chunk(column.slice(start, stop), ids)
            return decode(chunk, self.node.decoders, lambda row: (self.url, first + start + row))

        found = leading(len(column), decoded)
        self.damage = found.error
        return found.done
