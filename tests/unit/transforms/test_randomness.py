"""Draws are functions of key and position, and uniform."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiostream_data.transforms.randomness import RecordGenerator, draws_below, key_of, permutation, words

KEY = key_of(7, "test")


def test_keys_are_stable_across_releases() -> None:
    assert int(key_of(7, "shuffle")) == 4192595700048250214


def test_keys_of_different_paths_differ() -> None:
    paths: list[tuple[str | int, ...]] = [(), ("a",), ("a", "b"), ("ab",), ("a", 1), ("a", "1"), ("b", "a"), ("",)]
    assert len({int(key_of(seed, *path)) for seed in (0, 1, -1) for path in paths}) == 3 * len(paths)


def test_words_follow_split_mix_64() -> None:
    # The published sequence for state 1234567.
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert words(np.uint64(1234567), 0, 4).tolist() == published


@given(
    st.integers(0, 2**64 - 1), st.integers(0, 2**40), st.lists(st.integers(0, 50), max_size=5), st.integers(1, 2**40)
)
def test_draws_are_the_same_however_the_calls_are_cut(key: int, first: int, counts: list[int], bound: int) -> None:
    whole = draws_below(np.uint64(key), first, bound, sum(counts))
    parts, at = [], first
    for count in counts:
        parts += draws_below(np.uint64(key), at, bound, count).tolist()
        at += count
    assert whole.tolist() == parts


@given(st.integers(1, 2**63 - 1), st.integers(0, 2**64 - 1))
def test_a_draw_is_the_exact_high_product_of_word_and_bound(bound: int, key: int) -> None:
    exact = [word * bound >> 64 for word in words(np.uint64(key), 0, 20).tolist()]
    assert draws_below(np.uint64(key), 0, bound, 20).tolist() == exact
    assert draws_below(np.uint64(key), 0, np.full(20, bound), 20).tolist() == exact


def test_bounds_may_differ_per_draw() -> None:
    bounds = np.arange(1, 100)
    drawn = draws_below(KEY, 0, bounds, 99)
    assert ((drawn >= 0) & (drawn < bounds)).all()
    assert drawn.tolist() == [int(draws_below(KEY, i, int(bound), 1)[0]) for i, bound in enumerate(bounds)]


@pytest.mark.parametrize("bound", [2, 7, 100])
def test_draws_are_uniform(bound: int) -> None:
    count = 1000 * bound
    observed = np.bincount(draws_below(KEY, 0, bound, count), minlength=bound)
    chi_square = float(((observed - 1000) ** 2 / 1000).sum())
    # bound - 1 degrees of freedom; five standard deviations either side.
    assert abs(chi_square - (bound - 1)) < 5 * (2 * (bound - 1)) ** 0.5


@given(st.integers(0, 300), st.integers(0, 1000))
def test_a_permutation_holds_every_number_once(n: int, seed: int) -> None:
    assert sorted(permutation(key_of(seed), n).tolist()) == list(range(n))


def test_all_permutations_are_equally_likely() -> None:
    seen: dict[tuple[int, ...], int] = {}
    for seed in range(6000):
        order = tuple(permutation(key_of(seed, "permutation"), 3).tolist())
        seen[order] = seen.get(order, 0) + 1
    assert len(seen) == 6
    chi_square = sum((count - 1000) ** 2 / 1000 for count in seen.values())
    assert chi_square < 20.5  # 5 degrees of freedom, 0.1 %


def test_a_record_draws_the_same_numbers_whatever_ran_before() -> None:
    generator = RecordGenerator(KEY)
    first = generator.at(3, 5).random(4).tolist()
    generator.at(3, 6).standard_normal(7)
    generator.at(3, 6).integers(0, 10, 3, np.uint32)  # leaves half a word behind
    assert generator.at(3, 5).random(4).tolist() == first
    assert RecordGenerator(KEY).at(3, 5).random(4).tolist() == first


def test_records_and_keys_have_streams_of_their_own() -> None:
    generators = [RecordGenerator(key_of(seed)) for seed in range(3)]
    drawn = {g.at(split, row).random() for g in generators for split in (-1, 0, 1) for row in (0, 1, 2**40)}
    assert len(drawn) == 27
