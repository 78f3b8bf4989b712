"""A shuffle whose rows wait in a file gives the same rows, in the same order, as one that holds them in memory."""

from __future__ import annotations

from tempfile import gettempdir
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from aiostream_data.rows.columns import VarColumn
from aiostream_data.rows.ragged import RaggedArray
from aiostream_data.rows.records import Chunk, Columns, Items
from aiostream_data.rows.row_ids import CUT, RowIds
from aiostream_data.rows.structure import LEAF, NULLABLE, graft, structure_of
from aiostream_data.testing.comparing import same
from aiostream_data.transforms.randomness import key_of
from aiostream_data.transforms.shuffle_buffer import ShuffleBuffer, ShuffleOrder
from aiostream_data.transforms.spilled_slots import Spill, SpilledSlots

FOLDER = gettempdir()


class Pair(NamedTuple):
    left: Any
    right: Any


def variable(rows: int, kind: Any, values: NDArray[Any]) -> VarColumn:
    """Cut a column out of ``values``: rows overlap, leave gaps and are out of order; some are empty."""
    starts = (np.arange(rows) * 7919) % max(1, len(values) - 12)
    return VarColumn(values, starts, (starts * 31 + np.arange(rows)) % 12, kind)


LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz" * 20, np.uint8)


def records(ids: RowIds) -> Chunk:
    return Columns(LEAF, (variable(len(ids), "bytes", LETTERS),), ids)


def numbers(ids: RowIds) -> Chunk:
    return Columns(LEAF, (ids.ordinals * 3,), ids)


def several(ids: RowIds) -> Chunk:
    """One leaf of each sort: two of differing length, text, a row shape, big-endian, no bytes at all."""
    rows = len(ids)
    ragged = variable(rows, "array", np.arange(600, dtype=np.float32).reshape(300, 2))
    strided = np.repeat(ids.ordinals[:, None].astype(">i4"), 6, axis=1)[:, ::2]
    leaves = (ragged, variable(rows, "str", LETTERS), strided, np.full(rows, "né"), np.empty((rows, 0), np.int16))
    return Columns(structure_of({"a": 0, "b": 0, "c": (0, 0), "d": 0}), leaves, ids)


def no_values(ids: RowIds) -> Chunk:
    """Rows that differ in length, although their values have no bytes."""
    return Columns(LEAF, (variable(len(ids), "array", np.empty((300, 0), np.int8)),), ids)


def objects(ids: RowIds) -> Chunk:
    values = np.array([*map(str, ids.ordinals.tolist()), ""], object)[:-1]
    return Columns(LEAF, (values,), ids)


def elements(ids: RowIds) -> Chunk:
    """Elements of any classes; those of the third and the last sort have no bytes."""
    sorts = (
        lambda n: {"x": np.full(n % 5, n), "t": (n, [b"b" * (n % 50), "é"], None), "s": np.float32(n)},
        lambda n: RaggedArray(np.arange(n % 4), np.array([0, n % 4])),
        lambda n: Pair(n, np.arange(3)),
        lambda n: np.asfortranarray(np.full((2, 3), n)),
        lambda n: frozenset({n}),
    )
    return Items([sorts[n % len(sorts)](n) for n in ids.ordinals.tolist()], ids)


def put_together(ids: RowIds) -> Chunk:
    """Elements that were made of several rows."""
    made_of: list[Any] = [RowIds.run(0, n, n % 3) if n % 2 else None for n in ids.ordinals.tolist()]
    return records(ids).with_made_of(made_of)


def wider(ids: RowIds) -> Chunk:
    return records(ids.with_pair(CUT, 5))


def with_marks(*marked: str) -> Any:
    """Rows of text and numbers, of which every third of the named leaves is missing."""

    def made(ids: RowIds) -> Chunk:
        leaves: list[Any] = []
        for name, leaf in (("text", variable(len(ids), "str", LETTERS)), ("number", ids.ordinals * 3)):
            leaves += [leaf, ids.ordinals % 3 > 0] if name in marked else [leaf]
        parts = {name: NULLABLE if name in marked else LEAF for name in ("text", "number")}
        return Columns(graft(structure_of({"text": 0, "number": 0}), list(parts.values())), tuple(leaves), ids)

    return made


MARKED = (with_marks(), with_marks("text"), with_marks("number"), with_marks("text", "number"))
KINDS = (records, numbers, several, no_values, objects, elements, put_together, wider, *MARKED)
SIZES = st.lists(st.integers(1, 60), min_size=1, max_size=8)
SPILLS = st.builds(Spill, st.just(FOLDER), st.sampled_from([0, 300, 5_000]), st.sampled_from([64, 300, 4_000]))


@st.composite
def streams(draw: st.DrawFn, sorts: Any = KINDS) -> list[Chunk]:
    """Chunks of one layout, or of several."""
    kinds = draw(st.lists(st.sampled_from(sorts), min_size=1, max_size=3))
    chunks, first = [], 0
    for size in draw(SIZES):
        chunks.append(kinds[draw(st.integers(0, len(kinds) - 1))](RowIds.run(0, first, size)))
        first += size
    return chunks


@st.composite
def orders(draw: st.DrawFn) -> tuple[int, bool, int | None]:
    """Buffer size, whether it grows, and the bytes at which it stops."""
    growing = draw(st.booleans())
    return draw(st.integers(1, 150)), growing, draw(st.sampled_from([500, 4_000, 1 << 20])) if growing else None


def buffer_of(order: tuple[int, bool, int | None], spill: Spill | None) -> ShuffleBuffer:
    size, growing, most = order
    return ShuffleBuffer(ShuffleOrder(size, key_of(1), growing), most, spill)


def given_rows(chunk: Chunk | None) -> list[Any]:
    if chunk is None:
        return []
    made_of = chunk.made_of or [None] * len(chunk)
    return [type(chunk), *zip(chunk.elements(), chunk.ids.tolist(), made_of, strict=True)]


def is_same(expected: Chunk | None, found: Chunk | None) -> bool:
    return same(given_rows(expected), given_rows(found))


@given(streams(), orders(), SPILLS, st.integers(1, 40))
@settings(max_examples=100, deadline=None)
def test_the_same_rows_come_out(chunks: list[Chunk], order: Any, spill: Spill, drain: int) -> None:
    plain, spilled = buffer_of(order, None), buffer_of(order, spill)
    try:
        for chunk in chunks:
            assert is_same(plain.push(chunk), spilled.push(chunk))
            assert same(plain.held().ids.tolist(), spilled.held().ids.tolist())
            assert plain.order.state() == spilled.order.state()
        while (expected := plain.drain(drain)) is not None:
            assert is_same(expected, spilled.drain(drain))
        assert spilled.drain(drain) is None
        assert spilled.nbytes_on_disk == 0
    finally:
        spilled.drop()


@given(streams(MARKED), orders(), st.none() | SPILLS)
@settings(max_examples=100, deadline=None)
def test_rows_with_and_without_marks_of_missing_values_stay_columns(
    chunks: list[Chunk], order: Any, spill: Spill | None
) -> None:
    rows = {ordinal: row for chunk in chunks for ordinal, row in zip(chunk.ids.ordinals, chunk.elements(), strict=True)}
    buffer = buffer_of(order, spill)
    try:
        found = [buffer.push(chunk) for chunk in chunks]
        while (part := buffer.drain(7)) is not None:
            found.append(part)
    finally:
        buffer.drop()
    given = [chunk for chunk in found if chunk is not None]
    assert all(isinstance(chunk, Columns) for chunk in given)
    ordinals = [ordinal for chunk in given for ordinal in chunk.ids.ordinals]
    assert same([rows.pop(ordinal) for ordinal in ordinals], [row for chunk in given for row in chunk.elements()])
    assert not rows


@given(st.integers(1, 200), st.integers(60, 150), st.sampled_from([500, 2_000, 4_000]), st.none() | SPILLS)
@settings(max_examples=60, deadline=None)
def test_where_a_buffer_stops_growing_does_not_depend_on_which_chunks_have_marks(
    count: int, size: int, most: int, spill: Spill | None
) -> None:
    both = MARKED[3](RowIds.run(0, 0, count))
    alone = [(MARKED[0] if row % 3 else MARKED[3])(RowIds.run(0, row, 1)) for row in range(count)]
    at_once, one_by_one = buffer_of((size, True, most), spill), buffer_of((size, True, most), None)
    try:
        at_once.push(both)
        for chunk in alone:
            one_by_one.push(chunk)
        assert at_once.order.state() == one_by_one.order.state()
    finally:
        at_once.drop()


def rows_held(buffer: ShuffleBuffer, chunks: list[Chunk]) -> dict[int, Chunk]:
    """Return the rows that a buffer holds, by ordinal, each as it came."""
    ordinals = set(buffer.held().ids.ordinals.tolist())
    found = {}
    for chunk in chunks:
        for row, ordinal in enumerate(chunk.ids.ordinals.tolist()):
            if ordinal in ordinals:
                found[ordinal] = chunk.slice(row, row + 1)
    return found


@given(streams(), orders(), SPILLS, st.integers(0, 8), st.integers(0, 100), st.integers(1, 9), st.data())
@settings(max_examples=100, deadline=None)
def test_rows_that_are_given_back_in_any_order_go_on_alike(
    chunks: list[Chunk], order: Any, spill: Spill, pushed: int, drained: int, piece: int, data: st.DataObject
) -> None:
    before = buffer_of(order, None)
    for chunk in chunks[:pushed]:
        before.push(chunk)
    if pushed >= len(chunks) and drained and len(before):
        before.drain(drained)
    held = before.held().ids.ordinals.tolist()
    rows = rows_held(before, chunks)
    plain, spilled = buffer_of(order, None), buffer_of(order, spill)
    places = data.draw(st.permutations(range(len(held))))
    try:
        plain.restore(before.order.state(), [rows[ordinal] for ordinal in held])
        spilled.begin_restore(before.order.state(), np.array(places, np.int64))
        for place in places:
            spilled.give_back(rows[held[place]])
        spilled.end_restore()
        assert spilled.held().ids.ordinals.tolist() == held
        for chunk in chunks[pushed:]:
            assert same_elements(plain.push(chunk), spilled.push(chunk))
        while (expected := plain.drain(piece)) is not None:
            assert same_elements(expected, spilled.drain(piece))
    finally:
        spilled.drop()


def same_elements(expected: Chunk | None, found: Chunk | None) -> bool:
    """Tell whether the rows are the same; whether as columns depends on the layout of the row that came back first."""
    if expected is None or found is None:
        return expected is found
    return same(expected.elements(), found.elements()) and expected.ids == found.ids


def test_another_number_of_rows_than_were_held_is_refused() -> None:
    buffer = buffer_of((10, False, None), Spill(FOLDER, 0, 64))
    buffer.begin_restore({"key": 1, "size": 10, "pushed": 8, "drained": 0})
    buffer.give_back(records(RowIds.run(0, 0, 7)))
    with pytest.raises(ValueError, match="the buffer held 8 rows, but 7 rows were recomputed"):
        buffer.end_restore()
    buffer.drop()


@pytest.mark.parametrize("make", [records, several, elements], ids=lambda make: make.__name__)
def test_the_file_stays_small_however_many_rows_pass(make: Any) -> None:
    buffer = ShuffleBuffer(ShuffleOrder(2_000, key_of(1)), None, Spill(FOLDER, 0, 8_000))
    sizes = []
    for first in range(0, 40_000, 100):
        buffer.push(make(RowIds.run(0, first, 100)))
        sizes.append(buffer.nbytes_on_disk)
    live = buffer.rows_nbytes
    buffer.drop()
    assert max(sizes) <= 4 * live
    assert max(sizes[200:]) <= 1.2 * max(sizes[:200])


def test_rows_far_larger_than_a_segment_use_space_again() -> None:
    draw = np.random.default_rng(0)
    buffer = ShuffleBuffer(ShuffleOrder(50, key_of(1)), None, Spill(FOLDER, 0, 4_096))
    peak = 0
    for first in range(0, 2_000, 5):
        lengths = draw.integers(0, 60_000, 5)
        values = VarColumn(
            draw.integers(0, 9, int(lengths.sum())).astype(np.uint8), np.cumsum(lengths) - lengths, lengths
        )
        buffer.push(Columns(LEAF, (values,), RowIds.run(0, first, 5)))
        peak = max(peak, buffer.nbytes_on_disk)
    live = buffer.rows_nbytes
    buffer.drop()
    assert live > 1_000_000
    assert peak < 3 * live


def test_memory_per_row_is_its_id_and_where_it_is() -> None:
    held = SpilledSlots(records(RowIds.run(0, 0, 1)), 10_000, Spill(FOLDER, 0, 4_096))  # type: ignore[arg-type]
    for first in range(0, 10_000, 100):
        held.fill(first, records(RowIds.run(0, first, 100)))
    nbytes = held.nbytes
    held.close()
    assert nbytes <= 36 * 10_000 + 2 * 4_096
