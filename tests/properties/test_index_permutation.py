"""A computed order is a one-to-one map, whatever part of it is asked for."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from aiostream_data.transforms.permutation import MAX_ROWS, IndexPermutation
from aiostream_data.transforms.randomness import key_of

SIZES = st.one_of(st.integers(0, 40), st.integers(0, 5000))
TABLES = st.sampled_from([0, 1 << 16])


@given(SIZES, st.integers(0, 1000), TABLES)
def test_every_row_comes_exactly_once(n: int, seed: int, table_rows: int) -> None:
    order = IndexPermutation(key_of(seed), n, table_rows)
    assert np.sort(order.slice(0, n)).tolist() == list(range(n))


@given(SIZES, st.integers(0, 1000), TABLES, st.lists(st.integers(0, 5000), max_size=5))
def test_slices_put_together_are_the_whole(n: int, seed: int, table_rows: int, cuts: list[int]) -> None:
    order = IndexPermutation(key_of(seed), n, table_rows)
    edges = [0, *sorted(cut for cut in cuts if cut < n), n]
    parts = [order.slice(start, stop) for start, stop in pairwise(edges)]
    assert np.concatenate(parts).tolist() == IndexPermutation(key_of(seed), n, table_rows).slice(0, n).tolist()


@given(st.integers(1 << 17, MAX_ROWS), st.integers(0, 1000), st.data())
def test_rows_of_a_huge_order_are_in_range_and_differ(n: int, seed: int, data: st.DataObject) -> None:
    order = IndexPermutation(key_of(seed), n)
    places = np.array(data.draw(st.lists(st.integers(0, n - 1), unique=True, max_size=200)), np.int64)
    rows = order.at(places)
    assert rows.dtype == np.int64
    assert len(np.unique(rows)) == len(places)
    assert rows.min(initial=0) >= 0
    assert rows.max(initial=0) < n
