"""A shuffle buffer holds rows of one length without offsets, and gives the same rows when others arrive."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from aiostream_data.rows.columns import VarColumn, VarKind
from aiostream_data.transforms.shuffle_slots import SameLengthSlots

MAX_SLOTS = 12


def column_of(rows: list[bytes], kind: VarKind = "bytes") -> VarColumn:
    """Return rows in reverse order of memory, with a gap before each."""
    values = b"".join(b"-" + row for row in reversed(rows))
    lengths = np.array([len(row) for row in rows], np.int64)
    starts = np.cumsum(lengths[::-1] + 1)[::-1] - lengths
    return VarColumn(np.frombuffer(values, np.uint8), starts.astype(np.int64), lengths, kind)


def drawn_rows(data: st.DataObject, count: int, length: int) -> list[bytes]:
    """Return rows that nearly always have the given length."""
    usual = st.binary(min_size=length, max_size=length)
    return [data.draw(st.one_of(usual, usual, usual, usual, st.binary(max_size=6))) for _ in range(count)]


@given(st.data(), st.integers(0, 4))
def test_rows_come_out_as_they_went_in(data: st.DataObject, length: int) -> None:
    first = drawn_rows(data, data.draw(st.integers(1, 4)), length)
    slots, held = SameLengthSlots(column_of(first), MAX_SLOTS), list(first)
    slots.fill(0, column_of(first))
    for _ in range(data.draw(st.integers(0, 6))):
        if data.draw(st.booleans()) and len(held) < MAX_SLOTS:
            added = drawn_rows(data, data.draw(st.integers(1, MAX_SLOTS - len(held))), length)
            slots.fill(len(held), column_of(added))
            held += added
            continue
        places = data.draw(st.lists(st.integers(0, len(held) - 1), max_size=8))
        incoming, given_back = drawn_rows(data, len(places), length), []
        for place, row in zip(places, incoming, strict=True):
            given_back.append(held[place])
            held[place] = row
        assert slots.exchange(np.array(places, np.int64), column_of(incoming)).elements() == given_back
    assert slots.take(np.arange(len(held))).elements() == held


def test_rows_of_one_length_take_their_bytes_and_no_more() -> None:
    rows = [b"%05d" % number for number in range(MAX_SLOTS)]
    slots = SameLengthSlots(column_of(rows, "str"), MAX_SLOTS)
    slots.fill(0, column_of(rows, "str"))
    for _ in range(10):
        slots.exchange(np.arange(MAX_SLOTS), column_of(rows, "str"))
    assert slots.nbytes == 5 * MAX_SLOTS
    assert slots.take(np.array([3])).elements() == ["00003"]
    slots.exchange(np.array([3]), column_of([b"longer"], "str"))
    found: list[Any] = slots.take(np.array([2, 3, 4])).elements()
    assert found == ["00002", "longer", "00004"]


def test_a_store_keeps_no_memory_of_the_rows_that_it_copied() -> None:
    column = column_of([b"12345"] * MAX_SLOTS)
    slots = SameLengthSlots(column, MAX_SLOTS)
    slots.fill(0, column)
    values = weakref.ref(column.values)
    del column
    gc.collect()
    assert values() is None
    assert len(slots.take(np.arange(MAX_SLOTS))) == MAX_SLOTS
