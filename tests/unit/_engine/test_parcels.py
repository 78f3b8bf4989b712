"""Elements for the consumer: large ``bytes`` take the memory of elements that nobody uses any more."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from aiostream_data._engine.memory.buffers import BlockPool
from aiostream_data._engine.parcels import parcel_of
from aiostream_data.executors.thread import ThreadExecutor
from aiostream_data.rows.columns import LARGE_ROW_NBYTES, VarColumn
from aiostream_data.rows.records import Chunk, records_chunk
from aiostream_data.rows.row_ids import RowIds


class Pool(BlockPool):
    """Block pool that notes the sizes of the objects that it lends."""

    def __init__(self) -> None:
        super().__init__(1 << 24)
        self.lent: list[int] = []

    def lend_objects(self, sizes: Any) -> Any:
        self.lent += sizes
        return super().lend_objects(sizes)


def chunk_of(rows: list[bytes], kind: Any = "bytes") -> Chunk:
    lengths = np.array([len(row) for row in rows], np.int64)
    values = np.frombuffer(b"".join(rows), np.uint8)
    column = VarColumn(values, np.cumsum(lengths) - lengths, lengths, kind)
    return records_chunk(column, RowIds.of_source(0, np.arange(len(rows))))


def elements_of(chunk: Chunk, pool: BlockPool) -> list[Any]:
    async def case() -> list[Any]:
        executor = ThreadExecutor(1, "test")
        try:
            return (await parcel_of(chunk, executor, pool)).elements
        finally:
            executor.close(10)

    return asyncio.run(case())


@pytest.mark.parametrize("nbytes", [1, LARGE_ROW_NBYTES - 1, LARGE_ROW_NBYTES, 4 * LARGE_ROW_NBYTES])
def test_only_large_bytes_take_memory_of_the_pool(nbytes: int) -> None:
    pool = Pool()
    rows = [bytes([number]) * nbytes for number in range(3)]
    assert elements_of(chunk_of(rows), pool) == rows
    assert pool.lent == ([nbytes] * 3 if nbytes >= LARGE_ROW_NBYTES else [])


def test_other_elements_take_no_memory_of_the_pool() -> None:
    pool = Pool()
    assert elements_of(chunk_of([], "bytes"), pool) == []
    assert elements_of(chunk_of([b"x" * LARGE_ROW_NBYTES], "str"), pool) == ["x" * LARGE_ROW_NBYTES]
    assert pool.lent == []
