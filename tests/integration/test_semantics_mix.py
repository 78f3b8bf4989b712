"""sample_from and choose_from over running data sets: proportions, ends, changes of weights, counts, errors."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

import numpy as np
import pytest

import aiostream_data as asd
from aiostream_data import Dataset
from aiostream_data.errors import ChoiceError, LoaderClosedError, PlanError, StateMismatchError
from aiostream_data.testing.resume import resumes_everywhere

A, B = Dataset.range(100), Dataset.range(1000, 1100)
ENDLESS = {"a": A.repeat(), "b": B.repeat()}
LONG = {"a": Dataset.range(1_000_000), "b": Dataset.range(1_000_000).map(lambda row: row + 1_000_000, batched=True)}


def is_a(rows: list[int]) -> list[bool]:
    return [row < 1000 for row in rows]


def is_first(rows: list[int]) -> list[bool]:
    return [row < 1_000_000 for row in rows]


def test_rows_come_in_proportion_and_in_the_order_of_their_data_set() -> None:
    rows = list(Dataset.sample_from([A, B], [4, 1]))
    assert rows[:10] == [0, 1, 1000, 2, 3, 4, 5, 1001, 6, 7]
    assert len(rows) == Dataset.sample_from([A, B], [4, 1]).cardinality() == 125
    assert [row for row in rows if row < 1000] == list(range(100))


def test_all_gives_every_row_once() -> None:
    rows = list(Dataset.sample_from([A.take(7), B], [1, 3], stop="all"))
    assert sorted(rows) == [*range(7), *range(1000, 1100)]
    assert rows[-50:] == list(range(1050, 1100))


def test_data_sets_are_shuffled_and_repeated_on_their_own() -> None:
    mixed = Dataset.sample_from([A.take(6).shuffle(6, seed=1).repeat(), B.shuffle(50, seed=2)])
    with mixed.open(seed=0) as loader:
        rows = list(loader)
    from_a = [row for row in rows if row < 1000]
    assert len(from_a) == 101
    for start in range(0, 90, 6):
        assert sorted(from_a[start : start + 6]) == list(range(6))
    assert sorted(row for row in rows if row >= 1000) == list(range(1000, 1100))


def test_the_same_data_set_can_be_mixed_with_itself() -> None:
    assert list(Dataset.sample_from([A, A], [1, 1]).take(6)) == [0, 0, 1, 1, 2, 2]
    cached = A.map(int).cache()
    assert list(Dataset.sample_from([cached, cached, B], [1, 1, 1]).take(6)) == [0, 0, 1000, 1, 1, 1001]


def test_mixtures_of_batches_and_of_dicts() -> None:
    batches = list(Dataset.sample_from([A.batch(3), B.batch(2)]).take(3))
    assert [batch.tolist() for batch in batches] == [[0, 1, 2], [1000, 1001], [3, 4, 5]]
    dicts = [Dataset.from_tensor_slices({"x": np.arange(4) + 10 * k, "y": np.ones((4, 2)) * k}) for k in range(2)]
    rows = next(iter(Dataset.sample_from(dicts).batch(5)))
    assert rows["x"].tolist() == [0, 10, 1, 11, 2]
    assert rows["y"][:, 0].tolist() == [0, 1, 0, 1, 0]


def test_a_mixture_may_be_mixed_again() -> None:
    inner = Dataset.sample_from([A, B])
    assert list(Dataset.sample_from([inner, Dataset.range(-9, 0)], [2, 1]).take(6)) == [0, -9, 1000, 1, -8, 1001]


def test_a_schedule_by_row_of_the_mixture() -> None:
    steps = Dataset.sample_from(ENDLESS, [(0, [1, 0]), (10, [0, 1]), (20, [1, 1])]).take(30)
    assert is_a(list(steps)) == [True] * 10 + [False] * 10 + [True, False] * 5
    function = Dataset.sample_from(ENDLESS, lambda row: [row < 10, row >= 10], schedule_every=10).take(20)
    assert is_a(list(function)) == [True] * 10 + [False] * 10


def test_a_function_that_returns_no_weights_is_an_error_where_its_row_comes() -> None:
    with Dataset.sample_from(ENDLESS, lambda row: [1, 1 - row], schedule_every=10).open() as loader:
        rows = iter(loader)
        with pytest.raises(PlanError, match=r"the weights for row 10 must be finite, at least 0"):
            list(rows)


def test_random_draws_depend_on_seed_epoch_and_row_only() -> None:
    mixed = Dataset.sample_from(ENDLESS, [1, 3], seed=7, random=True).take(4000)
    passes = []
    for epoch in (0, 0, 1):
        with mixed.open(epoch=epoch) as loader:
            passes.append(is_a(list(loader)))
    assert passes[0] == passes[1] != passes[2]
    assert abs(sum(passes[0]) - 1000) < 150
    assert passes[0][:400].count(True) not in (99, 100, 101)


def test_choose_from_takes_what_the_choices_name() -> None:
    choices = Dataset.from_tensor_slices([1, 1, 0, 1, 0])
    assert list(Dataset.choose_from([A, B], choices)) == [1000, 1001, 0, 1002, 1]
    assert list(Dataset.choose_from([A, B], Dataset.range(2).repeat(2))) == [0, 1000, 1, 1001]


def test_choose_from_ends_with_the_first_or_goes_on_to_the_last() -> None:
    choices = Dataset.from_iterable([0, 1, 0, 0, 1, 1])
    few = [A.take(2), B]
    assert list(Dataset.choose_from(few, choices)) == [0, 1000, 1]
    assert list(Dataset.choose_from(few, choices, stop="all")) == [0, 1000, 1, 1001, 1002]
    assert list(Dataset.choose_from([A.take(2)], choices.map(lambda _: 0).repeat(), stop="all")) == [0, 1]


@pytest.mark.parametrize(
    ("choice", "message"), [(2, r"choice 1 of choose_from\(\) must be the index of a dataset"), (0.5, "float64")]
)
def test_a_choice_of_nothing_is_an_error(choice: Any, message: str) -> None:
    choices = Dataset.from_iterable([0, choice])
    with pytest.raises(ChoiceError, match=message) as caught:
        list(Dataset.choose_from([A, B], choices))
    assert "stage: choose_from" in "".join(caught.value.__notes__)


@pytest.mark.parametrize("before", [3, 300])
def test_rows_of_the_choices_before_a_wrong_one_are_given(before: int) -> None:
    choices = Dataset.from_tensor_slices(np.array([0] * before + [2, 0]))
    given: list[int] = []
    with Dataset.choose_from([Dataset.range(1000), B], choices).open() as loader:
        given += [int(next(loader)) for _ in range(before)]
        with pytest.raises(ChoiceError):
            next(loader)
    assert given == list(range(before))


def test_stats_count_the_rows_of_every_data_set_by_name() -> None:
    with Dataset.sample_from(ENDLESS, {"a": 3, "b": 1}).take(400).open() as loader:
        list(loader)
        stage = next(stage for stage in loader.stats().stages if stage.name == "sample_from")
    extra = stage.extra
    assert extra["rows from a"] >= 300
    assert abs(extra["rows from a"] - 3 * extra["rows from b"]) <= 3
    assert extra["rows from a"] + extra["rows from b"] == stage.rows


# -- weights changed while running


def several_thousand(loader: asd.Loader[Any]) -> list[int]:
    return [row for batch in islice(loader, 20) for row in batch.tolist()]


LONG_BATCHES = Dataset.sample_from(LONG, [1, 0]).batch(500)


def test_new_weights_hold_from_the_row_that_is_returned() -> None:
    with LONG_BATCHES.take(600).open() as loader:
        rows = several_thousand(loader)
        change = loader.set_weights({"a": 0, "b": 1})
        rows += [row for batch in loader for row in batch.tolist()]
    assert len(rows) == 300_000 > change >= 10_000
    assert is_first(rows) == [True] * change + [False] * (300_000 - change)


def test_new_weights_can_wait_for_their_row() -> None:
    with LONG_BATCHES.take(600).open() as loader:
        several_thousand(loader)
        assert loader.set_weights([0, 1], from_row=290_000) == 290_000
        with pytest.raises(PlanError, match=r"cannot change the weights from row 3 on: the next row is \d+"):
            loader.set_weights([0, 1], from_row=3)
        rows = [row for batch in loader for row in batch.tolist()]
    assert is_first(rows) == [True] * 280_000 + [False] * 10_000


def test_new_weights_are_in_the_state_and_change_a_resumed_run_at_the_same_row() -> None:
    with LONG_BATCHES.take(600).open() as loader:
        several_thousand(loader)
        change = loader.set_weights([1, 1], from_row=200_000)
        before = json.dumps(loader.state_dict())
        rest = [row for batch in islice(loader, 480) for row in batch.tolist()]
        after = json.dumps(loader.state_dict())
        last = [row for batch in loader for row in batch.tolist()]
    assert change == 200_000
    for state, expected in ((before, rest + last), (after, last)):
        with LONG_BATCHES.take(600).open(json.loads(state)) as loader:
            assert [row for batch in loader for row in batch.tolist()] == expected


def test_whoever_resumes_with_other_weights_gets_those() -> None:
    with LONG_BATCHES.open() as loader:
        several_thousand(loader)
        loader.set_weights([0, 1])
        state = loader.state_dict()
    other = Dataset.sample_from(LONG, [1, 3]).batch(500)
    with other.open(state) as loader:
        assert is_first(several_thousand(loader)).count(True) == 2500


def test_what_was_received_is_replayed_with_the_weights_it_was_taken_by() -> None:
    with LONG_BATCHES.take(2400).open() as loader:
        rows = several_thousand(loader)
        loader.set_weights([1, 1], from_row=400_000)
        rows += [row for batch in islice(loader, 300) for row in batch.tolist()]
        loader.set_weights([0, 1], from_row=1_000_000)  # far beyond what can have been decided by now
        rows += [row for batch in loader for row in batch.tolist()]
        with loader.replay(700, 2390) as again:
            assert [row for batch in again for row in batch.tolist()] == rows[350_000:1_195_000]


def test_new_weights_stay_when_elements_are_skipped() -> None:
    with LONG_BATCHES.take(600).open() as loader:
        several_thousand(loader)
        loader.set_weights([0, 1], from_row=200_000)
        loader.skip(100)
        rows = [row for batch in loader for row in batch.tolist()]
    assert is_first(rows) == [True] * 140_000 + [False] * 100_000


def test_new_weights_hold_in_later_epochs_as_well_also_when_resumed() -> None:
    epochs = Dataset.sample_from({"a": A.repeat(), "b": B}, [1, 0]).take(300).repeat().batch(50)
    with epochs.open(seed=1) as loader:
        next(iter(loader))
        loader.set_weights([1, 1])
        is_mixed = False
        while not is_mixed:  # some epochs were mixed before the new weights were set
            batches = list(islice(loader, 6))
            is_mixed = is_a(batches[1].tolist()).count(True) == 25
        state = json.dumps(loader.state_dict())
        rest = [batch.tolist() for batch in islice(loader, 12)]
    with epochs.open(json.loads(state)) as loader:
        assert [batch.tolist() for batch in islice(loader, 12)] == rest


def test_weights_can_be_set_before_the_first_row_is_received() -> None:
    with Dataset.sample_from(ENDLESS, [1, 0]).batch(5).take(3).open() as loader:
        row = loader.set_weights([0, 1], from_row=1_000_000_000)
        state = loader.state_dict()
    assert row == 1_000_000_000
    assert state["weights"]["last"][0][1][1] == [0.0, 1.0]


def test_of_several_mixtures_the_names_tell_which_is_meant() -> None:
    inner = Dataset.sample_from({"x": LONG["a"], "y": LONG["b"]}, [1, 0])
    outer = Dataset.sample_from({"in": inner, "z": A}, [1, 0]).batch(500).take(600)
    with outer.open() as loader:
        several_thousand(loader)
        with pytest.raises(PlanError, match="the names of one mixture of the plan: x, y; in, z"):
            loader.set_weights([1, 1])
        loader.set_weights({"x": 0, "y": 1})
        assert list(loader)[-1].min() >= 1_000_000


def test_weights_that_make_no_sense_are_refused_where_they_are_set() -> None:
    with LONG_BATCHES.take(600).open() as loader, pytest.raises(PlanError, match="must have the names a, b, got a"):
        loader.set_weights({"a": 1})
    with pytest.raises(LoaderClosedError):
        loader.set_weights([1, 1])
    with A.open() as loader, pytest.raises(PlanError, match=r"the plan has no sample_from\(\)"):
        loader.set_weights([1, 1])


@pytest.mark.parametrize("damaged", [[], {"runs": [[0, 0, [[1]]]], "last": []}, {"runs": [], "last": [["x", 1, 2]]}])
def test_a_state_with_damaged_changes_is_refused(damaged: Any) -> None:
    with LONG_BATCHES.open() as loader:
        state = loader.state_dict() | {"weights": damaged}
    with pytest.raises(StateMismatchError, match="the state is damaged"):
        LONG_BATCHES.open(state)


# -- resuming

PLANS: dict[str, Dataset[Any]] = {
    "first": Dataset.sample_from([A.take(20), B], [2, 1]),
    "all": Dataset.sample_from([A.take(9), B.take(20).filter(lambda x: x % 3 > 0)], [1, 3], stop="all"),
    "random": Dataset.sample_from([A.take(20), B.take(25)], [2, 1], random=True, stop="all"),
    "schedule": Dataset.sample_from([A, B.take(25)], [(0, [1, 1]), (10, [5, 1]), (20, [0, 1])]),
    "function": Dataset.sample_from([A, B.take(20)], lambda row: [30, 2 + row], schedule_every=4).take(28),
    "shuffles around": Dataset.sample_from([A.take(6).shuffle(4).repeat(), B.take(20).shuffle(9)]).shuffle(5).batch(3),
    "epochs": Dataset.sample_from([A.take(6).shuffle(4), B.take(4)]).repeat(3).batch(2),
    "itself": Dataset.sample_from([A.take(9), A.take(9).shuffle(3)]).shuffle(4),
    "nested": Dataset.sample_from([Dataset.sample_from([A.take(5), B]).shuffle(3), B.map(abs)], [1, 2]).shuffle(4),
    "in flat_map": Dataset.range(3).flat_map(
        lambda n: Dataset.sample_from([Dataset.range(int(n) + 2), B.take(3)], stop="all")
    ),
    "concatenated": Dataset.sample_from([A.take(3), B]).concatenate(Dataset.sample_from([B.take(3), A])).shuffle(3),
    "chosen": Dataset.choose_from([A.shuffle(5), B], Dataset.range(6).map(lambda x: x % 2).repeat(4)).shuffle(4),
    "chosen to the last": Dataset.choose_from(
        [A.take(3), B.take(8)], Dataset.range(2).repeat().shuffle(7), stop="all"
    ).batch(2),
}


@pytest.mark.parametrize("name", PLANS)
def test_mixtures_resume_after_every_element(name: str) -> None:
    report = resumes_everywhere(PLANS[name], open_options={"seed": 3})
    assert report.elements > 5


def test_r33_a_mixture_keeps_its_proportions_and_resumes_in_the_middle() -> None:
    sources = {"a": A.shuffle(100, seed=1).repeat(), "b": B.shuffle(7).repeat()}
    dataset = Dataset.sample_from(sources, [0.8, 0.2]).shuffle(50, seed=2).batch(100).take(100)
    with dataset.open(seed=9) as loader:
        batches, states = [], []
        for batch in loader:
            batches.append(batch.tolist())
            states.append(json.dumps(loader.state_dict()))
    rows = [row for batch in batches for row in batch]
    assert len(rows) == 10_000
    assert abs(is_a(rows).count(True) - 8000) <= 10
    for middle in (1, 37, 50, 99):
        with dataset.open(json.loads(states[middle - 1])) as loader:
            assert [batch.tolist() for batch in loader] == batches[middle:]
