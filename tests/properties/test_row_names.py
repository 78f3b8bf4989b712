"""Draws, origins and the stream hash of joined, cut and regrouped rows depend on plan, seed and epoch alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from small_chunks import small_chunks

import aiostream_data as asd

Dataset = asd.Dataset
SIZES = [(1, 5), (2, 40), (7, 300)]
"""Rows of a chunk, and bytes of a range."""


def cut(start: int, stop: int) -> asd.Dataset[Any]:
    """Rows whose ids are twice as wide as those of ``range``."""
    return Dataset.range(start, stop).batch(2).unbatch()


def some(x: Any) -> asd.Dataset[Any]:
    return Dataset.range(int(np.ravel(x)[0]) % 3 + 1)


def draw(*element: Any, rng: np.random.Generator) -> tuple[Any, int]:
    return element, int(rng.integers(1 << 40))


def draw_one(_: Any, rng: np.random.Generator) -> int:
    return int(rng.integers(1 << 40))


def mixed() -> asd.Dataset[Any]:
    return Dataset.sample_from([Dataset.range(9), cut(100, 108)], [0.5, 0.5])


def chosen() -> asd.Dataset[Any]:
    return Dataset.choose_from([Dataset.range(4), cut(100, 106)], Dataset.from_iterable([0, 1, 1, 0, 1, 0, 1, 1, 0, 1]))


def concatenated() -> asd.Dataset[Any]:
    return Dataset.concatenate(Dataset.range(4), cut(100, 104))


def nested(depth: int) -> asd.Dataset[Any]:
    joined = concatenated()
    for level in range(depth):
        joined = Dataset.zip(Dataset.concatenate(joined.take(3), joined.skip(3).enumerate()), mixed().enumerate(level))
    return joined


def in_buckets(padding: bool) -> asd.Dataset[Any]:
    return Dataset.range(17).bucket_by_sequence_length(lambda x: int(x) % 7, [3, 5], [4, 4, 2], no_padding=not padding)


def inner_draws(x: Any) -> asd.Dataset[Any]:
    return Dataset.range(int(np.ravel(x)[0]) % 3 + 1).shuffle(3).map(draw)


def inner_cache(x: Any) -> asd.Dataset[Any]:
    return Dataset.range(int(x) % 3 + 1).repeat(2).map(draw).cache().map(draw).repeat(2).shuffle(3)


PLANS: dict[str, Callable[[], asd.Dataset[Any]]] = {
    "a mixture, flat_map": lambda: mixed().flat_map(some).map(draw),
    "a mixture, interleave, flat_map": lambda: mixed().interleave(some, cycle_length=3).flat_map(some).map(draw),
    "zip of a concatenation, shuffled": lambda: (
        Dataset.zip(concatenated(), Dataset.range(50)).shuffle(5, seed=3).map(draw)
    ),
    "zip of a mixture, shuffled": lambda: Dataset.zip(Dataset.range(50), mixed()).shuffle(5, seed=3).map(draw),
    "zip of choices, shuffled": lambda: Dataset.zip(chosen(), mixed()).shuffle(4, seed=1).map(draw),
    "interleave of choices, shuffled": lambda: chosen().interleave(some, cycle_length=2).shuffle(6, seed=1).map(draw),
    "joins three deep, shuffled": lambda: nested(3).shuffle(4, seed=2).map(draw),
    "joins three deep, flat_map, batches": lambda: (
        nested(3).flat_map(lambda *_: [1, 2]).shuffle(3, seed=2).batch(2).unbatch().map(draw)
    ),
    "buckets cut again": lambda: in_buckets(padding=False).unbatch().map(draw).shuffle(5, seed=2),
    "buckets, shuffled": lambda: in_buckets(padding=False).shuffle(3, seed=2),
    "padded buckets, shuffled": lambda: in_buckets(padding=True).shuffle(3, seed=2).map(draw),
    "windows cut again": lambda: mixed().window(3, 2).unbatch().shuffle(4, seed=5).map(draw),
    "a cache over an endless repetition": lambda: (
        Dataset.range(5).repeat().take(12).cache().shuffle(9, seed=1).map(draw)
    ),
    "a cache of joined rows, twice": lambda: (
        Dataset.zip(mixed(), chosen()).cache().shuffle(3, seed=1).repeat(2).map(draw)
    ),
    "an endless input in a repeated zip": lambda: (
        Dataset.zip(Dataset.range(4).map(draw), Dataset.range(3).repeat()).repeat(2).shuffle(5, seed=3).map(draw)
    ),
    "an endless input in repeated batches": lambda: (
        Dataset.sample_from([Dataset.range(3).repeat(), Dataset.range(10, 14).map(draw_one)], [1, 1])
        .batch(2)
        .repeat(2)
        .shuffle(5, seed=3)
        .map(draw)
    ),
    "a cached zip with an endless input": lambda: (
        Dataset.zip(Dataset.range(4), Dataset.range(3).repeat()).cache().repeat(2).shuffle(5, seed=3).map(draw)
    ),
    "an endless repetition, repeated": lambda: (
        Dataset.range(4).repeat().take(7).interleave(inner_draws, cycle_length=2).repeat(2).shuffle(5, seed=1).map(draw)
    ),
    "endless repetitions three deep": lambda: (
        Dataset.range(3).map(draw).repeat().take(5).repeat().take(8).repeat().take(20).shuffle(5, seed=1).map(draw)
    ),
    "data in memory repeated without end, repeated": lambda: (
        Dataset.from_tensor_slices(np.arange(4)).shuffle().repeat().take(7).repeat(2).shuffle(5, seed=1).map(draw)
    ),
    "a repetition below a cache, repeated": lambda: (
        Dataset.range(4).repeat(2).map(draw).cache().repeat(2).shuffle(5, seed=1).map(draw)
    ),
    "inner data sets of an endless repetition below a cache, repeated": lambda: (
        Dataset.range(4).repeat().take(7).interleave(inner_draws, cycle_length=2).cache().repeat(2).shuffle(5, seed=1)
    ),
    "windows of a repetition below a cache, repeated": lambda: (
        Dataset.range(4).repeat(2).map(draw).window(2, 1).cache().repeat(2).unbatch().shuffle(5, seed=1).map(draw)
    ),
    "a cache above a repeated cache": lambda: (
        Dataset.range(2).repeat(2).map(draw).cache().map(draw).repeat(2).map(draw).cache().repeat(2).shuffle(4, seed=1)
    ),
    "caches of inner data sets, repeated": lambda: (
        Dataset.range(4).interleave(inner_cache, cycle_length=2).repeat(2).shuffle(4, seed=1).map(draw)
    ),
}


class Seen(NamedTuple):
    """What a run delivered."""

    elements: list[str]
    origins: list[list[tuple[str, int, int]]]
    states: list[str]
    stream_hash: str


def read(dataset: asd.Dataset[Any], state: str | None = None, **options: Any) -> Seen:
    elements, origins, states = [], [], []
    with dataset.open(None if state is None else json.loads(state), **options) as loader:
        states.append(json.dumps(loader.state_dict()))
        for element in loader:
            elements.append(repr(element))
            origins.append([(origin.url, origin.index, origin.epoch) for origin in loader.origins()])
            states.append(json.dumps(loader.state_dict()))
        return Seen(elements, origins, states, loader.stream_hash)


@pytest.mark.parametrize("name", PLANS)
def test_a_run_resumed_anywhere_has_the_names_of_an_unbroken_one(name: str) -> None:
    whole = read(PLANS[name](), seed=7, epoch=2)
    assert len(whole.elements) > 4
    for place, state in list(enumerate(whole.states))[:: max(1, len(whole.states) // 6)]:
        rest = read(PLANS[name](), state)
        assert rest.elements == whole.elements[place:]
        assert rest.origins == whole.origins[place:]
        assert rest.stream_hash == whole.stream_hash, f"resumed after {place} elements"


@pytest.mark.parametrize("name", PLANS)
def test_names_are_the_same_in_chunks_of_any_size_in_debug_mode_and_under_any_memory_limit(name: str) -> None:
    whole = read(PLANS[name](), seed=7)
    assert read(PLANS[name](), seed=7, debug=True)[:2] == whole[:2]
    with small_chunks() as set_sizes:
        set_sizes(1, 5)
        smallest = read(PLANS[name](), seed=7)  # what counts as a small inner data set is the same from here on
        assert smallest[:2] == read(PLANS[name](), seed=7, debug=True)[:2]
        for sizes in SIZES:
            set_sizes(*sizes)
            again = read(PLANS[name](), seed=7, memory_limit="1MB")
            assert (*again[:2], again.stream_hash) == (*smallest[:2], smallest.stream_hash)
            middle = again.states[len(again.elements) // 2]
            assert read(PLANS[name](), middle).stream_hash == smallest.stream_hash


@pytest.mark.parametrize("debug", [False, True])
def test_a_cache_has_the_rows_of_its_first_repetition_even_if_nothing_had_read_it_then(debug: bool) -> None:
    behind = Dataset.range(100_000).concatenate(Dataset.range(20).map(draw_one).cache())
    with Dataset.zip(Dataset.range(2), behind).repeat(3).open(seed=7, epoch=2, debug=debug) as loader:
        next(iter(loader))
        assert [epoch for _, epoch in loader.state_dict()["caches"]] == [6]


REPEATED = [name for name in PLANS if "repe" in name and "batches" not in name]
"""Plans of which every element can be fetched: of a batch, only its rows can."""


@pytest.mark.parametrize("name", REPEATED)
def test_rows_of_nested_repetitions_can_be_fetched_by_their_origins(name: str) -> None:
    dataset = PLANS[name]()
    with dataset.open(seed=7, epoch=1) as loader:
        for element in loader:
            assert repr(dataset.fetch(loader.origins()[0])) == repr(element)


def test_no_two_epochs_of_an_endless_repetition_draw_the_same() -> None:
    endless = Dataset.range(5).repeat().take(10).map(draw)
    with endless.repeat(2).open(seed=7) as loader:
        repeated = list(loader)
    with endless.open(seed=7, epoch=2) as loader:
        third = list(loader)
    assert len({drawn for _, drawn in repeated + third}) == 30


def test_a_cache_filled_in_an_earlier_epoch_gives_the_same_rows_where_a_run_is_resumed() -> None:
    def plan() -> asd.Dataset[Any]:
        return Dataset.range(6).repeat(2).map(draw).cache().shuffle(4, seed=1).map(draw)

    dataset = plan()
    read(dataset, seed=7)
    whole = read(dataset, seed=7, epoch=1)
    for place, state in list(enumerate(whole.states))[1:]:  # the first state says nothing of the cache
        assert read(dataset, state).elements == whole.elements[place:]
        assert read(plan(), state).elements == whole.elements[place:]


def test_rows_of_more_inner_data_sets_than_are_remembered_keep_their_names() -> None:
    def draws(buffer_size: int) -> set[Any]:
        rows = Dataset.range(3_000).flat_map(lambda x: [x, -x - 1]).shuffle(buffer_size, seed=1).map(draw)
        with rows.open(seed=7) as loader:
            return set(loader)

    from aiostream_data._engine.resume import origins

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(origins, "_REMEMBERED", 64)
        assert draws(6_000) == draws(1)
        assert len(draws(6_000)) == 6_000
