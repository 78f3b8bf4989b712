"""A computed order looks like a uniformly random one, and takes no memory for its rows."""

from __future__ import annotations

import tracemalloc
from collections import Counter

import numpy as np
import pytest
from numpy.typing import NDArray

from aiostream_data.errors import PlanError
from aiostream_data.transforms.permutation import MAX_ROWS, TABLE_ROWS, IndexPermutation
from aiostream_data.transforms.randomness import key_of

N = 70_001
"""Not a table, and no product of nice numbers."""


@pytest.fixture(scope="module")
def rows() -> NDArray[np.int64]:
    return IndexPermutation(key_of(5), N).slice(0, N)


@pytest.mark.parametrize("table_rows", [0, TABLE_ROWS])
def test_all_permutations_of_a_few_rows_come_equally_often(table_rows: int) -> None:
    seen = Counter(tuple(IndexPermutation(key_of(seed), 4, table_rows).slice(0, 4).tolist()) for seed in range(4800))
    assert len(seen) == 24
    assert sum((count - 200) ** 2 / 200 for count in seen.values()) < 49.7  # 23 degrees of freedom, 0.1 %


def test_every_place_gets_every_part_of_the_rows_equally_often(rows: NDArray[np.int64]) -> None:
    counts, _, _ = np.histogram2d(np.arange(N), rows, bins=20)
    expected = N / 400
    assert float(((counts - expected) ** 2 / expected).sum()) < 451.0  # 361 degrees of freedom, 0.1 %


def test_neighbours_have_nothing_to_do_with_each_other(rows: NDArray[np.int64]) -> None:
    correlation = np.corrcoef(rows[1:], rows[:-1])[0, 1]
    assert abs(correlation) * np.sqrt(N) < 3.3
    steps = Counter(np.diff(rows).tolist())
    assert max(steps.values()) < 12  # the likeliest step, 1 or -1, comes about once


def test_few_rows_stay_where_they_were(rows: NDArray[np.int64]) -> None:
    assert np.count_nonzero(rows == np.arange(N)) < 7  # one on average


def test_the_mean_distance_is_a_third_of_the_rows(rows: NDArray[np.int64]) -> None:
    assert np.abs(rows - np.arange(N)).mean() / (N / 3) == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("n", [100, N])
def test_keys_decide_the_order(n: int) -> None:
    orders = [IndexPermutation(key_of(seed), n).slice(0, 100).tolist() for seed in (1, 2, 1)]
    assert orders[0] == orders[2]
    assert orders[0] != orders[1]


def test_a_huge_order_takes_no_memory() -> None:
    tracemalloc.start()
    try:
        order = IndexPermutation(key_of(1), MAX_ROWS)
        order.slice(10**15, 10**15 + 1000)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_what_is_given_can_be_written_to() -> None:
    order = IndexPermutation(key_of(1), 10)
    order.slice(0, 10)[:] = 0
    assert sorted(order.slice(0, 10).tolist()) == list(range(10))


@pytest.mark.parametrize("n", [-1, MAX_ROWS + 1])
def test_an_order_of_an_impossible_number_of_rows_is_refused(n: int) -> None:
    with pytest.raises(PlanError, match="from 0 to 4611686018427387904"):
        IndexPermutation(key_of(1), n)
