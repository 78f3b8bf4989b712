"""Rows that are held come back as they were, however chunks came and others were forgotten meanwhile."""

from __future__ import annotations

import gc
import weakref

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from aiostream_data.rows.columns import VarColumn
from aiostream_data.rows.records import Chunk, Columns, Items
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.rows.structure import structure_of
from aiostream_data.transforms.held_rows import HeldRows


def rows(first: int, count: int, as_items: bool = False) -> Chunk:
    """Rows whose columns all follow from their number; the lengths vary."""
    names = np.arange(first, first + count)
    lengths = names % 5
    values = np.repeat(names, lengths).astype(np.uint8)
    ids = RowIds.run(1, first, count)
    chunk = Columns(structure_of((0, b"")), (names, VarColumn(values, np.cumsum(lengths) - lengths, lengths)), ids)
    return Items(chunk.elements(), ids) if as_items else chunk


def check(chunk: Chunk, numbers: list[int]) -> None:
    assert [name for name, _ in chunk.elements()] == numbers
    assert [text for _, text in chunk.elements()] == [bytes([name % 256]) * (name % 5) for name in numbers]
    assert chunk.ids.tolist() == [[1, name] for name in numbers]


STEPS = st.lists(st.tuples(st.integers(0, 12), st.booleans(), st.randoms(use_true_random=False)), max_size=12)


@given(STEPS)
def test_what_is_held_comes_back_in_any_order(steps: list[tuple[int, bool, object]]) -> None:
    held = HeldRows()
    names: list[int] = []
    first = 0
    for count, as_items, random in steps:
        held.push(rows(first, count, as_items))
        names += range(first, first + count)
        first += count
        if names:
            asked = random.choices(names, k=7)  # type: ignore[attr-defined]
            check(held.take(np.array(asked, np.int64)), asked)
        names = sorted(random.sample(names, len(names) * 2 // 3))  # type: ignore[attr-defined]
        held.keep(np.array(names, np.int64))
        if names:
            check(held.take(np.array(names, np.int64)), names)
        assert held.nbytes <= 200 * (len(names) + 1) * 2


def test_rows_are_numbered_from_the_first_on() -> None:
    held = HeldRows(first=100)
    held.push(rows(100, 5))
    check(held.take(np.array([104, 100])), [104, 100])


def test_what_is_kept_holds_no_chunk_and_no_lease() -> None:
    class Lease:
        pass

    lease = Lease()
    watch = weakref.ref(lease)
    held = HeldRows()
    held.push(rows(0, 10).with_lease(lease))
    held.keep(np.arange(9))
    del lease
    gc.collect()
    assert watch() is None


def test_few_rows_do_not_keep_the_memory_of_many() -> None:
    held = HeldRows()
    held.push(rows(0, 10_000))
    held.keep(np.arange(5_000))
    most = held.nbytes
    held.keep(np.arange(10))
    assert held.nbytes < most / 100
