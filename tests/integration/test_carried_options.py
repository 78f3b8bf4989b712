"""``with_options``, ``options`` and ``fingerprint``: what a dataset says of itself and passes on."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from aiostream_data import Dataset, PlanError

NUMBERS = Dataset.range(20)


def fails_at_three(number: int) -> int:
    if number == 3:
        raise ValueError("three")
    return int(number)


# -- options


def test_operators_pass_options_on_and_later_ones_win() -> None:
    dataset = NUMBERS.with_options(seed=1, deterministic=False).map(int).with_options(seed=2).shuffle(3).batch(2)
    assert dataset.options() == {"seed": 2, "deterministic": False}
    assert NUMBERS.options() == {}
    assert pickle.loads(pickle.dumps(dataset)).options() == dataset.options()
    dataset.options().clear()
    assert dataset.options()["seed"] == 2


def test_combined_datasets_merge_their_options() -> None:
    one, two = NUMBERS.with_options(seed=1, debug=True), NUMBERS.with_options(seed=2)
    merged = {"seed": 2, "debug": True}
    assert Dataset.zip(one, two).options() == merged
    assert Dataset.zip({"a": one, "b": (two, NUMBERS)}).options() == merged
    assert one.concatenate(two).options() == merged
    assert Dataset.sample_from([one, two]).options() == merged
    assert Dataset.sample_from({"a": one, "b": two}).options() == merged
    assert Dataset.choose_from([one, NUMBERS], two.map(lambda number: number % 2)).options() == merged
    assert two.zip(one).options()["seed"] == 1


def test_open_uses_options_and_its_arguments_override_them() -> None:
    shuffled = NUMBERS.shuffle(20)
    wanted = list(shuffled.open(seed=5))
    carried = shuffled.with_options(seed=5)
    assert list(carried.open()) == wanted
    assert list(carried.open(seed=6)) == list(shuffled.open(seed=6)) != wanted
    assert list(carried) == wanted
    assert carried.map(int).reduce(lambda found, number: [*found, number], []) != sorted(wanted)


def test_a_flag_of_open_overrides_an_option_even_with_its_default() -> None:
    skipping = NUMBERS.map(fails_at_three).with_options(on_error="skip", full_tracebacks=True, stall_after=None)
    assert len(list(skipping)) == 19
    with pytest.raises(ValueError, match="three"):
        list(skipping.open(on_error=None))
    with skipping.open(full_tracebacks=False) as loader:
        assert len(list(loader)) == 19


def test_explain_uses_the_memory_limit() -> None:
    limited = Dataset.counter().map(str).with_options(memory_limit="64MiB")
    assert str(limited.memory_bound()) == str(limited.memory_bound(memory_limit="64MiB"))
    assert str(limited.memory_bound()) != str(limited.memory_bound(memory_limit="1GiB"))
    assert limited.explain() == limited.explain(memory_limit="64MiB")


@pytest.mark.parametrize(
    "wrong",
    [{"deterministic": 1}, {"memory_limit": "much"}, {"seed": 1.5}, {"on_error": "ignore"}, {"stall_after": -1}],
    ids=str,
)
def test_wrong_values_are_refused_at_the_call(wrong: dict[str, Any]) -> None:
    with pytest.raises(PlanError):
        NUMBERS.with_options(**wrong)


@pytest.mark.parametrize("name", ["state", "rank", "epoch", "sead"])
def test_what_belongs_to_one_run_is_no_option(name: str) -> None:
    with pytest.raises(TypeError, match=rf"no option {name}; its options are dead_letters, debug"):
        NUMBERS.with_options(**{name: 0})


# -- fingerprint


def test_a_fingerprint_tells_pipelines_apart() -> None:
    one, same = NUMBERS.map(fails_at_three).batch(2), NUMBERS.map(fails_at_three).batch(2)
    assert one.fingerprint() == same.fingerprint()
    assert len(one.fingerprint()) == 16
    int(one.fingerprint(), 16)
    others = [NUMBERS.batch(2), NUMBERS.map(fails_at_three).batch(3), Dataset.range(19).map(fails_at_three).batch(2)]
    assert len({one.fingerprint(), *(other.fingerprint() for other in others)}) == 4


def test_a_fingerprint_ignores_what_changes_no_row() -> None:
    plain = NUMBERS.map(int).batch(2)
    assert NUMBERS.map(int, concurrency=3).batch(2).prefetch(3).fingerprint() == plain.fingerprint()
    assert plain.with_options(seed=3).fingerprint() == plain.fingerprint()


def test_a_fingerprint_includes_new_operators_and_their_arguments() -> None:
    datasets: list[Dataset[Any]] = [
        Dataset.counter(1),
        Dataset.counter(2),
        Dataset.random(1),
        Dataset.random(1, rerandomize_each_iteration=True),
        Dataset.from_list([1, 2]),
        Dataset.from_list([1, 3]),
        NUMBERS.unique(),
        NUMBERS.unique(int),
        NUMBERS.scan(lambda a, b: (a, b), 0),
        NUMBERS.scan(lambda a, b: (a, b), 1),
        NUMBERS.pad_to_cardinality(30),
        NUMBERS.pad_to_cardinality(31),
        NUMBERS.assert_cardinality(20),
    ]
    assert len({dataset.fingerprint() for dataset in datasets}) == len(datasets)
