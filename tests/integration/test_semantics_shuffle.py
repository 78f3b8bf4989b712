"""Shuffle: a permutation decided by seed, epoch and input order only; epochs never mix."""

from __future__ import annotations

import pytest

import aiostream_data as asd

HUNDRED = asd.Dataset.range(100)


def test_shuffle_gives_every_element_once() -> None:
    given = list(HUNDRED.shuffle(10, seed=1))
    assert sorted(given) == list(range(100))
    assert given != list(range(100))


def test_an_element_never_comes_earlier_than_the_buffer_allows() -> None:
    given = list(asd.Dataset.range(5000).shuffle(50, seed=3))
    assert all(number < place + 50 for place, number in enumerate(given))


def test_a_buffer_of_one_keeps_the_order() -> None:
    assert list(HUNDRED.shuffle(1)) == list(range(100))


def test_a_seed_decides_the_order() -> None:
    def order(seed: int) -> list[int]:
        return list(HUNDRED.shuffle(30, seed=seed))

    assert order(1) == order(1)
    assert order(1) != order(2)


def test_the_order_does_not_depend_on_how_the_input_is_cut_into_chunks() -> None:
    whole = list(HUNDRED.shuffle(30, seed=1))
    for size in (1, 7, 100):
        assert list(HUNDRED.batch(size).unbatch().shuffle(30, seed=1).take(-1)) == list(
            HUNDRED.batch(3).unbatch().shuffle(30, seed=1).take(-1)
        )
    assert sorted(whole) == list(range(100))


@pytest.mark.parametrize("buffer", [5, 100, 1000])
def test_repeat_never_mixes_epochs_and_draws_each_anew(buffer: int) -> None:
    given = list(HUNDRED.shuffle(buffer, seed=1).repeat(3))
    epochs = [given[start : start + 100] for start in (0, 100, 200)]
    assert all(sorted(epoch) == list(range(100)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]


def test_without_reshuffling_every_epoch_has_the_same_order() -> None:
    given = list(HUNDRED.shuffle(30, seed=1, reshuffle_each_iteration=False).repeat(2))
    assert given[:100] == given[100:]


def test_every_iteration_over_one_data_set_is_another_epoch() -> None:
    dataset = HUNDRED.shuffle(30, seed=1)
    first, second = list(dataset), list(dataset)
    assert first != second
    again = HUNDRED.shuffle(30, seed=1)
    assert [list(again), list(again)] == [first, second]


@pytest.mark.parametrize("seed", [None, 5])
def test_without_reshuffling_every_iteration_has_the_same_order(seed: int | None) -> None:
    dataset = HUNDRED.shuffle(30, seed=seed, reshuffle_each_iteration=False)
    assert list(dataset) == list(dataset)


def test_without_a_seed_orders_differ() -> None:
    assert list(HUNDRED.shuffle(100)) != list(HUNDRED.shuffle(100))


def test_the_seed_of_open_stands_in_for_every_seed_left_out() -> None:
    dataset = HUNDRED.shuffle(30).map(lambda x, rng: (x, int(rng.integers(1 << 30))))

    def run(seed: int, epoch: int = 0) -> list[tuple[int, int]]:
        with dataset.open(seed=seed, epoch=epoch) as loader:
            return list(loader)

    assert run(1) == run(1)
    assert run(1) != run(2)
    assert run(1) != run(1, epoch=1)


def test_two_shuffles_of_one_seed_in_a_chain_shuffle_differently() -> None:
    once = list(HUNDRED.shuffle(100, seed=1))
    pair = list(asd.Dataset.zip(HUNDRED.shuffle(100, seed=1), HUNDRED.shuffle(100, seed=1)))
    assert sorted(left for left, _ in pair) == sorted(once)
    assert any(left != right for left, right in pair)


def test_shuffle_of_nothing_and_of_fewer_than_the_buffer() -> None:
    assert list(asd.Dataset.range(0).shuffle(5)) == []
    assert sorted(asd.Dataset.range(3).shuffle(500)) == [0, 1, 2]


def test_shuffle_moves_batches_and_odd_objects() -> None:
    batches = list(HUNDRED.batch(10).shuffle(10, seed=1))
    assert sorted(batch[0] for batch in batches) == list(range(0, 100, 10))
    odd = [None, "a", [1], {"b": 2}]
    given = list(asd.Dataset.from_iterable(odd).shuffle(4, seed=2))
    assert all(value in given for value in odd)
    assert len(given) == 4
