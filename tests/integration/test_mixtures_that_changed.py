"""Resuming a mixture that gained a source: all rows that are left, and all of the new source; or a refusal."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aiostream_data import Dataset
from aiostream_data.errors import StateMismatchError

Mixed = Callable[..., Dataset[Any]]

ALLOWED: dict[str, Any] = {"allow": ["operator"]}


@pytest.fixture
def sources(tmp_path: Path) -> dict[str, Dataset[Any]]:
    """Files ``a`` to ``d`` of 20 lines each, in two shards per source."""
    found: dict[str, Dataset[Any]] = {}
    for name in "abcd":
        for part in range(2):
            (tmp_path / f"{name}{part}.txt").write_text("".join(f"{name}{part}:{row}\n" for row in range(10)))
        found[name] = Dataset.from_text(f"{tmp_path}/{name}*.txt", shuffle_shards=True)
    return found


def sampled(*inputs: Dataset[Any]) -> Dataset[Any]:
    return Dataset.sample_from(inputs, stop="all")


def drawn(*inputs: Dataset[Any]) -> Dataset[Any]:
    return Dataset.sample_from(inputs, stop="all", random=True, seed=5)


def weighted(*inputs: Dataset[Any]) -> Dataset[Any]:
    return Dataset.sample_from(inputs, [3, 1, 2, 2][: len(inputs)], stop="all")


def chosen(*inputs: Dataset[Any]) -> Dataset[Any]:
    count = Dataset.range(len(inputs)).repeat()
    return Dataset.choose_from(inputs, count, stop="all")


MIXED: list[Mixed] = [sampled, drawn, weighted, chosen]


def run(dataset: Dataset[Any], state: Any = None, take: int | None = None, **options: Any) -> tuple[list[str], Any]:
    with dataset.open(state, **({"seed": 7} if state is None else options)) as loader:
        rows = [str(row) for row in (loader if take is None else islice(loader, take))]
        return rows, json.loads(json.dumps(loader.state_dict()))


def options_for(mixed: Mixed) -> dict[str, Any]:
    return {"allow": ["operator", "argument"]} if mixed is chosen else ALLOWED  # its choices change as well


def rows_of(sources: dict[str, Dataset[Any]], names: str) -> Counter[str]:
    return Counter(row for name in names for row in sources[name])


@pytest.mark.parametrize("mixed", MIXED)
@pytest.mark.parametrize("take", [0, 7, 31, 40])
def test_a_new_source_gives_all_of_its_rows_and_the_others_those_left(
    sources: dict[str, Dataset[Any]], mixed: Mixed, take: int
) -> None:
    a, b, c, d = sources.values()
    given, state = run(mixed(a, b), take=take)
    with pytest.raises(StateMismatchError, match=r"input 3 .* is new"):
        mixed(a, b, c).open(state)
    more, state = run(mixed(a, b, c), state, take=5, **options_for(mixed))
    left, _ = run(mixed(a, b, c, d), state, **options_for(mixed))
    assert Counter(given + more + left) == rows_of(sources, "abcd")


BEHIND: dict[str, Callable[[Dataset[Any], Dataset[Any]], Dataset[Any]]] = {
    "zip": lambda rows, other: Dataset.zip(rows, other.repeat()).map(first),
    "shuffle": lambda rows, _: rows.shuffle(9),
    "flat_map of shuffled rows": lambda rows, _: rows.flat_map(two_shuffled),
    "any order": lambda rows, _: rows.map(str, ordered=False, concurrency=2),
    "another mixture": lambda rows, other: Dataset.sample_from([rows, other.shuffle(3)], stop="all"),
    "a source behind": lambda rows, other: rows.concatenate(other.shuffle(5)),
    "a source before": lambda rows, other: other.take(3).concatenate(rows),
    "processes": lambda rows, _: rows.shuffle(5).in_subprocess(),
    "windows": lambda rows, _: rows.window(3, 3).flat_map(list),
}


def first(row: Any, _: Any) -> Any:
    return row


def two_shuffled(row: str) -> Dataset[Any]:
    return Dataset.from_tensor_slices([f"{row} once", f"{row} twice"]).shuffle(2)


@pytest.mark.parametrize("behind", BEHIND)
@pytest.mark.parametrize("mixed", [sampled, drawn])
@pytest.mark.parametrize("take", [5, 25])
def test_a_new_source_moves_no_row_of_what_stands_around_the_mixture(
    sources: dict[str, Dataset[Any]], behind: str, mixed: Mixed, take: int
) -> None:
    a, b, c, d = sources.values()
    expected = Counter(run(BEHIND[behind](mixed(a, b, c), d))[0])
    given, state = run(BEHIND[behind](mixed(a, b), d), take=take)
    more, state = run(BEHIND[behind](mixed(a, b, c), d), state, take=4, **ALLOWED)
    left, _ = run(BEHIND[behind](mixed(a, b, c), d), state)
    assert Counter(given + more + left) == expected


def test_functions_draw_as_before_for_the_rows_of_old_sources(sources: dict[str, Dataset[Any]]) -> None:
    def with_draw(row: str, rng: np.random.Generator) -> str:
        return f"{row} {rng.integers(1 << 40)}"

    a, b, c, _ = sources.values()
    _, state = run(sampled(a, b).map(with_draw), take=6)
    without, _ = run(sampled(a, b).map(with_draw), state)
    left, _ = run(sampled(a, b, c).map(with_draw), state, **ALLOWED)
    assert set(without) < set(left)


def test_a_state_that_is_saved_at_once_behind_a_new_source_is_as_good(sources: dict[str, Dataset[Any]]) -> None:
    a, b, c, d = sources.values()
    old, new = sampled(sampled(a, b), d).shuffle(5), sampled(sampled(a, b, c), d).shuffle(5)
    given, state = run(old, take=60)
    none, state = run(new, state, take=0, **ALLOWED)
    left, _ = run(new, state)
    assert none == []
    assert Counter(given + left) == rows_of(sources, "abcd")


def test_rows_are_found_by_their_origins_behind_a_new_source(sources: dict[str, Dataset[Any]]) -> None:
    a, b, c, d = sources.values()
    _, state = run(sampled(a, b).concatenate(d), take=6)
    plan = sampled(a, b, c).concatenate(d).shuffle(2)
    _, state = run(sampled(a, b).concatenate(d).shuffle(2), take=6)
    with plan.open(state, **ALLOWED) as loader:
        kept = [(row, json.loads(json.dumps(loader.origins(row)[0].as_dict()))) for row in loader]
    assert {row[0] for row, _ in kept} == set("abcd")
    assert all(plan.fetch(origin) == row for row, origin in kept)


def test_a_new_source_of_a_mixture_that_concatenate_has_passed_is_refused(sources: dict[str, Dataset[Any]]) -> None:
    a, b, c, d = sources.values()
    _, state = run(sampled(a, b).concatenate(d), take=45)
    with pytest.raises(StateMismatchError, match="sample_from has a new input, and concatenate") as caught:
        run(sampled(a, b, c).concatenate(d), state, **ALLOWED)
    assert "the end of an epoch" in caught.value.cure


@pytest.mark.parametrize("mixed", MIXED)
def test_a_new_source_before_others_is_refused(sources: dict[str, Dataset[Any]], mixed: Mixed) -> None:
    a, b, c, _ = sources.values()
    _, state = run(mixed(a, b), take=6)
    for inputs in ([c, a, b], [a, c, b]):
        with pytest.raises(StateMismatchError, match="is new, but precedes existing inputs") as caught:
            run(mixed(*inputs), state, **options_for(mixed))
        assert caught.value.cure == "Put new inputs after the existing ones."


@pytest.mark.parametrize("mixed", MIXED)
def test_sources_in_another_order_are_refused(sources: dict[str, Dataset[Any]], mixed: Mixed) -> None:
    a, b, c, _ = sources.values()
    _, state = run(mixed(a, b, c), take=6)
    for inputs in ([b, a, c], [c, b, a]):
        with pytest.raises(StateMismatchError, match="reads shards that another source had read"):
            run(mixed(*inputs), state, allow=["shards", "argument", "operator"])


@pytest.mark.parametrize("mixed", MIXED)
def test_a_mixture_that_lost_a_source_is_refused(sources: dict[str, Dataset[Any]], mixed: Mixed) -> None:
    a, b, c, _ = sources.values()
    _, state = run(mixed(a, b, c), take=6)
    with pytest.raises(StateMismatchError, match="the saved mixture has 3 inputs, this one has 2") as caught:
        run(mixed(a, b), state, allow=["shards", "argument", "operator"])
    assert "Give them the weight 0" in caught.value.cure


def test_a_new_source_and_new_shards_at_once(sources: dict[str, Dataset[Any]], tmp_path: Path) -> None:
    a, b, c, _ = sources.values()
    given, state = run(sampled(a, b).shuffle(4), take=17)
    (tmp_path / "a2.txt").write_text("a2:0\na2:1\n")
    left, _ = run(sampled(a, b, c).shuffle(4), state, allow=["operator", "shards"])
    assert Counter(given + left) == rows_of(sources, "abc")
    assert "a2:1" in left
