"""A shuffled order depends on the key and the rows alone, and can be resumed at every step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiostream_data.rows.columns import VarColumn
from aiostream_data.rows.records import Chunk, Columns
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.rows.structure import structure_of
from aiostream_data.transforms.randomness import draws_below, key_of, permutation
from aiostream_data.transforms.shuffle_buffer import GROW_EVERY, GROW_FROM, ShuffleBuffer, ShuffleOrder

CUTS = st.lists(st.integers(0, 15), max_size=8)
LONG_CUTS = st.lists(st.integers(0, 90), max_size=8)
LONG_SIZES = st.integers(1, 120)


def rows(first: int, count: int) -> Columns:
    """Rows whose columns all follow from their number; the lengths vary."""
    names = np.arange(first, first + count)
    lengths = names % 5
    values = np.repeat(names, lengths).astype(np.uint8)
    starts = np.cumsum(lengths) - lengths
    return Columns(structure_of((0, b"")), (names, VarColumn(values, starts, lengths)), RowIds.run(1, first, count))


def row_by_row(seed: int, buffer_size: int, total: int, growing: bool = False) -> list[int]:
    """Follow tf.data's description, or that of a growing buffer, one row at a time."""
    held: list[int] = []
    out = []
    for row in range(total):
        turn = growing and row >= GROW_FROM and (row - GROW_FROM) % GROW_EVERY == GROW_EVERY - 1
        if len(held) < buffer_size and not turn:
            held.append(row)
        else:
            slot = int(draws_below(key_of(seed), row, len(held), 1)[0])
            out.append(held[slot])
            held[slot] = row
    order = permutation(key_of(int(key_of(seed)), "drain"), len(held))
    return out + [held[slot] for slot in order.tolist()]


def take(part: Chunk | None, out: list[int]) -> None:
    """Add the rows of a part to ``out``, checking that each kept its id and its columns."""
    if part is None:
        return
    for (name, text), (_, ordinal) in zip(part.elements(), part.ids.tolist(), strict=True):
        assert ordinal == name
        assert text == bytes([name % 256]) * (name % 5)
        out.append(name)


def held_rows(buffer: ShuffleBuffer, cut: int) -> Sequence[Chunk]:
    """Read the held rows again by their ids, in two chunks."""
    ids = buffer.held().ids.ordinals
    everything = rows(0, int(ids.max(initial=-1)) + 1)
    return [everything.take(part.copy()) for part in (ids[:cut], ids[cut:])]


@settings(deadline=None)
@given(LONG_CUTS, LONG_SIZES, st.booleans(), st.integers(0, 100), st.integers(1, 99))
def test_the_order_is_the_same_however_the_stream_is_cut(
    cuts: list[int], size: int, growing: bool, seed: int, drain: int
) -> None:
    buffer = ShuffleBuffer(ShuffleOrder(size, key_of(seed), growing))
    out: list[int] = []
    first = 0
    for count in cuts:
        take(buffer.push(rows(first, count)), out)
        first += count
    while len(buffer):
        take(buffer.drain(drain), out)
    assert out == row_by_row(seed, size, first, growing)


@settings(deadline=None)
@given(CUTS | LONG_CUTS, LONG_SIZES, st.booleans(), st.integers(0, 9))
def test_resuming_at_every_step_gives_the_same_remainder(cuts: list[int], size: int, growing: bool, cut: int) -> None:
    seed, drain = cut, 7 + 3 * cut

    def resumed(buffer: ShuffleBuffer) -> ShuffleBuffer:
        fresh = ShuffleBuffer(ShuffleOrder(size, key_of(0), growing))
        fresh.restore(buffer.order.state(), held_rows(buffer, cut))
        assert fresh.held().ids.tolist() == buffer.held().ids.tolist()
        return fresh

    buffer = ShuffleBuffer(ShuffleOrder(size, key_of(seed), growing))
    out: list[int] = []
    first = 0
    for count in cuts:
        take(buffer.push(rows(first, count)), out)
        first += count
        buffer = resumed(buffer)
    while len(buffer):
        take(buffer.drain(drain), out)
        buffer = resumed(buffer)
    assert out == row_by_row(seed, size, first, growing)


@given(LONG_SIZES, st.booleans(), st.integers(0, 400))
def test_pushed_for_is_the_least_push_that_sends_so_many_rows_out(size: int, growing: bool, rows_out: int) -> None:
    order = ShuffleOrder(size, key_of(1), growing)
    needed = order.pushed_for(rows_out)
    _, out = order.push(needed)
    assert len(out) == rows_out == order.given_after(needed)
    if needed:
        _, out = ShuffleOrder(size, key_of(1), growing).push(needed - 1)
        assert len(out) < rows_out


@given(LONG_SIZES, st.booleans(), st.integers(1, 120))
def test_a_slot_is_filled_by_the_row_that_the_order_foretells(size: int, growing: bool, slots: int) -> None:
    slots = min(size, slots)
    order = ShuffleOrder(size, key_of(1), growing)
    order.push(order.pushed_until_filled(slots) - 1)
    assert order.filled == slots - 1
    order.push(1)
    assert order.filled == slots


@given(LONG_SIZES, st.integers(65, 120), st.integers(0, 99), st.integers(0, 300))
def test_a_buffer_that_stops_growing_goes_on_as_if_it_had_been_made_that_small(
    small: int, large: int, seed: int, more: int
) -> None:
    stopped, made_small = (ShuffleOrder(size, key_of(seed), True) for size in (large, min(small, large)))
    first = made_small.pushed_until_filled(made_small.buffer_size)
    before = stopped.push(first), made_small.push(first)
    stopped.stop_growing()
    after = stopped.push(more), made_small.push(more)
    for left, right in (*zip(*before, strict=True), *zip(*after, strict=True)):
        assert left.tolist() == right.tolist()
    assert stopped.state() == made_small.state()
    assert stopped.drain(1 << 20).tolist() == made_small.drain(1 << 20).tolist()


def test_a_buffer_cannot_stop_growing_between_two_slots() -> None:
    order = ShuffleOrder(1000, key_of(1), True)
    order.push(GROW_FROM + GROW_EVERY)
    with pytest.raises(ValueError, match="stops growing"):
        order.stop_growing()
