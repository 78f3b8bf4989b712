"""Row ids are canonical: no method lets the width of the array that holds them show."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiostream_data.errors import StateMismatchError
from aiostream_data.rows.row_id_buffer import RowIdBuffer
from aiostream_data.rows.row_ids import CUT, JOINED, NUMBERED, PADDING, RowIds

PAIRS = st.tuples(st.integers(0, 2**50), st.integers(0, 2**40))
ROWS = st.lists(st.lists(PAIRS, min_size=1, max_size=4), min_size=1, max_size=6)


def ids_of(rows: list[list[tuple[int, int]]], extra_pairs: int = 0) -> RowIds:
    """Return ids held in an array that is wider than they need."""
    width = 2 * (max(map(len, rows), default=1) + extra_pairs)
    columns = np.full((len(rows), width), -1, np.int64)
    for row, pairs in enumerate(rows):
        columns[row, : 2 * len(pairs)] = np.array(pairs).reshape(-1)
    return RowIds.from_padded(columns)


def flat(rows: list[list[tuple[int, int]]]) -> list[list[int]]:
    return [[number for pair in pairs for number in pair] for pairs in rows]


@given(ROWS, st.integers(0, 3))
def test_equal_ids_are_equal_in_arrays_of_any_width(rows: list[list[tuple[int, int]]], extra: int) -> None:
    narrow, wide = ids_of(rows), ids_of(rows, extra)
    assert narrow == wide
    assert narrow.keys() == wide.keys()
    assert narrow.tolist() == wide.tolist() == flat(rows)
    for width in (2, 4, 12):
        assert (narrow.padded(width) == wide.padded(width)).all()
        assert narrow.padded(width).shape == wide.padded(width).shape
        assert RowIds.from_padded(wide.padded(width)) == narrow
    assert [wide.pairs_of(row) for row in range(len(rows))] == rows
    assert pickle.loads(pickle.dumps(wide)) == narrow
    assert narrow.order().tolist() == wide.order().tolist()


@given(ROWS, ROWS, st.integers(0, 2), st.integers(0, 2))
def test_a_joined_id_depends_on_its_two_rows_alone(
    left: list[list[tuple[int, int]]], right: list[list[tuple[int, int]]], left_extra: int, right_extra: int
) -> None:
    rows = min(len(left), len(right))
    left, right = left[:rows], right[:rows]
    joined = ids_of(left, left_extra).join(ids_of(right, right_extra))
    alone = [ids_of([a]).join(ids_of([b])) for a, b in zip(left, right, strict=True)]
    assert joined == RowIds.concat(alone)
    assert joined.tolist() == [[*a, *b, JOINED, len(b)] for a, b in zip(flat(left), flat(right), strict=True)]
    assert joined.split() == (ids_of(left), ids_of(right))


@given(ROWS, st.integers(0, 2))
def test_a_pair_is_appended_behind_the_last_one_of_each_row_and_removed_again(
    rows: list[list[tuple[int, int]]], extra: int
) -> None:
    ids = ids_of(rows, extra)
    numbers = np.arange(len(rows)) * 7
    longer = ids.with_pair(NUMBERED, numbers)
    assert longer.tolist() == [[*row, NUMBERED, 7 * n] for n, row in enumerate(flat(rows))]
    assert longer.last_ordinals().tolist() == numbers.tolist()
    assert longer.ends_with(NUMBERED).all()
    assert not longer.ends_with(CUT).any()
    assert longer.without_pair() == ids


def test_a_pair_may_be_appended_to_some_rows_only() -> None:
    ids = ids_of([[(9, 1)], [(9, 2), (CUT, 5)], [(9, 3)]])
    some = np.array([False, True, True])
    marked = ids.with_pair(PADDING, np.array([7, 8, 9]), where=some)
    assert marked.tolist() == [[9, 1], [9, 2, CUT, 5, PADDING, 8], [9, 3, PADDING, 9]]
    assert marked.ends_with(PADDING).tolist() == some.tolist()
    assert marked.without_pair(where=some) == ids


def test_ids_of_one_pair_have_none_to_remove_and_were_not_joined() -> None:
    ids = RowIds.run(3, 0, 2)
    with pytest.raises(StateMismatchError, match="lacks the pair"):
        ids.without_pair()
    with pytest.raises(StateMismatchError, match="does not combine two rows"):
        ids.split()


@pytest.mark.parametrize("width", [0, 1, 3, 4, 2**40])
def test_a_joined_id_with_an_impossible_width_is_refused(width: int) -> None:
    ids = ids_of([[(9, 1), (9, 2), (JOINED, width)]])
    with pytest.raises(StateMismatchError, match="does not combine two rows"):
        ids.split()


@pytest.mark.parametrize(
    "columns",
    [
        np.zeros(3, np.int64),
        np.zeros((3, 1), np.int64),
        np.zeros((3, 3), np.int64),
        np.zeros((3, 2)),
        np.array([[-1, 0]]),
        np.array([[1, 0, -1, -1, 2, 0]]),
    ],
)
def test_an_array_that_holds_no_ids_is_refused(columns: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> None:
    with pytest.raises(ValueError, match="row ids must"):
        RowIds.from_padded(columns)


@given(st.lists(ROWS, min_size=1, max_size=5), st.data())
def test_a_buffer_gives_back_the_ids_that_it_was_given(parts: list[list[list[tuple[int, int]]]], data: Any) -> None:
    buffer, held = RowIdBuffer(100), list[list[int]]()
    for rows in parts:
        ids = ids_of(rows, data.draw(st.integers(0, 2)))
        exchanges = data.draw(st.booleans())
        if held and exchanges:
            slots = data.draw(st.lists(st.integers(0, len(held) - 1), min_size=len(rows), max_size=len(rows)))
            expected = []
            for slot, row in zip(slots, flat(rows), strict=True):
                expected.append(held[slot])
                held[slot] = row
            assert buffer.exchange(np.array(slots), ids).tolist() == expected
        else:
            buffer.fill(len(held), ids)
            held += flat(rows)
        assert buffer.take(np.arange(len(held))).tolist() == held


def test_ids_can_be_neither_indexed_nor_turned_into_an_array() -> None:
    ids = RowIds.run(0, 0, 3)
    with pytest.raises(TypeError):
        ids[0]  # type: ignore[index]
    assert np.asarray(ids).dtype == object
    with pytest.raises(TypeError):
        hash(ids)


@pytest.mark.parametrize("rows", [0, 1, 5])
@pytest.mark.parametrize("kind", [CUT, PADDING])
def test_ids_say_whether_any_ends_with_a_kind_of_pair(rows: int, kind: int) -> None:
    source = RowIds.run(7, 100, rows)
    run = source.with_pair(PADDING, 0)
    for ids in (source, run, RowIds.from_padded(run.padded()), run.join(source)):
        assert ids.any_ends_with(kind) == bool(ids.ends_with(kind).any())
    if rows > 1:
        some = source.with_pair(PADDING, 0, where=np.arange(rows) == 1)
        assert some.any_ends_with(kind) == (kind == PADDING)


@given(st.data())
def test_ids_of_runs_are_gathered_as_their_arrays_are(data: Any) -> None:
    runs = [RowIds.run(split, 10 * split, 5) for split in range(3)]
    if data.draw(st.booleans()):
        runs = [run.with_pair(NUMBERED, split) for split, run in enumerate(runs)]
    choices = data.draw(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4)), max_size=30))
    which = np.array([run for run, _ in choices], np.int32)
    rows = np.array([row for _, row in choices], np.int64)
    arrays = [RowIds.from_padded(run.padded()) for run in runs]
    assert RowIds.gather(runs, which, rows).tolist() == RowIds.gather(arrays, which, rows).tolist()
