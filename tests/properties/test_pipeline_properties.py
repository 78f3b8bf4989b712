"""Random chains of operators give what a naive model of tf.data, written with plain generators, gives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import aiostream_data as asd

Model = Callable[[], Iterable[Any]]


@dataclass(frozen=True)
class Step:
    """One operator: its name, what it does to a data set, and what to a model of it."""

    name: str
    apply: Callable[[asd.Dataset[Any]], asd.Dataset[Any]]
    model: Callable[[Model], Model]

    def __repr__(self) -> str:
        return self.name


def step(name: str, apply: Callable[[asd.Dataset[Any]], asd.Dataset[Any]], model: Callable[[Model], Any]) -> Step:
    return Step(name, apply, lambda source: lambda: model(source))


def weigh(element: Any) -> int:
    """Return a number for any element that a chain of these steps can make."""
    if isinstance(element, tuple):
        return sum(map(weigh, element)) + 1
    return int(np.sum(element))


def halved(element: Any) -> int | float:
    number = weigh(element)
    return number // 2 if number % 2 == 0 else number / 2  # a mixture of int and float


def inner(element: Any) -> list[int]:
    number = abs(weigh(element))
    return list(range(number, number + number % 4))


def cut(rows: Iterable[Any], size: int, drop: bool) -> Iterator[list[Any]]:
    iterator = iter(rows)
    while batch := list(islice(iterator, size)):
        if len(batch) == size or not drop:
            yield batch


def interleaved(streams: Iterable[list[Any]], cycle: int, block: int) -> Iterator[Any]:
    waiting = list(streams)
    slots: list[list[Any] | None] = [None] * cycle
    slot = 0
    while waiting or any(rows is not None for rows in slots):
        rows = slots[slot]
        if rows is None and waiting:
            rows = waiting.pop(0)
        if rows is not None:
            yield from rows[:block]
            slots[slot] = rows[block:] if len(rows) >= block else None
        slot = (slot + 1) % cycle


small = st.integers(0, 12)
positive = st.integers(1, 5)


def maps(function: Callable[[Any], Any]) -> st.SearchStrategy[Step]:
    async def later(*element: Any) -> Any:
        await asyncio.sleep(0)
        return function(element if len(element) > 1 else element[0])

    def plain(*element: Any) -> Any:
        return function(element if len(element) > 1 else element[0])

    def model(source: Model) -> Iterator[Any]:
        return map(function, source())

    name = function.__name__
    return st.sampled_from(
        [
            step(f"map({name})", lambda d: d.map(plain), model),
            step(f"map({name}, concurrency=3)", lambda d: d.map(plain, concurrency=3), model),
            step(f"map({name}, coroutine)", lambda d: d.map(later), model),
        ]
    )


def is_kept(element: Any) -> bool:
    return weigh(element) % 3 != 0


def keep(*element: Any) -> bool:
    return is_kept(element if len(element) > 1 else element[0])


def expand(*element: Any) -> list[int]:
    return inner(element if len(element) > 1 else element[0])


def expand_by_run(*element: Any) -> asd.Dataset[int]:
    return asd.Dataset.from_iterable(expand(*element)).map(lambda x: x)


def batch_step(size: int, drop: bool) -> Step:
    return step(
        f"map(weigh).batch({size}, {drop})",
        lambda d: d.map(lambda *e: weigh(e if len(e) > 1 else e[0])).batch(size, drop_remainder=drop),
        lambda m: (np.array(rows) for rows in cut(map(weigh, m()), size, drop)),
    )


def interleave_step(cycle: int, block: int, by_run: bool) -> Step:
    return step(
        f"interleave({cycle}, {block}, by_run={by_run})",
        lambda d: d.interleave(expand_by_run if by_run else expand, cycle_length=cycle, block_length=block),
        lambda m: interleaved(map(inner, m()), cycle, block),
    )


STEPS = st.one_of(
    maps(weigh),
    maps(halved),
    st.just(step("filter", lambda d: d.filter(keep), lambda m: filter(is_kept, m()))),
    small.map(lambda n: step(f"take({n})", lambda d: d.take(n), lambda m: islice(m(), n))),
    small.map(lambda n: step(f"skip({n})", lambda d: d.skip(n), lambda m: islice(m(), n, None))),
    st.tuples(positive, st.integers(0, 4)).map(
        lambda s: step(
            f"shard{s}", lambda d: d.shard(s[0], s[1] % s[0]), lambda m: islice(m(), s[1] % s[0], None, s[0])
        )
    ),
    st.integers(0, 3).map(
        lambda n: step(f"repeat({n})", lambda d: d.repeat(n), lambda m: chain.from_iterable(m() for _ in range(n)))
    ),
    st.builds(batch_step, positive, st.booleans()),
    st.builds(interleave_step, positive, positive, st.booleans()),
    st.just(step("flat_map", lambda d: d.flat_map(expand), lambda m: chain.from_iterable(map(inner, m())))),
    small.map(lambda n: step(f"enumerate({n})", lambda d: d.enumerate(n), lambda m: enumerate(m(), n))),
    st.just(step("zip(self)", lambda d: asd.Dataset.zip(d, d), lambda m: ((x, x) for x in m()))),
    small.map(
        lambda n: step(
            f"zip(range({n}))",
            lambda d: d.zip(asd.Dataset.range(n)),
            lambda m: zip(m(), range(n), strict=False),
        )
    ),
    small.map(
        lambda n: step(
            f"concatenate(range({n}).map(int))",  # whose types are not known, so that they differ from none
            lambda d: d.concatenate(asd.Dataset.range(n).map(int)),
            lambda m: chain(m(), range(n)),
        )
    ),
    st.just(step("cache", lambda d: d.cache(), lambda m: m())),
    positive.map(lambda n: step(f"prefetch({n})", lambda d: d.prefetch(n), lambda m: m())),
    st.just(step("shuffle(1)", lambda d: d.shuffle(1), lambda m: m())),
)

SOURCES: st.SearchStrategy[tuple[str, asd.Dataset[Any], Model]] = st.one_of(
    st.tuples(st.integers(-5, 5), st.integers(-5, 30)).map(
        lambda s: (f"range{s}", asd.Dataset.range(*s), lambda: range(*s))
    ),
    st.lists(st.integers(-9, 9), max_size=20).map(
        lambda rows: ("slices", asd.Dataset.from_tensor_slices(np.array(rows, np.int64)), lambda: rows)
    ),
    st.lists(st.one_of(st.integers(-9, 9), st.floats(-9, 9), st.booleans()), max_size=20).map(
        lambda rows: ("iterable", asd.Dataset.from_iterable(rows), lambda: rows)
    ),
    st.integers(0, 20).map(lambda n: ("generator", asd.Dataset.from_generator(range, args=(n,)), lambda: range(n))),
)

LIMIT = 3000
"""Elements after which a chain has said enough."""


def plain(element: Any) -> Any:
    """Return the element as Python numbers, lists and tuples, for comparing."""
    if isinstance(element, tuple):
        return tuple(map(plain, element))
    return element.tolist() if isinstance(element, (np.ndarray, np.generic)) else element


def expected(model: Model) -> list[Any]:
    return [plain(element) for element in islice(model(), LIMIT)]


async def collect(dataset: asd.Dataset[Any]) -> list[Any]:
    return [plain(element) async for element in dataset]


RELAXED = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@RELAXED
@given(SOURCES, st.lists(STEPS, max_size=5), st.booleans())
def test_a_random_chain_gives_what_the_model_gives(
    source: tuple[str, asd.Dataset[Any], Model], steps: list[Step], in_async: bool
) -> None:
    _, dataset, model = source
    for one in steps:
        dataset, model = one.apply(dataset), one.model(model)
    dataset = dataset.take(LIMIT)
    assert (asyncio.run(collect(dataset)) if in_async else [plain(x) for x in dataset]) == expected(model)


@RELAXED
@given(SOURCES, st.lists(STEPS, max_size=4))
def test_a_known_cardinality_is_right(source: tuple[str, asd.Dataset[Any], Model], steps: list[Step]) -> None:
    _, dataset, model = source
    for one in steps:
        dataset, model = one.apply(dataset), one.model(model)
    count = dataset.cardinality()
    assert count != asd.INFINITE
    if count != asd.UNKNOWN:
        assert count == sum(1 for _ in model())


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 60), st.integers(1, 80), st.integers(0, 3), st.integers(1, 3), st.integers(1, 9))
def test_a_shuffle_permutes_every_epoch_within_its_buffer(
    rows: int, buffer: int, seed: int, epochs: int, batch: int
) -> None:
    dataset = asd.Dataset.range(rows).shuffle(buffer, seed=seed).repeat(epochs)
    given_rows = list(dataset)
    assert list(asd.Dataset.range(rows).shuffle(buffer, seed=seed).repeat(epochs).batch(batch).unbatch()) == given_rows
    for epoch in range(epochs):
        part = given_rows[epoch * rows : (epoch + 1) * rows]
        assert sorted(part) == list(range(rows))
        assert all(number < place + buffer for place, number in enumerate(part))
