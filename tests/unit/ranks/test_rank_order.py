"""Every row of one global order goes to exactly one rank, and every rank gets as many as the others."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from aiostream_data.errors import PlanError, RankError
from aiostream_data.ranks import Tail
from aiostream_data.transforms.rank_rows import FILLERS, RankOrder, share_of_batch

TAILS: list[Tail] = ["drop", "pad", "repeat"]


def shared(order: RankOrder, rows: range, cuts: Sequence[int]) -> tuple[list[int], bool, int]:
    """Push ``rows``, cut as told; return what the rank gives, whether the last is a filler, and what is left out."""
    held = np.empty(0, np.int64)
    given: list[int] = []
    first = 0
    for count in cuts:
        known = np.concatenate([held, np.asarray(rows[first : first + count], np.int64)])
        share = order.push(count)
        given += known[share.give].tolist()
        held = known[share.hold]
        first += count
    assert first == len(rows)
    assert len(held) <= min(order.rank + 1, FILLERS)
    last = order.finish()
    if last.give is not None:
        given.append(int(held[last.give]))
    return given, last.is_filler, last.left_out


def test_rank_r_gets_row_r_of_every_group() -> None:
    assert shared(RankOrder(1, 3, "drop"), range(9), [9]) == ([1, 4, 7], False, 0)


@pytest.mark.parametrize(
    ("tail", "rank", "expected"),
    [
        ("drop", 0, ([0, 4], False, 2)),
        ("drop", 3, ([3, 7], False, 2)),
        ("pad", 0, ([0, 4, 8], False, 0)),
        ("pad", 1, ([1, 5, 9], False, 0)),
        ("pad", 2, ([2, 6, 8], True, 0)),
        ("repeat", 3, ([3, 7, 9], True, 0)),
    ],
)
def test_an_incomplete_last_group_is_dropped_or_filled_up_with_its_own_rows(
    tail: Tail, rank: int, expected: tuple[list[int], bool, int]
) -> None:
    assert shared(RankOrder(rank, 4, tail), range(10), [10]) == expected


def test_a_row_is_given_when_its_group_is_complete_and_not_before() -> None:
    order = RankOrder(0, 3, "drop")
    assert order.push(2).give.tolist() == []
    assert order.push(1).give.tolist() == [0]


def test_only_rows_that_may_still_be_needed_are_held_back() -> None:
    order = RankOrder(1, 5, "repeat")
    assert order.push(1).hold.tolist() == [0]
    assert order.push(3).hold.tolist() == [1]
    assert RankOrder(1, 5, "drop").push(1).hold.tolist() == []


def test_many_ranks_hold_few_rows_back() -> None:
    order = RankOrder(1000, 1024, "repeat")
    assert shared(order, range(1024 + 999), [1024 + 999]) == ([1000, 1024 + 1000 % FILLERS], True, 0)


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("rows", [0, 1, 4])
def test_fewer_rows_than_ranks_are_an_error_at_the_end(rows: int, tail: Tail) -> None:
    with pytest.raises(RankError, match=f"{rows} rows? cannot be shared by 5 ranks"):
        shared(RankOrder(2, 5, tail), range(rows), [rows])


def test_fewer_rows_than_ranks_are_no_error_where_a_resumed_run_ends() -> None:
    order = RankOrder(4, 5, "drop")
    order.restore({"seen": 10})
    assert shared(order, range(10, 13), [3]) == ([], False, 3)


def test_the_state_is_the_same_on_every_rank_and_json() -> None:
    states = []
    for rank in range(4):
        order = RankOrder(rank, 4, "pad")
        order.push(11)
        states.append(json.dumps(order.state()))
    assert set(states) == {'{"seen": 8}'}


@pytest.mark.parametrize("new_world", [1, 2, 3, 5, 16])
def test_another_number_of_ranks_goes_on_with_exactly_the_rows_that_were_left(new_world: int) -> None:
    first: list[int] = []
    for rank in range(8):
        order = RankOrder(rank, 8, "repeat")
        first += np.arange(40)[order.push(40).give].tolist()[:3]
    state: dict[str, Any] = {"seen": RankOrder(0, 8, "repeat").input_rows(3, 40)}
    rest: set[int] = set()
    for rank in range(new_world):
        order = RankOrder(rank, new_world, "repeat")
        order.restore(state)
        rest |= set(shared(order, range(24, 40), [16])[0])
    assert sorted(first) == list(range(24))
    assert sorted(rest) == list(range(24, 40))


def test_the_place_in_the_input_is_behind_the_last_group_and_never_behind_the_last_row() -> None:
    order = RankOrder(3, 8, "pad")
    assert [order.input_rows(given, 20) for given in (0, 1, 2, 3)] == [0, 8, 16, 20]


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("count", range(12))
def test_a_batch_is_shared_such_that_all_ranks_get_as_many_rows_of_it(count: int, tail: Tail) -> None:
    shares = [share_of_batch(count, rank, 4, tail) for rank in range(4)]
    assert {len(share.rows) for share in shares} == {count // 4 if tail == "drop" else -(-count // 4)}
    own = [row for share in shares for row in share.rows[: -1 if share.ends_in_filler else None].tolist()]
    assert sorted(own) == list(range(count // 4 * 4 if tail == "drop" else count))


@pytest.mark.parametrize(
    ("rank", "world_size", "tail", "message"),
    [
        (3, 3, "drop", "rank must be from 0 to 2, got 3"),
        (-1, 3, "drop", "rank must be from 0 to 2, got -1"),
        (0, 1, "cut", "tail must be one of 'drop', 'pad', 'repeat', got 'cut'"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(rank: int, world_size: int, tail: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        RankOrder(rank, world_size, tail)
