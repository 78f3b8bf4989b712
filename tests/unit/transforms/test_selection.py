"""Take, skip, shard and enumerate select the same rows however the stream is cut, from any position."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from aiostream_data.errors import CardinalityError, PlanError
from aiostream_data.transforms.selection import EnumerateOrder, ShardOrder, SkipOrder, TakeOrder

CUTS = [[20], [1] * 20, [7, 0, 13], [3, 5, 12]]


def selected(order: Any, cuts: list[int], resume: bool = False) -> list[int]:
    """Push 20 rows; with ``resume``, restore the state into the same class between any two chunks."""
    out: list[int] = []
    first = 0
    for count in cuts:
        out += np.arange(first, first + count)[order.push(count)].tolist()
        first += count
        if resume:
            state = json.loads(json.dumps(order.state()))
            order.push(5)  # what the restored state must forget
            order.restore(state)
    return out


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (lambda: TakeOrder(8), range(8)),
        (lambda: TakeOrder(0), range(0)),
        (lambda: TakeOrder(99), range(20)),
        (lambda: TakeOrder(-1), range(20)),
        (lambda: SkipOrder(8), range(8, 20)),
        (lambda: SkipOrder(0), range(20)),
        (lambda: SkipOrder(99), range(0)),
        (lambda: SkipOrder(-1), range(0)),
        (lambda: ShardOrder(3, 0), range(0, 20, 3)),
        (lambda: ShardOrder(3, 2), range(2, 20, 3)),
        (lambda: ShardOrder(1, 0), range(20)),
        (lambda: ShardOrder(50, 30), range(0)),
    ],
)
def test_the_rows_of_tf_data_are_kept(order: Any, expected: range, cuts: list[int], resume: bool) -> None:
    assert selected(order(), cuts, resume) == list(expected)


@pytest.mark.parametrize("cuts", CUTS)
def test_rows_are_numbered_from_the_start(cuts: list[int]) -> None:
    order = EnumerateOrder(5)
    numbers = [number for count in cuts for number in order.push(count).tolist()]
    assert numbers == list(range(5, 25))
    resumed = EnumerateOrder()
    resumed.restore(json.loads(json.dumps(order.state())))
    assert resumed.push(2).tolist() == [25, 26]


def test_a_take_that_has_all_its_rows_is_done() -> None:
    order = TakeOrder(3)
    before, _, after = order.done, order.push(5), order.done
    assert (before, after) == (False, True)
    assert TakeOrder(0).done
    assert not TakeOrder(-1).done


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: TakeOrder(-2), "count must be at least 0"),
        (lambda: SkipOrder(-2), "count must be at least 0"),
        (lambda: ShardOrder(0, 0), "num_shards must be at least 1, got 0"),
        (lambda: ShardOrder(2, 2), "index must be from 0 to 1, got 2"),
        (lambda: ShardOrder(2, -1), "index must be from 0 to 1, got -1"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(build: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        build()


def test_numbers_beyond_64_bits_are_refused() -> None:
    order = EnumerateOrder(2**63 - 3)
    assert order.push(3).tolist() == [2**63 - 3, 2**63 - 2, 2**63 - 1]
    with pytest.raises(CardinalityError, match=r"the largest number is 2\*\*63 - 1"):
        order.push(1)
