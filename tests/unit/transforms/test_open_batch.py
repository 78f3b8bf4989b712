"""Large batches are filled chunk by chunk, in memory that a pool lends."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiostream_data._engine.memory.buffers import BlockPool
from aiostream_data._native import BytesMemory
from aiostream_data.rows.columns import VarColumn
from aiostream_data.rows.lent_memory import LARGE_ARRAY_NBYTES, empty_array
from aiostream_data.rows.lineage import MadeOf
from aiostream_data.rows.records import Chunk, Columns, Items
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.rows.structure import LEAF, Structure, structure_of
from aiostream_data.transforms.batching import Batcher, BatchOrder, FullBatch
from aiostream_data.transforms.open_batch import MOST_NBYTES, is_large_batch

IMAGE = (128, 256)
"""Shape of an image of 32 KiB, of which 128 are large."""

LARGE = LARGE_ARRAY_NBYTES // (128 * 256)


class Memory:
    """Pool that keeps the arrays it lent."""

    def __init__(self) -> None:
        self.lent: list[np.ndarray] = []

    def lend(self, nbytes: int) -> np.ndarray:
        self.lent.append(np.full(nbytes, 255, np.uint8))
        return self.lent[-1]

    def lend_objects(self, sizes: Iterable[int]) -> list[BytesMemory]:
        return [BytesMemory(nbytes) for nbytes in sizes]


def image(number: int, dtype: str = "uint8") -> np.ndarray:
    return np.full(IMAGE, number % 251, dtype)


def chunk_of(numbers: range, dtype: str = "uint8", made_of: list[MadeOf | None] | None = None) -> Columns:
    """Return rows of an image, its name, its tags and its number."""
    names = [b"x" * (number % 5) for number in numbers]
    lengths = np.array(list(map(len, names)), np.int64)
    name = VarColumn(np.frombuffer(b"".join(names), np.uint8), np.cumsum(lengths) - lengths, lengths)
    tag = np.fromiter(({number} for number in numbers), object, len(numbers))
    images = np.array([image(number, dtype) for number in numbers]).reshape(-1, *IMAGE).astype(dtype)
    structure = structure_of({"image": 0, "name": 0, "tag": 0, "number": 0})
    ids = RowIds.run(0, numbers.start, len(numbers))
    return Columns(structure, (images, name, tag, np.array(numbers, np.int64)), ids, None, made_of)


def batches_of(chunks: Iterable[Chunk], size: int, drop: bool = False, pool: Memory | None = None) -> list[FullBatch]:
    batcher = Batcher(BatchOrder(size, drop), lambda ids, row: "a row", pool=pool)
    found = [batch for chunk in chunks for batch in batcher.push(chunk)]
    return found + batcher.finish()


def check(batch: FullBatch, numbers: range) -> None:
    assert batch.element["number"].tolist() == list(numbers)
    assert batch.element["image"].shape == (len(numbers), *IMAGE)
    assert batch.element["image"][:, 0, 0].tolist() == [number % 251 for number in numbers]
    assert batch.element["image"][:, -1, -1].tolist() == [number % 251 for number in numbers]
    assert batch.element["name"].tolist() == [b"x" * (number % 5) for number in numbers]
    assert batch.element["tag"].tolist() == [{number} for number in numbers]
    assert batch.ids.tolist() == RowIds.run(0, numbers.start, len(numbers)).tolist()


@given(
    sizes=st.lists(st.integers(0, 150), max_size=8),
    size=st.sampled_from([1, 3, LARGE - 1, LARGE, LARGE + 1, 2 * LARGE]),
    drop=st.booleans(),
)
def test_batches_do_not_depend_on_the_chunks_of_their_rows(sizes: list[int], size: int, drop: bool) -> None:
    stops = np.cumsum(sizes).tolist()
    rows = sum(sizes)
    chunks = [chunk_of(range(stop - count, stop)) for stop, count in zip(stops, sizes, strict=True)]
    batches = batches_of(chunks, size, drop, Memory())
    expected = [range(start, min(start + size, rows)) for start in range(0, rows, size)]
    if drop and rows % size:
        expected.pop()
    assert len(batches) == len(expected)
    for batch, numbers in zip(batches, expected, strict=True):
        check(batch, numbers)


@pytest.mark.parametrize("rows_of_a_chunk", [7, LARGE, 2 * LARGE + 5])
def test_a_large_batch_is_one_array_of_the_pool(rows_of_a_chunk: int) -> None:
    pool = Memory()
    chunks = [chunk_of(range(at, at + rows_of_a_chunk)) for at in range(0, 4 * LARGE, rows_of_a_chunk)]
    batches = batches_of(chunks, LARGE, drop=True, pool=pool)
    blocks = {id(lent) for batch in batches for lent in pool.lent if np.shares_memory(batch.element["image"], lent)}
    assert len(blocks) == len(batches) >= 4
    assert len(pool.lent) <= len(batches) + 1  # and a last one that was dropped


@pytest.mark.parametrize("kind", ["uint8", "float64"])
def test_a_large_batch_of_arrays_of_functions_is_one_array_of_the_pool(kind: str) -> None:
    pool = Memory()
    images = [image(number, kind) for number in range(LARGE)]
    (batch,) = batches_of([Items(images, RowIds.run(0, 0, LARGE))], LARGE, pool=pool)
    assert np.array_equal(batch.element, np.stack(images))
    assert batch.element.dtype == kind
    assert [np.shares_memory(batch.element, lent) for lent in pool.lent] == [True]


def test_small_batches_take_no_memory_of_the_pool() -> None:
    pool = Memory()
    batches_of([chunk_of(range(50)), chunk_of(range(50, 99))], LARGE - 1, pool=pool)
    batches_of([Items([image(1)] * 50, RowIds.run(0, 0, 50))], LARGE - 1, pool=pool)
    assert not pool.lent


def test_a_batch_keeps_nothing_of_the_chunks() -> None:
    chunks = [chunk_of(range(100)), chunk_of(range(100, 200))]
    batches = batches_of(chunks, 150)
    for chunk in chunks:
        for leaf in chunk.leaves:
            if isinstance(leaf, np.ndarray) and not leaf.dtype.hasobject:
                leaf[...] = 0
    check(batches[0], range(150))
    check(batches[1], range(150, 200))


def test_carried_rows_do_not_keep_the_memory_of_their_chunk() -> None:
    batcher = Batcher(BatchOrder(LARGE), lambda ids, row: "a row")
    chunk = chunk_of(range(10))
    images = weakref.ref(chunk.leaves[0])
    batcher.push(chunk)
    del chunk
    assert images() is None
    assert len(batcher) == 10


def test_carried_rows_of_another_layout_follow_in_order() -> None:
    chunks = [
        chunk_of(range(40)),
        chunk_of(range(40, 60)),
        chunk_of(range(60, 70), "int32"),
        chunk_of(range(70, 90)),
    ]
    batcher = Batcher(BatchOrder(LARGE), lambda ids, row: f"row {ids.tolist()[row][1]}")
    for chunk, carried in zip(chunks, (40, 60, 70, 90), strict=True):
        assert not batcher.push(chunk)
        assert len(batcher) == carried
        assert batcher.nbytes >= carried * 128 * 256
    with pytest.raises(Exception, match=r"dtype|int32") as error:
        batcher.push(chunk_of(range(90, 200)))
    assert "row 0" in str(error.value)
    assert "row 60" in str(error.value)


def test_carried_rows_are_counted_until_they_are_dropped() -> None:
    batcher = Batcher(BatchOrder(LARGE), lambda ids, row: "a row", pool=Memory())
    batcher.push(chunk_of(range(10)))
    assert 10 * 128 * 256 <= batcher.nbytes < 11 * 128 * 256
    batcher.drop()
    assert len(batcher) == batcher.nbytes == 0


def test_the_lineage_of_rows_is_joined() -> None:
    entries: list[MadeOf | None] = [RowIds.run(0, number, 1) for number in range(6)]
    chunks = [chunk_of(range(6), made_of=entries), chunk_of(range(6, LARGE))]
    (batch,) = batches_of(chunks, LARGE)
    made_of = batch.rows.made_of  # type: ignore[union-attr]
    assert made_of is not None
    assert made_of[:6] == entries
    assert made_of[6:] == [None] * (LARGE - 6)
    (batch,) = batches_of(
        [chunk_of(range(9)), chunk_of(range(9, 15), made_of=entries), chunk_of(range(15, LARGE))], LARGE
    )
    assert batch.rows.made_of == [*[None] * 9, *entries, *[None] * (LARGE - 15)]  # type: ignore[union-attr]


def test_small_leaves_of_a_large_batch_share_memory_of_the_pool() -> None:
    rows, pool = 1 << 17, BlockPool(1 << 28)
    leaves = tuple(np.arange(rows // 2) + column for column in range(5))
    structure = Structure("dict", tuple("abcde"), (LEAF,) * 5)
    chunks = [Columns(structure, leaves, RowIds.run(0, first, rows // 2), None) for first in (0, rows // 2)]
    batcher = Batcher(BatchOrder(rows), lambda ids, row: "a row", pool=pool)
    (batch,) = [batch for chunk in chunks for batch in batcher.push(chunk)]
    for column, name in enumerate("abcde"):
        np.testing.assert_array_equal(batch.element[name], np.tile(np.arange(rows // 2) + column, 2))
    places = sorted(leaf.ctypes.data for leaf in batch.element.values())
    assert [after - before for before, after in pairwise(places)] == [8 * rows] * 4
    kept = batch.element["c"]
    batcher.drop()
    del batch
    assert not pool.idle_nbytes
    del kept
    assert pool.idle_nbytes >= 5 * 8 * rows


def test_only_large_and_dense_batches_are_filled_in_place() -> None:
    rows = chunk_of(range(3))
    assert is_large_batch(rows, LARGE)
    assert not is_large_batch(rows, LARGE - 1)
    assert not is_large_batch(rows, MOST_NBYTES // (128 * 256) + 1)
    assert not is_large_batch(Items([image(1)], RowIds.run(0, 0, 1)), LARGE)


def test_the_memory_of_a_batch_is_used_again_when_nobody_refers_to_it() -> None:
    pool = BlockPool(2 * LARGE_ARRAY_NBYTES)
    first = empty_array((LARGE, *IMAGE), np.dtype("uint8"), pool)
    place, view = first.ctypes.data, first[3, 1:]
    del first
    second = empty_array((LARGE // 2, *IMAGE), np.dtype("uint16"), pool)
    assert second.ctypes.data != place
    del view
    third = empty_array((LARGE // 8, *IMAGE), np.dtype("float64"), pool)
    assert third.ctypes.data == place
    assert third.shape == (LARGE // 8, *IMAGE)
    pool.close()


@pytest.mark.parametrize("dtype", ["O", "S0", "T", "U0", "V0"])
def test_arrays_without_bytes_of_their_own_take_no_memory_of_the_pool(dtype: str) -> None:
    pool = Memory()
    assert empty_array((LARGE_ARRAY_NBYTES,), np.dtype(dtype), pool).shape == (LARGE_ARRAY_NBYTES,)
    assert not pool.lent
