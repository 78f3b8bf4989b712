"""Shards come in random order, and the last ones such that they end together."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiostream_data.transforms.randomness import key_of
from aiostream_data.transforms.shard_order import LAST_ROUNDS, even_cycle, shard_order


@given(st.lists(st.none() | st.integers(0, 1 << 60), max_size=80), st.integers(1, 20), st.integers(0, 100))
def test_every_shard_comes_once(sizes: list[int | None], cycle: int, seed: int) -> None:
    assert sorted(shard_order(key_of(seed), sizes, cycle)) == list(range(len(sizes)))


def test_the_last_rounds_come_largest_first_and_the_others_in_any_order() -> None:
    sizes = np.random.default_rng(1).integers(1, 1000, 100).tolist()
    order = shard_order(key_of(3), sizes, 5)
    given_sizes = [sizes[shard] for shard in order]
    last = LAST_ROUNDS * 5
    assert given_sizes[-last:] == sorted(given_sizes[-last:], reverse=True)
    assert given_sizes[:-last] != sorted(given_sizes[:-last], reverse=True)


def test_shards_of_one_size_come_in_uniform_order() -> None:
    firsts = [shard_order(key_of(seed), [7] * 4, 2)[0] for seed in range(2000)]
    counts = np.bincount(firsts, minlength=4)
    assert float(((counts - 500) ** 2 / 500).sum()) < 16.3  # 3 degrees of freedom, 0.1 %


def test_one_unknown_size_leaves_the_order_random() -> None:
    sizes: list[int | None] = [10, 20, None, 40]
    orders = {tuple(shard_order(key_of(seed), sizes, 2)) for seed in range(500)}
    assert len(orders) == 24


def test_the_key_decides() -> None:
    orders = [shard_order(key_of(seed), [1] * 30, 4) for seed in (1, 2, 1)]
    assert orders[0] == orders[2] != orders[1]


@pytest.mark.parametrize(
    ("shards", "cycle", "expected"),
    [(0, 32, 1), (1, 32, 1), (20, 32, 20), (32, 32, 32), (1024, 32, 32), (1025, 32, 25)],
)
def test_the_last_round_is_as_full_as_a_slightly_smaller_cycle_makes_it(shards: int, cycle: int, expected: int) -> None:
    assert even_cycle(shards, cycle) == expected


@given(st.integers(0, 5000), st.integers(1, 64))
def test_the_cycle_is_never_much_smaller_than_asked_for_nor_larger(shards: int, cycle: int) -> None:
    chosen = even_cycle(shards, cycle)
    assert min(max(1, shards), max(1, round(0.75 * cycle))) <= chosen <= cycle
