"""Ids of consecutive rows behave the same as a run and as an array."""

from __future__ import annotations

import pickle
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiostream_data.rows.id_runs import MOST_PIECES
from aiostream_data.rows.row_ids import CUT, JOINED, NUMBERED, PADDING, RowIds

KINDS = (CUT, NUMBERED, JOINED, PADDING)


def as_array(ids: RowIds) -> RowIds:
    """Return the same ids, which are no run."""
    return RowIds.from_padded(ids.padded().copy())


@st.composite
def runs(draw: st.DrawFn, rows: int | None = None) -> RowIds:
    """Ids of consecutive rows behind some operators."""
    count = draw(st.integers(1, 40)) if rows is None else rows
    ids = RowIds.run(draw(st.integers(0, 1 << 45)), draw(st.integers(0, 1 << 40)), count)
    for step in draw(st.lists(st.integers(0, 2), max_size=3)):
        if step == 0:
            ids = ids.with_pair(draw(st.sampled_from(KINDS)), draw(st.integers(0, 9)))
        elif step == 1:
            ids = ids.join_one(RowIds.run(draw(st.integers(0, 9)), draw(st.integers(0, 9)), 1))
        else:
            ids = ids.join(RowIds.run(draw(st.integers(0, 9)), draw(st.integers(0, 9)), count))
    return ids


def is_same(left: RowIds, right: RowIds) -> bool:
    return left.tolist() == right.tolist() and np.array_equal(left.padded(), right.padded())


@given(runs(), st.data())
@settings(max_examples=150)
def test_rows_are_selected_alike(run: RowIds, data: st.DataObject) -> None:
    array, count = as_array(run), len(run)
    assert count == len(array)
    assert run.nbytes == array.nbytes
    start, stop = data.draw(st.integers(-3, count + 3)), data.draw(st.integers(-3, count + 3))
    assert is_same(run.slice(start, stop), array.slice(start, stop))
    rows = data.draw(st.lists(st.integers(0, max(0, count - 1)), max_size=20 if count else 0))
    assert is_same(run.take(rows), array.take(rows))
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)), np.bool_)
    assert is_same(run.keep(mask), array.keep(mask))
    assert is_same(run.repeat(2), array.repeat(2))
    assert is_same(run.copy(), array)
    assert all(is_same(run.row(row), array.row(row)) for row in range(count))
    assert is_same(pickle.loads(pickle.dumps(run)), array)


@given(runs(), st.sampled_from(KINDS), st.data())
@settings(max_examples=150)
def test_ids_are_read_and_extended_alike(run: RowIds, kind: int, data: st.DataObject) -> None:
    array, count = as_array(run), len(run)
    assert run.namespaces() == array.namespaces()
    assert run.are_sources() == array.are_sources()
    assert np.array_equal(run.splits, array.splits)
    assert np.array_equal(run.ordinals, array.ordinals)
    for found, expected in zip(run.pairs(), array.pairs(), strict=True):
        assert all(np.array_equal(left, right) for left, right in zip(found, expected, strict=True))
    assert np.array_equal(run.ends_with(kind), array.ends_with(kind))
    assert run.keys() == array.keys()
    assert [run.pairs_of(row) for row in range(-count, count)] == [array.pairs_of(row) for row in range(-count, count)]
    with pytest.raises(IndexError):
        run.pairs_of(count)
    parts, arrays = [run, run.slice(count - 1, count)], [array, array.slice(count - 1, count)]
    assert is_same(RowIds.firsts(parts), RowIds.firsts(arrays))
    assert run == array
    assert is_same(run.with_pair(kind, 7), array.with_pair(kind, 7))
    numbers = np.arange(count)[::-1]
    assert is_same(run.with_pair(kind, numbers), array.with_pair(kind, numbers))
    where = np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)), np.bool_)
    assert is_same(run.with_pair(kind, numbers, where), array.with_pair(kind, numbers, where))
    one, other = data.draw(runs(1)), data.draw(runs(count))
    assert is_same(run.join_one(one), array.join_one(as_array(one)))
    assert is_same(run.join(other), array.join(as_array(other)))
    left, right = run.join(other).split()
    assert is_same(left, array)
    assert is_same(right, as_array(other))


@given(runs(), st.lists(st.integers(0, 40), max_size=5), st.booleans(), st.data())
@settings(max_examples=150)
def test_parts_are_put_together_again(run: RowIds, cuts: list[int], in_order: bool, data: st.DataObject) -> None:
    bounds = sorted({0, len(run), *(cut for cut in cuts if cut < len(run))})
    parts = run.cut(list(pairwise(bounds)))
    assert all(map(is_same, parts, as_array(run).cut(list(pairwise(bounds)))))
    if not in_order:
        parts = data.draw(st.permutations([*parts, data.draw(runs())]))
    whole = RowIds.concat(parts)
    assert is_same(whole, RowIds.concat([as_array(part) for part in parts]))
    if in_order and parts:
        assert whole.run_of_split() == run.run_of_split()


@given(runs(), st.lists(st.integers(0, 40), max_size=25), st.booleans(), st.data())
@settings(max_examples=150)
def test_rows_are_gathered_alike(run: RowIds, cuts: list[int], in_order: bool, data: st.DataObject) -> None:
    bounds = sorted({0, len(run), *(cut for cut in cuts if cut < len(run))})
    parts = [run.slice(start, stop) for start, stop in pairwise(bounds)]
    which = np.repeat(np.arange(len(parts), dtype=np.int32), [len(part) for part in parts])
    rows = np.concatenate([np.arange(len(part)) for part in parts])
    if not in_order:
        order = np.array(data.draw(st.lists(st.integers(0, len(run) - 1))), np.int64)
        which, rows = which[order], rows[order]
    found = RowIds.gather(parts, which, rows)
    assert is_same(found, RowIds.gather([as_array(part) for part in parts], which, rows))
    if in_order and len(parts) < MOST_PIECES:
        assert found.run_of_split() == run.run_of_split()


def test_only_runs_of_one_split_have_a_first_row() -> None:
    run = RowIds.run(3, 5, 4)
    assert run.run_of_split() == (5, (3,))
    assert run.slice(2, 4).with_pair(CUT, 1).run_of_split() == (7, (3, CUT, 1))
    assert run.join(run).run_of_split() is None
    assert as_array(run).run_of_split() is None
