"""R30: whatever the shards' sizes and the number of ranks, all ranks get as many rows, and no row is lost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from aiostream_data.errors import RankError
from aiostream_data.ranks import Tail, rows_per_rank
from aiostream_data.transforms.rank_rows import RankOrder

TAILS: st.SearchStrategy[Tail] = st.sampled_from(["drop", "pad", "repeat"])
SHARDS = st.lists(st.integers(0, 50), max_size=8)
WORLDS = st.integers(1, 9)


def given_rows(order: RankOrder, first: int, sizes: list[int]) -> tuple[list[int], bool, int]:
    """Return the rows a rank gives when shards of these sizes come, the first row being number ``first``."""
    held = np.empty(0, np.int64)
    given: list[int] = []
    for size in sizes:
        known = np.concatenate([held, np.arange(first, first + size)])
        share = order.push(size)
        given += known[share.give].tolist()
        held = known[share.hold]
        first += size
    last = order.finish()
    if last.give is not None:
        given.append(int(held[last.give]))
    return given, last.is_filler, last.left_out


@given(SHARDS, WORLDS, TAILS)
def test_r30_all_ranks_get_as_many_rows_and_every_row_goes_to_exactly_one(
    sizes: list[int], world: int, tail: Tail
) -> None:
    rows = sum(sizes)
    assume(rows >= world)
    own: list[int] = []
    for rank in range(world):
        given, is_filler, left_out = given_rows(RankOrder(rank, world, tail), 0, sizes)
        assert len(given) == rows_per_rank(rows, world, tail)
        assert left_out == (rows % world if tail == "drop" else 0)
        assert given[-1] in range(rows)
        own += given[:-1] if is_filler else given
    assert sorted(own) == list(range(rows - rows % world if tail == "drop" else rows))


@given(SHARDS, st.integers(1, 8), TAILS)
def test_r30_more_ranks_than_rows_are_an_error_on_every_rank(sizes: list[int], more: int, tail: Tail) -> None:
    world = sum(sizes) + more
    for rank in range(world):
        with pytest.raises(RankError):
            given_rows(RankOrder(rank, world, tail), 0, sizes)


@given(SHARDS, st.lists(st.integers(0, 400), max_size=6), WORLDS, TAILS)
def test_where_the_stream_is_cut_changes_nothing(sizes: list[int], cuts: list[int], world: int, tail: Tail) -> None:
    rows = sum(sizes)
    assume(rows >= world)
    edges = [0, *sorted(min(cut, rows) for cut in cuts), rows]
    others = np.diff(edges).tolist()
    for rank in range(world):
        assert given_rows(RankOrder(rank, world, tail), 0, sizes) == given_rows(RankOrder(rank, world, tail), 0, others)


@given(SHARDS, WORLDS, WORLDS, TAILS, st.data())
def test_any_number_of_ranks_takes_up_what_another_number_has_left(
    sizes: list[int], before: int, after: int, tail: Tail, data: st.DataObject
) -> None:
    rows = sum(sizes)
    assume(rows >= max(before, after))
    given_each = data.draw(st.integers(0, rows // before))
    seen = RankOrder(0, before, tail).input_rows(given_each, rows)
    delivered = [given_rows(RankOrder(rank, before, tail), 0, sizes)[0][:given_each] for rank in range(before)]
    assert sorted(row for own in delivered for row in own) == list(range(seen))
    rest: list[int] = []
    for rank in range(after):
        order = RankOrder(rank, after, tail)
        order.restore({"seen": seen})
        given, is_filler, _ = given_rows(order, seen, [rows - seen])
        rest += given[:-1] if is_filler else given
    left = rows - seen
    assert sorted(rest) == list(range(seen, rows - left % after if tail == "drop" else rows))
