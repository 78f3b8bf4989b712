"""Long rows are copied as few times as possible on their way into a batch."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from aiostream_data._native import BytesMemory
from aiostream_data.rows.columns import LARGE_ROW_NBYTES, Column, SeparateBytes, VarColumn, VarKind
from aiostream_data.rows.lent_memory import LARGE_ARRAY_NBYTES, LARGE_BLOCK_NBYTES
from aiostream_data.rows.records import Columns
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.rows.structure import LEAF, Structure
from aiostream_data.transforms.batch_leaves import batch_leaf
from aiostream_data.transforms.batching import Batcher, BatchOrder


class Memory:
    """Pool that keeps the objects whose memory it lent."""

    def __init__(self) -> None:
        self.lent: list[BytesMemory] = []
        self.arrays: list[np.ndarray] = []

    def lend(self, nbytes: int) -> np.ndarray:
        self.arrays.append(np.empty(nbytes, np.uint8))
        return self.arrays[-1]

    def lend_objects(self, sizes: Iterable[int]) -> list[BytesMemory]:
        fresh = [BytesMemory(nbytes) for nbytes in sizes]
        self.lent += fresh
        return fresh


def rows_of(lengths: list[int], kind: VarKind = "bytes") -> VarColumn:
    sizes = np.array(lengths, np.int64)
    values = np.arange(sum(lengths), dtype=np.int64).astype(np.uint8)
    return VarColumn(values, np.cumsum(sizes) - sizes, sizes, kind)


def batches_of(columns: list[Column], size: int, pool: Memory | None) -> list[np.ndarray]:
    batcher = Batcher(BatchOrder(size), lambda ids, row: "a row", pool=pool)
    found = []
    for column in columns:
        found += batcher.push(Columns(LEAF, (column,), RowIds.run(0, 0, len(column))))
    return [batch.element for batch in found + batcher.finish()]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
def test_large_rows_are_copied_once_into_the_batches_that_contain_them(size: int) -> None:
    columns = [rows_of([LARGE_ROW_NBYTES + 3 * row + count for row in range(count)]) for count in (5, 1, 9, 2)]
    pool = Memory()
    batches = batches_of(list(columns), size, pool)
    expected = [row for column in columns for row in column.elements()]
    given = [value for batch in batches for value in batch]
    assert given == expected
    assert [id(value) for value in given] == [id(memory.data()) for memory in pool.lent]


def test_objects_that_exist_are_not_copied() -> None:
    rows = [bytes([row]) * LARGE_ROW_NBYTES for row in range(5)]
    pool = Memory()
    batches = batches_of([SeparateBytes(rows[:3]), SeparateBytes(rows[3:])], 4, pool)
    assert [id(value) for batch in batches for value in batch] == list(map(id, rows))
    assert not pool.lent


@pytest.mark.parametrize("lengths", [[5, 0, 17], [LARGE_ROW_NBYTES - 1] * 3])
def test_small_rows_take_no_memory_of_the_pool(lengths: list[int]) -> None:
    pool, column = Memory(), rows_of(lengths)
    assert [list(batch) for batch in batches_of([column], 3, pool)] == [column.elements()]
    assert not pool.lent


def test_text_takes_no_memory_of_the_pool() -> None:
    pool, text = Memory(), "x" * LARGE_ROW_NBYTES
    column = VarColumn(np.frombuffer(text.encode(), np.uint8), np.zeros(1, np.int64), np.array([len(text)]), "str")
    assert [list(batch) for batch in batches_of([column], 3, pool)] == [[text]]
    assert not pool.lent


@pytest.mark.parametrize("is_own", [True, False])
@pytest.mark.parametrize("kind", ["array", "str", "bytes"])
def test_a_leaf_takes_the_memory_of_a_column_that_nobody_else_uses(kind: VarKind, is_own: bool) -> None:
    column = rows_of([3, 0, 4], kind)
    leaf = batch_leaf(column, copy=not is_own, strings="columns")
    assert np.shares_memory(leaf.values, column.values) == is_own
    assert leaf.values.tobytes() == column.values.tobytes()
    part = batch_leaf(column.slice(1, 3), copy=not is_own, strings="columns")
    assert not np.shares_memory(part.values, column.values)  # it would keep the other rows in memory


@pytest.mark.parametrize("is_separate", [False, True])
@pytest.mark.parametrize("size", [1, 3, 4])
def test_columns_of_large_batches_are_in_memory_of_the_pool(size: int, is_separate: bool) -> None:
    nbytes = LARGE_ARRAY_NBYTES // 3 + 1
    rows = [bytes([row]) * (nbytes + row) for row in range(7)]
    columns: list[Column] = [
        SeparateBytes(part) if is_separate else rows_of(list(map(len, part))) for part in (rows[:2], rows[2:])
    ]
    expected = [bytes(row) for column in columns if isinstance(column, VarColumn) for row in column.elements()]
    pool = Memory()
    batcher = Batcher(BatchOrder(size), lambda ids, row: "a row", strings="columns", pool=pool)
    batches = []
    for column in columns:
        batches += batcher.push(Columns(LEAF, (column,), RowIds.run(0, 0, len(column))))
    leaves = [batch.element for batch in batches + batcher.finish()]
    assert [row for leaf in leaves for row in leaf] == expected
    for leaf in leaves[: 7 // size]:
        assert any(np.shares_memory(leaf.values, array) for array in pool.arrays)


@pytest.mark.parametrize("is_large", [False, True])
@pytest.mark.parametrize("kind", ["array", "str"])
def test_small_batches_share_a_block_of_the_pool_if_it_is_large(kind: VarKind, is_large: bool) -> None:
    width = LARGE_BLOCK_NBYTES // 40 // (8 if kind == "array" else 1) + is_large
    column = rows_of([width] * 40, kind)
    if kind == "array":
        column = VarColumn(np.arange(len(column.values), dtype=np.int64), column.starts, column.lengths, "array")
    pool = Memory()
    batcher = Batcher(BatchOrder(4), lambda ids, row: "a row", strings="columns", pool=pool)
    leaves = [batch.element for batch in batcher.push(Columns(LEAF, (column,), RowIds.run(0, 0, 40)))]
    for number, leaf in enumerate(leaves):
        assert leaf.row_splits.tolist() == [width * row for row in range(5)]
        np.testing.assert_array_equal(leaf.values, column.values[4 * width * number : 4 * width * (number + 1)])
        assert any(np.shares_memory(leaf.values, array) for array in pool.arrays) == is_large
    assert len(pool.arrays) == is_large
    leaves[0].row_splits[...] = 7
    assert leaves[1].row_splits.tolist() == [width * row for row in range(5)]


def test_columns_without_bytes_are_cut_beside_others() -> None:
    columns = (np.arange(6), np.zeros(6, np.dtype([])), np.zeros((6, 0)), np.arange(6.0))
    batcher = Batcher(BatchOrder(2), lambda ids, row: "a row")
    chunk = Columns(Structure("tuple", (0, 1, 2, 3), (LEAF,) * 4), columns, RowIds.run(0, 0, 6))
    batches = [batch.element for batch in batcher.push(chunk)]
    assert [batch[0].tolist() for batch in batches] == [[0, 1], [2, 3], [4, 5]]
    assert [batch[1].shape for batch in batches] == [(2,)] * 3
    assert [batch[2].shape for batch in batches] == [(2, 0)] * 3
    assert [batch[3].tolist() for batch in batches] == [[0, 1], [2, 3], [4, 5]]
