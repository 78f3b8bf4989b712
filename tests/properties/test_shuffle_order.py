"""A shuffled order depends on the key and the rows alone, and can be resumed at every step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from aiostream_data.records import Chunk, Columns, VarColumn, run_of_ids
from aiostream_data.structure import structure_of
from aiostream_data.transforms.randomness import draws_below, key_of, permutation
from aiostream_data.transforms.shuffle import ShuffleBuffer, ShuffleOrder

CUTS = st.lists(st.integers(0, 15), max_size=8)


def rows(first: int, count: int) -> Columns:
    """Rows whose columns all follow from their number; the lengths vary."""
    names = np.arange(first, first + count)
    lengths = names % 5
    values = np.repeat(names, lengths).astype(np.uint8)
    starts = np.cumsum(lengths) - lengths
    return Columns(structure_of((0, b"")), (names, VarColumn(values, starts, lengths)), run_of_ids(1, first, count))


def row_by_row(seed: int, buffer_size: int, total: int) -> list[int]:
    """Follow tf.data's description one row at a time."""
    held: list[int] = []
    out = []
    for row in range(total):
        if len(held) < buffer_size:
            held.append(row)
        else:
            slot = int(draws_below(key_of(seed), row, buffer_size, 1)[0])
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
    ids = buffer.held_ids()[:, 1]
    everything = rows(0, int(ids.max(initial=-1)) + 1)
    return [everything.take(part.copy()) for part in (ids[:cut], ids[cut:])]


@given(CUTS, st.integers(1, 30), st.integers(0, 100), st.integers(1, 9))
def test_the_order_is_the_same_however_the_stream_is_cut(cuts: list[int], size: int, seed: int, drain: int) -> None:
    buffer = ShuffleBuffer(ShuffleOrder(size, key_of(seed)))
    out: list[int] = []
    first = 0
    for count in cuts:
        take(buffer.push(rows(first, count)), out)
        first += count
    while len(buffer):
        take(buffer.drain(drain), out)
    assert out == row_by_row(seed, size, first)


@given(CUTS, st.integers(1, 30), st.integers(0, 100), st.integers(1, 9), st.integers(0, 5))
def test_resuming_at_every_step_gives_the_same_remainder(
    cuts: list[int], size: int, seed: int, drain: int, cut: int
) -> None:
    def resumed(buffer: ShuffleBuffer) -> ShuffleBuffer:
        fresh = ShuffleBuffer(ShuffleOrder(size, key_of(0)))
        fresh.restore(buffer.order.state(), held_rows(buffer, cut))
        assert fresh.held_ids().tolist() == buffer.held_ids().tolist()
        return fresh

    buffer = ShuffleBuffer(ShuffleOrder(size, key_of(seed)))
    out: list[int] = []
    first = 0
    for count in cuts:
        take(buffer.push(rows(first, count)), out)
        first += count
        buffer = resumed(buffer)
    while len(buffer):
        take(buffer.drain(drain), out)
        buffer = resumed(buffer)
    assert out == row_by_row(seed, size, first)


@given(st.integers(1, 30), st.integers(0, 60), st.integers(0, 200))
def test_pushed_for_is_the_least_push_that_sends_so_many_rows_out(size: int, given_rows: int, seed: int) -> None:
    order = ShuffleOrder(size, key_of(seed))
    needed = order.pushed_for(given_rows)
    _, out = order.push(needed)
    assert len(out) == given_rows
    if needed:
        _, out = ShuffleOrder(size, key_of(seed)).push(needed - 1)
        assert len(out) < given_rows
