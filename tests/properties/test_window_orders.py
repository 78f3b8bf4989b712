"""Windows, cycles of batches, buckets and bins depend on the rows alone, and can be resumed at every step."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import cycle, islice, pairwise
from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiostream_data.transforms.bucketing import BucketOrder
from aiostream_data.transforms.packing import Bin, PackOrder, TooLong
from aiostream_data.transforms.windows import CycleOrder, WindowOrder

CUTS = st.lists(st.integers(0, 12), max_size=8)
LENGTHS = st.lists(st.integers(0, 14), max_size=60)
POLICIES = st.sampled_from(["split", "truncate", "drop"])

G = TypeVar("G")


def as_json(state: dict[str, Any]) -> dict[str, Any]:
    again: dict[str, Any] = json.loads(json.dumps(state))
    return again


# -- windows


def windows_as_tf_data_makes_them(
    rows: int, size: int, shift: int, stride: int, drop_remainder: bool
) -> list[list[int]]:
    """Follow TensorFlow's kernel: a buffer that is filled up to the span, and shifted."""
    span = (size - 1) * stride + 1
    source = iter(range(rows))
    buffer: list[int] = []
    windows: list[list[int]] = []
    while True:
        buffer += islice(source, max(0, span - len(buffer)))
        if not buffer or (drop_remainder and len(buffer) < span):
            return windows
        windows.append(buffer[::stride])
        for _ in range(shift - len(buffer)):
            next(source, None)
        buffer = buffer[shift:]


@given(CUTS, st.integers(1, 5), st.integers(1, 7), st.integers(1, 3), st.booleans())
def test_windows_are_those_of_tf_data(cuts: list[int], size: int, shift: int, stride: int, drop: bool) -> None:
    order = WindowOrder(size, shift, stride, drop)
    windows = [window.tolist() for cut in cuts for window in order.push(cut)]
    windows += [window.tolist() for window in order.finish()]
    assert windows == windows_as_tf_data_makes_them(sum(cuts), size, shift, stride, drop)


@given(CUTS, st.integers(1, 5), st.integers(1, 7), st.integers(1, 3), st.booleans())
def test_windows_go_on_from_the_first_row_they_need(
    cuts: list[int], size: int, shift: int, stride: int, drop: bool
) -> None:
    rows = sum(cuts)
    whole = windows_as_tf_data_makes_them(rows, size, shift, stride, drop)
    for given_windows in range(len(whole) + 1):
        order = WindowOrder(size, shift, stride, drop)
        first = min(order.begins(given_windows), rows)
        order.restore(as_json({"given": given_windows, "pushed": first}))
        left = [*order.push(rows - first), *order.finish()]
        assert [window.tolist() for window in left] == whole[given_windows:]
        assert order.state()["given"] == len(whole)


# -- a cycle of batch sizes


def batches_row_by_row(rows: int, sizes: Sequence[int], drop_remainder: bool) -> list[list[int]]:
    batches: list[list[int]] = []
    start = 0
    for size in cycle(sizes):
        if start + size > rows:
            return batches if drop_remainder or start == rows else [*batches, list(range(start, rows))]
        batches.append(list(range(start, start + size)))
        start += size
    raise AssertionError


@given(CUTS, st.lists(st.integers(1, 5), min_size=1, max_size=4), st.booleans())
def test_batches_of_a_cycle_can_be_resumed_after_each(cuts: list[int], sizes: list[int], drop: bool) -> None:
    whole = batches_row_by_row(sum(cuts), sizes, drop)
    order = CycleOrder(sizes, drop)
    batches = [batch.tolist() for cut in cuts for batch in order.push(cut)]
    assert batches + [batch.tolist() for batch in order.finish()] == whole
    for given_batches in range(len(whole) + 1):
        order = CycleOrder(sizes, drop)
        first = min(order.begins(given_batches), sum(cuts))
        order.restore(as_json({"given": given_batches, "pushed": first}))
        left = [*order.push(sum(cuts) - first), *order.finish()]
        assert [batch.tolist() for batch in left] == whole[given_batches:]


# -- what holds rows back, and so can be resumed with those rows


def split_at(lengths: list[int], cuts: list[int]) -> list[np.ndarray[Any, np.dtype[np.int64]]]:
    stops = [min(stop, len(lengths)) for stop in np.cumsum([0, *cuts]).tolist()]
    bounds = [*stops, len(lengths)]
    return [np.array(lengths[a:b], np.int64) for a, b in pairwise(bounds)]


def given_by(order: Any, parts: list[Any], named: Callable[[Any], G]) -> list[G]:
    return [named(group) for part in parts for group in order.push(part)] + [named(g) for g in order.finish()]


def resumed_after_every_group(
    make: Callable[[], Any], lengths: list[int], named: Callable[[Any, list[int]], G]
) -> None:
    """Take a group at a time; after each, go on with a fresh order and the rows that were held."""
    rows = list(range(len(lengths)))
    array = np.array(lengths, np.int64)
    unbroken = make()
    whole = [named(group, rows) for group in [*unbroken.push(array), *unbroken.finish()]]
    for stop in range(len(whole) + 1):
        order = make()
        groups = order.push(array, limit=stop)
        pushed = order.pushed if len(groups) == stop else len(lengths)
        groups += order.finish(stop - len(groups)) if len(groups) < stop else []
        held = order.held()
        fresh = make()
        fresh.restore(as_json(order.state()), array[held])
        names = [*held.tolist(), *range(pushed, len(lengths))]
        left = [*fresh.push(array[pushed:]), *fresh.finish()]
        assert [named(group, rows) for group in groups] + [named(group, names) for group in left] == whole


# -- buckets


def buckets_row_by_row(
    lengths: list[int], boundaries: list[int], sizes: list[int], drop: bool
) -> list[tuple[int, list[int]]]:
    held: dict[int, list[int]] = {}
    out = []
    for row, length in enumerate(lengths):
        bucket = sum(length >= boundary for boundary in boundaries)
        held.setdefault(bucket, []).append(row)
        if len(held[bucket]) == sizes[bucket]:
            out.append((bucket, held.pop(bucket)))
    return out if drop else [*out, *sorted(held.items())]


BUCKETS = st.sets(st.integers(1, 13), max_size=4).map(sorted)


@given(LENGTHS, CUTS, BUCKETS, st.lists(st.integers(1, 6), min_size=5, max_size=5), st.booleans())
def test_buckets_come_out_as_they_fill_and_then_in_order(
    lengths: list[int], cuts: list[int], boundaries: list[int], sizes: list[int], drop: bool
) -> None:
    order = BucketOrder(boundaries, sizes[: len(boundaries) + 1], drop)
    batches = given_by(order, split_at(lengths, cuts), lambda batch: (batch.bucket, batch.rows.tolist()))
    assert batches == buckets_row_by_row(lengths, boundaries, sizes, drop)
    assert sum(len(rows) for _, rows in batches) + order.dropped == len(lengths)
    assert not len(order.held())


@given(LENGTHS, BUCKETS, st.lists(st.integers(1, 6), min_size=5, max_size=5), st.booleans())
def test_buckets_go_on_with_the_rows_they_held(
    lengths: list[int], boundaries: list[int], sizes: list[int], drop: bool
) -> None:
    resumed_after_every_group(
        lambda: BucketOrder(boundaries, sizes[: len(boundaries) + 1], drop),
        lengths,
        lambda batch, names: (batch.bucket, [names[row] for row in batch.rows.tolist()]),
    )


# -- bins


def bins_row_by_row(
    lengths: list[int], max_length: int, open_bins: int, policy: str
) -> list[list[tuple[int, int, int]]]:
    """First fit as one would write it down, with a list of bins."""
    held: list[list[tuple[int, int, int]]] = []
    out = []

    def room(pieces: list[tuple[int, int, int]]) -> int:
        return max_length - sum(stop - start for _, start, stop in pieces)

    for row, length in enumerate(lengths):
        if length > max_length and policy == "drop":
            continue
        end = min(length, max_length) if policy == "truncate" else length
        for start in range(0, end, max_length):
            piece = (row, start, min(start + max_length, end))
            fits = [pieces for pieces in held if room(pieces) >= piece[2] - start]
            needs_room = piece[2] - start < max_length or open_bins == 1
            if not fits and needs_room and len(held) == open_bins:
                out.append(held.pop(held.index(min(held, key=room))))
            if not fits:
                held.append([])
            target = fits[0] if fits else held[-1]
            target.append(piece)
            if not room(target):
                out.append(held.pop(held.index(target)))
    return out + held


def pieces_of(packed: Bin, names: list[int]) -> list[tuple[int, int, int]]:
    return [(names[piece.row], piece.start, piece.stop) for piece in packed.pieces]


@given(LENGTHS, CUTS, st.integers(1, 10), st.integers(1, 4), POLICIES)
def test_bins_are_packed_first_fit(
    lengths: list[int], cuts: list[int], max_length: int, open_bins: int, policy: TooLong
) -> None:
    order = PackOrder(max_length, open_bins, policy)
    rows = list(range(len(lengths)))
    bins = given_by(order, split_at(lengths, cuts), lambda packed: pieces_of(packed, rows))
    assert bins == bins_row_by_row(lengths, max_length, open_bins, policy)
    ends = [piece for packed in bins for piece in packed if piece[2] == lengths[piece[0]] or policy == "truncate"]
    assert len(ends) + order.dropped == len(lengths)


@given(LENGTHS, st.integers(1, 10), POLICIES)
def test_a_lone_open_bin_keeps_the_order_of_rows(lengths: list[int], max_length: int, policy: TooLong) -> None:
    order = PackOrder(max_length, 1, policy)
    bins = [*order.push(np.array(lengths, np.int64)), *order.finish()]
    pieces = [(piece.row, piece.start) for packed in bins for piece in packed.pieces]
    assert pieces == sorted(pieces)


OPEN_BINS = (1, 2, 4, 8, 16, 64)
FILLED = {"uniform": (74, 83, 89, 93, 96, 98), "log-normal": (82, 95, 98, 99, 99, 99)}
"""Whole per cents of packed rows that are values, as docs/windows.md states them."""


def drawn_lengths(kind: str, seed: int) -> tuple[int, np.ndarray[Any, np.dtype[np.int64]]]:
    """Return what a packed row holds, and 5,000 lengths."""
    rng = np.random.default_rng(seed)
    if kind == "uniform":
        return 64, rng.integers(1, 50, 5000)
    return 2048, np.clip(rng.lognormal(5.5, 1, 5000).astype(np.int64), 1, 2048)


@pytest.mark.parametrize("kind", FILLED)
def test_more_open_bins_waste_less(kind: str) -> None:
    found = []
    for open_bins in OPEN_BINS:
        values = room = 0
        for seed in range(5):
            width, lengths = drawn_lengths(kind, seed)
            order = PackOrder(width, open_bins)
            values += int(lengths.sum())
            room += width * (len(order.push(lengths)) + len(order.finish()))
        found.append(100 * values // room)
    assert tuple(found) == FILLED[kind] == tuple(sorted(FILLED[kind]))


@given(LENGTHS, st.integers(1, 10), st.integers(1, 4), POLICIES)
def test_bins_go_on_with_the_rows_they_held(
    lengths: list[int], max_length: int, open_bins: int, policy: TooLong
) -> None:
    resumed_after_every_group(lambda: PackOrder(max_length, open_bins, policy), lengths, pieces_of)


@given(LENGTHS, st.integers(1, 10), st.integers(1, 4), POLICIES, st.integers(0, 60))
def test_a_copy_of_an_order_goes_on_by_itself(
    lengths: list[int], max_length: int, open_bins: int, policy: TooLong, cut: int
) -> None:
    array = np.array(lengths, np.int64)
    order = PackOrder(max_length, open_bins, policy)
    order.push(array[:cut])
    copies = [order.copy(), order.copy()]
    first, second = ([packed.pieces for packed in [*copy.push(array[cut:]), *copy.finish()]] for copy in copies)
    assert first == second
    assert order.pushed == len(array[:cut])
