"""Rows are cut into batches that own their memory, whatever chunks they came in."""

from __future__ import annotations

import gc
import weakref
from itertools import groupby
from typing import Any

import numpy as np
import pytest

from aiostream_data.errors import BatchShapeError, PlanError
from aiostream_data.rows.columns import INDEX_NBYTES, VarColumn, VarKind
from aiostream_data.rows.ragged import RaggedArray
from aiostream_data.rows.records import Chunk, Columns, Items
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.rows.structure import LEAF, structure_of
from aiostream_data.transforms.batch_cuts import SHARED_NBYTES, BatchCut
from aiostream_data.transforms.batching import Batcher, BatchOrder, FullBatch


def describe(ids: RowIds, row: int) -> str:
    return "split {} record {}".format(*ids.pairs_of(row)[0])


def numbers(first: int, count: int) -> Columns:
    return Columns(LEAF, (np.arange(first, first + count),), RowIds.run(0, first, count))


def batches_of(chunks: list[Chunk], size: int, drop_remainder: bool = False) -> list[FullBatch]:
    batcher = Batcher(BatchOrder(size, drop_remainder), describe)
    return [batch for chunk in chunks for batch in batcher.push(chunk)] + batcher.finish()


def test_the_order_says_where_a_chunk_is_cut() -> None:
    order = BatchOrder(4)
    assert order.push(1) == [BatchCut(0, 1, False)]
    assert order.push(10) == [BatchCut(0, 3, True), BatchCut(3, 7, True), BatchCut(7, 10, False)]
    assert order.push(1) == [BatchCut(0, 1, True)]
    assert order.push(0) == []
    assert not order.finish()


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
@pytest.mark.parametrize("counts", [[1] * 9, [0, 7, 1, 13], [49, 2, 99], [100]])
def test_every_row_belongs_to_the_batch_of_its_number(size: int, counts: list[int]) -> None:
    order, row = BatchOrder(size), 0
    for count in counts:
        cuts = order.push(count)
        for start, stop, completes in cuts:
            numbers_of_batches = {number // size for number in range(row + start, row + stop)}
            assert len(numbers_of_batches) == 1
            assert completes == ((row + stop) % size == 0)
        assert [number for start, stop, _ in cuts for number in range(start, stop)] == list(range(count))
        row += count
        assert order.carried == row % size


@pytest.mark.parametrize("cuts", [[10], [1] * 10, [3, 0, 7], [4, 4, 2], [9, 1]])
def test_batches_are_the_same_however_the_stream_is_cut(cuts: list[int]) -> None:
    stops = np.cumsum(cuts).tolist()
    chunks: list[Chunk] = [numbers(stop - count, count) for count, stop in zip(cuts, stops, strict=True)]
    batches = batches_of(chunks, 4)
    assert [batch.element.tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert [batch.ids.ordinals.tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_a_dropped_remainder_is_counted() -> None:
    batcher = Batcher(BatchOrder(4, drop_remainder=True), describe)
    assert [len(batch) for batch in batcher.push(numbers(0, 10))] == [4, 4]
    assert batcher.finish() == []
    assert batcher.dropped == 2
    assert len(batcher) == 0


def test_a_batch_never_shares_memory_with_its_chunk() -> None:
    chunk = numbers(0, 8)
    for batch in batches_of([chunk], 4) + batches_of([chunk], 8):
        assert not np.shares_memory(batch.element, chunk.leaves[0])
        assert not np.shares_memory(batch.ids, chunk.ids)
        assert batch.element.flags.c_contiguous
        assert batch.element.flags.writeable


def test_writing_into_a_batch_leaves_its_neighbours_alone() -> None:
    first, second = batches_of([numbers(0, 8)], 4)
    first.element[:] = -1
    assert second.element.tolist() == [4, 5, 6, 7]


def test_large_batches_of_one_chunk_lie_apart() -> None:
    rows = 2 * SHARED_NBYTES // 8 + 2
    for batch in batches_of([numbers(0, rows)], rows // 2):
        assert batch.element.base is None


def test_carried_rows_keep_no_chunk_and_no_lease() -> None:
    class Lease:
        pass

    lease = Lease()
    watch = weakref.ref(lease)
    values = np.zeros(100_000, np.uint8)
    chunk = Columns(
        LEAF, (VarColumn(values, np.arange(10) * 10_000, np.full(10, 10_000)),), RowIds.run(0, 0, 10), lease
    )
    batcher = Batcher(BatchOrder(9), describe)
    batches = batcher.push(chunk)
    values_watch = weakref.ref(values)
    del chunk, lease, values
    gc.collect()
    assert watch() is None
    assert values_watch() is None
    assert len(batches) == 1
    assert batcher.nbytes < 11_000


def column(kind: Any) -> VarColumn:
    return VarColumn(np.frombuffer(b"abcdef", np.uint8), np.array([0, 4]), np.array([3, 2]), kind)


def test_bytes_and_str_become_object_arrays() -> None:
    element = {"b": b"", "s": ""}
    chunk = Columns(structure_of(element), (column("bytes"), column("str")), RowIds.run(0, 0, 2))
    (batch,) = batches_of([chunk], 2)
    assert batch.element["b"].tolist() == [b"abc", b"ef"]
    assert batch.element["s"].tolist() == ["abc", "ef"]
    assert batch.element["b"].dtype == object


@pytest.mark.parametrize("lengths", [[3, 2], [2, 2]])
def test_variable_arrays_become_ragged_also_when_they_have_one_length(lengths: list[int]) -> None:
    values = np.arange(20.0)
    leaf = VarColumn(values, np.array([10, 0]), np.array(lengths), "array")
    (batch,) = batches_of([Columns(LEAF, (leaf,), RowIds.run(0, 0, 2))], 2)
    assert isinstance(batch.element, RaggedArray)
    expected = [list(range(10, 10 + lengths[0])), list(range(lengths[1]))]
    assert batch.element.to_list() == expected
    assert not np.shares_memory(batch.element.values, values)


def test_items_are_stacked() -> None:
    (batch,) = batches_of([Items([{"a": 1}, {"a": 2.5}], RowIds.run(0, 0, 2))], 2)
    assert batch.element["a"].tolist() == [1.0, 2.5]


def test_columns_and_items_meet_in_one_batch() -> None:
    first, second = batches_of([numbers(0, 3), Items([3.5, 4], RowIds.run(0, 3, 2))], 4)
    assert first.element.tolist() == [0, 1, 2, 3.5]
    assert second.element.tolist() == [4]


def test_rows_that_do_not_stack_are_named_by_their_origin() -> None:
    chunks: list[Chunk] = [
        Columns(LEAF, (np.zeros((3, 2)),), RowIds.run(5, 10, 3)),
        Columns(LEAF, (np.zeros((3, 4)),), RowIds.run(6, 20, 3)),
    ]
    with pytest.raises(BatchShapeError, match=r"\(2,\).* in split 5 record 10 but .*\(4,\).* in split 6 record 20"):
        batches_of(chunks, 6)


def test_batches_of_batches_stack() -> None:
    inner = batches_of([numbers(0, 6)], 3)
    (outer,) = batches_of([Items([batch.element for batch in inner], RowIds.run(0, 0, 2))], 2)
    assert outer.element.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_nothing_gives_no_batch() -> None:
    assert batches_of([], 3) == []
    assert batches_of([numbers(0, 0)], 3) == []


def test_a_batch_size_below_one_is_refused() -> None:
    with pytest.raises(PlanError, match="batch_size must be at least 1, got 0"):
        BatchOrder(0)


def test_batches_of_a_chunk_that_nobody_else_has_are_cut_from_it_without_a_copy() -> None:
    chunk = numbers(0, 8)
    batches = Batcher(BatchOrder(4), describe).push(chunk, own=True)
    assert [batch.element.tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert all(np.shares_memory(batch.element, chunk.leaves[0]) for batch in batches)


def test_batches_are_copied_out_of_a_chunk_of_their_own_that_is_too_large_to_be_kept_alive() -> None:
    rows = SHARED_NBYTES // 8 + 4
    chunk = numbers(0, rows)
    (batch,) = Batcher(BatchOrder(rows - 4), describe).push(chunk, own=True)
    assert not np.shares_memory(batch.element, chunk.leaves[0])


def of_lengths(lengths: list[int], kind: VarKind = "bytes") -> Columns:
    sizes = np.array(lengths, np.int64)
    values = np.full(int(sizes.sum()), ord("a"), np.uint8)
    return Columns(LEAF, (VarColumn(values, np.cumsum(sizes) - sizes, sizes, kind),), RowIds.run(0, 0, len(sizes)))


def neighbours(batches: list[FullBatch]) -> list[int]:
    """Return the number of consecutive batches that share a block, for each block in turn."""
    blocks = [id(batch.element if batch.element.base is None else batch.element.base) for batch in batches]
    return [len(list(same)) for _, same in groupby(blocks)]


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("is_dense", [True, False], ids=["numbers", "bytes"])
def test_batches_of_a_large_chunk_share_blocks_of_limited_size(own: bool, is_dense: bool) -> None:
    row_nbytes = 8 if is_dense else 84 + INDEX_NBYTES
    rows = 3 * SHARED_NBYTES // row_nbytes
    chunk = numbers(0, rows) if is_dense else of_lengths([84] * rows)
    batches = Batcher(BatchOrder(1000), describe).push(chunk, own=own)
    shared = neighbours(batches)
    assert len(shared) in (3, 4)
    assert max(shared) * 1000 * row_nbytes <= SHARED_NBYTES
    assert [len(batch.element) for batch in batches] == [1000] * (rows // 1000)


@pytest.mark.parametrize("kind", ["bytes", "str"])
def test_a_giant_among_small_rows_shares_its_block_with_no_other_batch(kind: VarKind) -> None:
    batches = Batcher(BatchOrder(2), describe).push(of_lengths([1] * 10 + [2 * SHARED_NBYTES] + [1] * 9, kind))
    assert neighbours(batches) == [5, 1, 4]
    sizes = [len(row) for batch in batches for row in batch.element]
    assert sizes == [1] * 10 + [2 * SHARED_NBYTES] + [1] * 9
