"""The shuffle buffer is tf.data's: fill, emit a uniform slot, drain at random; and it holds only live rows."""

from __future__ import annotations

import gc
import json
import weakref
from typing import Any

import numpy as np
import pytest

from aiostream_data.errors import PlanError
from aiostream_data.rows.columns import VarColumn
from aiostream_data.rows.records import Chunk, Columns, Items, records_chunk
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.rows.structure import LEAF, structure_of
from aiostream_data.transforms.randomness import key_of
from aiostream_data.transforms.shuffle_buffer import GROW_EVERY, ShuffleBuffer, ShuffleOrder


def numbers(first: int, count: int) -> Columns:
    return Columns(LEAF, (np.arange(first, first + count),), RowIds.run(0, first, count))


def texts(rows: list[bytes], first: int = 0) -> Columns:
    lengths = np.array([len(row) for row in rows], np.int64)
    values = np.frombuffer(b"".join(rows), np.uint8)
    return records_chunk(VarColumn(values, np.cumsum(lengths) - lengths, lengths), RowIds.run(0, first, len(rows)))


def shuffled(chunks: list[Chunk], buffer_size: int, seed: int = 0, drain: int = 3) -> list[Any]:
    buffer = ShuffleBuffer(ShuffleOrder(buffer_size, key_of(seed)))
    out: list[Any] = []
    for chunk in chunks:
        given = buffer.push(chunk)
        out += given.elements() if given is not None else []
    while (given := buffer.drain(drain)) is not None:
        out += given.elements()
    assert len(buffer) == 0
    return out


def test_a_buffer_of_one_keeps_the_order() -> None:
    assert shuffled([numbers(0, 50), numbers(50, 50)], 1) == list(range(100))


@pytest.mark.parametrize("buffer_size", [2, 10, 99, 100, 1000])
def test_every_row_comes_out_once(buffer_size: int) -> None:
    out = shuffled([numbers(0, 60), numbers(60, 40)], buffer_size)
    assert sorted(out) == list(range(100))
    assert out != list(range(100))


@pytest.mark.parametrize("buffer_size", [2, 5, 16])
def test_no_row_comes_out_earlier_than_the_buffer_allows(buffer_size: int) -> None:
    out = shuffled([numbers(0, 300)], buffer_size)
    assert all(row - position < buffer_size for position, row in enumerate(out))


def test_a_buffer_that_holds_everything_gives_all_permutations_equally_often() -> None:
    seen: dict[tuple[int, ...], int] = {}
    for seed in range(4800):
        order = tuple(shuffled([numbers(0, 4)], 4, seed))
        seen[order] = seen.get(order, 0) + 1
    assert len(seen) == 24
    chi_square = sum((count - 200) ** 2 / 200 for count in seen.values())
    assert chi_square < 49.7  # 23 degrees of freedom, 0.1 %


def test_each_slot_is_emitted_equally_often_and_independently_of_the_last() -> None:
    _, slots = ShuffleOrder(8, key_of(3)).push(8 + 64_000)
    slots = slots[: 2 * (len(slots) // 2)]
    pairs = np.bincount(slots[::2] * 8 + slots[1::2], minlength=64)
    expected = len(slots) / 2 / 64
    assert float(((pairs - expected) ** 2 / expected).sum()) < 103.5  # 63 degrees of freedom, 0.1 %


def test_the_first_row_leaves_at_the_times_that_tf_data_gives() -> None:
    # With buffer 2 the first row is in slot 0; it leaves with the n-th draw with probability 2**-n.
    leaves_at = [shuffled([numbers(0, 12)], 2, seed).index(0) for seed in range(4000)]
    observed = np.bincount(np.minimum(leaves_at, 5), minlength=6)
    expected = 4000 * np.array([1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 32])
    assert float(((observed - expected) ** 2 / expected).sum()) < 20.5  # 5 degrees of freedom, 0.1 %


def test_seeds_give_different_orders_and_one_seed_the_same() -> None:
    orders = [shuffled([numbers(0, 50)], 20, seed) for seed in (1, 2, 1)]
    assert orders[0] != orders[1]
    assert orders[0] == orders[2]


def test_rows_keep_their_ids_and_their_columns_stay_together() -> None:
    ids = RowIds.run(4, 100, 30)
    element = {"x": 0, "t": b"", "v": np.zeros(2)}
    text = texts([b"%d" % i for i in range(30)]).leaves[0]
    leaves = (np.arange(30), text, np.repeat(np.arange(30.0), 2).reshape(30, 2))
    buffer = ShuffleBuffer(ShuffleOrder(7, key_of(1)))
    parts = [buffer.push(Columns(structure_of(element), leaves, ids)), buffer.drain(100)]
    rows = [(row, id) for part in parts if part for row, id in zip(part.elements(), part.ids.tolist(), strict=True)]
    assert len(rows) == 30
    for row, (split, ordinal) in rows:
        assert (split, ordinal - 100) == (4, row["x"])
        assert row["t"] == b"%d" % row["x"]
        assert row["v"].tolist() == [row["x"]] * 2


def test_a_change_of_layout_in_mid_stream_loses_nothing() -> None:
    pairs = Columns(LEAF, (np.arange(200, 220).reshape(10, 2),), RowIds.run(0, 20, 10))
    objects = Items([None, "x"], RowIds.run(0, 30, 2))
    out = shuffled([numbers(0, 20), pairs, objects, numbers(100, 5)], 8)
    plain = [value.tolist() if isinstance(value, np.ndarray) else value for value in out]
    expected = [*range(20), *pairs.leaves[0].tolist(), None, "x", *range(100, 105)]  # type: ignore[union-attr]
    assert sorted(plain, key=repr) == sorted(expected, key=repr)


def test_the_order_does_not_depend_on_the_layout() -> None:
    rows = [b"%d" % i for i in range(40)]
    as_items = Items(list(rows), RowIds.run(0, 0, 40))
    assert shuffled([texts(rows)], 9) == shuffled([as_items], 9)


def test_incoming_buffers_and_leases_are_not_kept_alive() -> None:
    class Lease:
        pass

    lease = Lease()
    watch = weakref.ref(lease)
    for chunk in (numbers(0, 10), texts([b"abc"] * 10), Items([1] * 10, RowIds.run(0, 0, 10))):
        buffer = ShuffleBuffer(ShuffleOrder(4, key_of(1)))
        given = buffer.push(chunk.with_lease(lease))
        assert given is not None
        assert given.lease is None
    del lease
    gc.collect()
    assert watch() is None


def test_what_comes_out_is_not_changed_by_what_comes_in_later() -> None:
    buffer = ShuffleBuffer(ShuffleOrder(3, key_of(1)))
    first = buffer.push(texts([b"aa", b"bbb", b"c", b"dddd"]))
    assert first is not None
    before = first.elements()
    buffer.push(texts([b"xxxx"] * 50))
    assert first.elements() == before


def test_memory_is_in_proportion_to_the_live_bytes() -> None:
    buffer = ShuffleBuffer(ShuffleOrder(100, key_of(1)))
    row = bytes(1000)
    peak = 0
    for start in range(0, 20_000, 50):
        buffer.push(texts([row] * 50, start))
        peak = max(peak, buffer.nbytes)
    assert 100_000 < peak < 300_000


def test_one_huge_row_does_not_leave_its_room_behind() -> None:
    buffer = ShuffleBuffer(ShuffleOrder(10, key_of(1)))
    buffer.push(texts([bytes(10_000_000)] + [b"x"] * 9))
    assert buffer.nbytes > 10_000_000
    buffer.push(texts([b"x"] * 500))
    assert buffer.nbytes < 10_000


def test_a_huge_buffer_size_takes_no_memory_before_rows_come() -> None:
    buffer = ShuffleBuffer(ShuffleOrder(10**12, key_of(1)))
    assert buffer.push(numbers(0, 100)) is None
    assert buffer.nbytes < 100_000


def test_an_empty_chunk_changes_nothing() -> None:
    buffer = ShuffleBuffer(ShuffleOrder(3, key_of(1)))
    assert buffer.push(Items([], RowIds.run(0, 0, 0))) is None
    assert buffer.drain(10) is None
    assert (len(buffer), buffer.nbytes, len(buffer.held().ids)) == (0, 0, 0)


def test_a_push_after_the_drain_began_is_refused() -> None:
    order = ShuffleOrder(3, key_of(1))
    order.push(3)
    order.drain(1)
    with pytest.raises(ValueError, match="drain"):
        order.push(1)


def test_the_state_is_plain_and_small() -> None:
    order = ShuffleOrder(3, key_of(1))
    order.push(10)
    assert json.loads(json.dumps(order.state())) == order.state()


def test_giving_back_another_number_of_rows_is_refused() -> None:
    order = ShuffleOrder(3, key_of(1))
    order.push(10)
    with pytest.raises(ValueError, match="the buffer held 3 rows, but 2 rows were recomputed"):
        ShuffleBuffer(ShuffleOrder(3, key_of(1))).restore(order.state(), [numbers(0, 2)])


def test_a_buffer_size_below_one_is_refused() -> None:
    with pytest.raises(PlanError, match="buffer_size must be at least 1, got 0"):
        ShuffleOrder(0, key_of(1))


def row_counts(chunks: list[Chunk], buffer: ShuffleBuffer) -> list[int]:
    """Push chunks; return how many rows were held after each."""
    counts = []
    for chunk in chunks:
        buffer.push(chunk)
        counts.append(len(buffer))
    return counts


def test_a_growing_buffer_gives_rows_out_from_the_first_ones_on() -> None:
    buffer = ShuffleBuffer(ShuffleOrder(8192, key_of(1), growing=True))
    given = [buffer.push(numbers(first, 64)) for first in range(0, 640, 64)]
    assert given[0] is None
    assert [len(part) for part in given[1:] if part is not None] == [64 // GROW_EVERY] * 9


@pytest.mark.parametrize("rows_at_once", [1, 7, 64, 10_000])
@pytest.mark.parametrize("kind", ["dense", "variable", "objects"])
def test_a_buffer_stops_growing_where_its_rows_become_too_large(rows_at_once: int, kind: str) -> None:
    def chunk(first: int) -> Chunk:
        count = min(rows_at_once, 2000 - first)
        ids = RowIds.run(0, first, count)
        if kind == "dense":
            return Columns(LEAF, (np.zeros((count, 125)),), ids)
        return texts([bytes(984)] * count, first) if kind == "variable" else Items([np.zeros(125)] * count, ids)

    # 256 rows have about 256 kB, twice as many would have more than 500.
    buffer = ShuffleBuffer(ShuffleOrder(8192, key_of(1), growing=True), max_nbytes=500_000)
    counts = row_counts([chunk(first) for first in range(0, 2000, rows_at_once)], buffer)
    assert counts[-1] == max(counts) == buffer.order.buffer_size == 256


def test_where_a_buffer_stopped_growing_is_part_of_its_state() -> None:
    def fresh() -> ShuffleBuffer:
        return ShuffleBuffer(ShuffleOrder(8192, key_of(1), growing=True), max_nbytes=50_000)

    def chunk(first: int, count: int) -> Chunk:
        return texts([b"%0984d" % row for row in range(first, first + count)], first)

    whole = fresh()
    expected: list[Any] = []
    for first in range(0, 300, 10):
        part = whole.push(chunk(first, 10))
        expected += [] if part is None else part.elements()
    for cut in range(0, 300, 10):
        before, after = fresh(), fresh()
        out: list[Any] = []
        for first in range(0, cut, 10):
            part = before.push(chunk(first, 10))
            out += [] if part is None else part.elements()
        held = chunk(0, 300).take(before.held().ids.ordinals.copy())
        after.restore(before.order.state(), [held])
        part = after.push(chunk(cut, 300 - cut))
        assert part is not None
        assert out + part.elements() == expected


def test_a_buffer_of_small_rows_grows_to_its_size() -> None:
    buffer = ShuffleBuffer(ShuffleOrder(1000, key_of(1), growing=True), max_nbytes=1 << 20)
    assert row_counts([numbers(0, 5000)], buffer) == [1000]
