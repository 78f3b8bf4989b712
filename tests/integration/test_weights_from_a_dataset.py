"""``sample_from`` with a dataset of weights, and ``weighted_flat_map``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aiostream_data as asd
from aiostream_data import Dataset, PlanError
from aiostream_data.testing.resume import resumes_everywhere
from aiostream_data.transforms.weighted_choices import ChoicesByWeight

LOW, HIGH = Dataset.range(100), Dataset.range(100, 200)


def vectors(*rows: list[float]) -> Dataset[Any]:
    return Dataset.from_iterable(list(rows))


def ramp(row: int) -> list[int]:
    return [100 - int(row), int(row)]


def from_high(dataset: Dataset[int], **options: Any) -> list[bool]:
    with dataset.open(**options) as loader:
        return [number >= 100 for number in loader]


# -- the choices


def test_choices_follow_the_sum_of_the_weights() -> None:
    weights = np.random.default_rng(1).random((500, 3))
    choices, place = ChoicesByWeight(3).push(weights)
    due = np.cumsum(weights / weights.sum(axis=1, keepdims=True), axis=0)
    taken = np.cumsum(choices[:, np.newaxis] == np.arange(3), axis=0)
    assert np.abs(due - taken).max() < 2
    assert place.row == 0


def test_an_input_of_weight_0_is_never_chosen() -> None:
    weights = np.array([[0.0, 1.0], [1.0, 0.0]] * 50)
    for key in (None, np.uint64(7)):
        assert ChoicesByWeight(2, key).push(weights)[0].tolist() == [1, 0] * 50


@pytest.mark.parametrize("key", [None, np.uint64(7)])
def test_choices_and_lags_do_not_depend_on_the_division_into_chunks(key: np.uint64 | None) -> None:
    weights = np.random.default_rng(2).random((40, 3))
    whole, parts = ChoicesByWeight(3, key), ChoicesByWeight(3, key)
    choices, place = whole.push(weights)
    found = [parts.push(weights[first : first + 7])[0] for first in range(0, 40, 7)]
    assert np.concatenate(found).tolist() == choices.tolist()
    assert parts.lags.tolist() == whole.lags.tolist() == whole.lags_after(place, 40).tolist()


# -- the operator


def test_each_row_has_its_own_weights() -> None:
    weights = vectors([1, 0], [0, 1], [1, 1], [1, 1])
    assert list(Dataset.sample_from([LOW, HIGH], weights)) == [0, 100, 1, 101]


def test_constant_vectors_mix_as_constant_weights_do() -> None:
    by_vectors = Dataset.sample_from([LOW, HIGH], Dataset.from_tensor_slices(np.array([[3, 1]] * 40)))
    assert from_high(by_vectors) == from_high(Dataset.sample_from([LOW, HIGH], [3, 1]))[:40]


def test_weights_by_name_and_proportions_over_time() -> None:
    weights = Dataset.range(100).map(lambda row: {"low": 100 - row, "high": row})
    found = from_high(Dataset.sample_from({"low": LOW, "high": HIGH}, weights))
    assert [sum(found[first : first + 25]) for first in range(0, 100, 25)] == [3, 9, 16, 22]


def test_random_draws_depend_on_seed_epoch_and_row() -> None:
    mixture = Dataset.sample_from([LOW, HIGH], Dataset.range(100).map(ramp), random=True)
    assert from_high(mixture, seed=1) == from_high(mixture, seed=1, debug=True) != from_high(mixture, seed=2)
    assert from_high(mixture, seed=1) != from_high(mixture, seed=1, epoch=1)
    assert 35 < sum(from_high(mixture, seed=1)) < 65


def test_the_mixture_ends_with_the_weights_or_an_exhausted_dataset() -> None:
    few = Dataset.range(2)
    alternating = Dataset.from_tensor_slices(np.ones((9, 2)))
    assert list(Dataset.sample_from([few, HIGH], alternating)) == [0, 100, 1, 101]
    assert list(Dataset.sample_from([few, HIGH], alternating, stop="all")) == [0, 100, 1, 101, 102, 103]


def test_the_plan_knows_what_it_can() -> None:
    mixture = Dataset.sample_from([LOW, HIGH], Dataset.range(9).map(ramp))
    assert mixture.element_spec == LOW.element_spec
    assert "sample_from(weights=<a dataset>)" in mixture.explain()
    with mixture.open() as loader, pytest.raises(PlanError, match="cannot set weights"):
        loader.set_weights([1, 1])


# -- failures


@pytest.mark.parametrize("row", [0, 2, 5])
@pytest.mark.parametrize("wrong", [[1], [1, -1], [0, 0], ["a", 1], 3, {"0": 1}])
def test_rows_before_wrong_weights_are_delivered(row: int, wrong: Any) -> None:
    weights = [[1, 1]] * 6
    weights[row] = wrong
    with Dataset.sample_from([LOW, HIGH], Dataset.from_iterable(weights)).open() as loader:
        assert len([next(loader) for _ in range(row)]) == row
        with pytest.raises(PlanError, match=r"the weights of sample_from\(\) must") as caught:
            next(loader)
    assert f"record {row}" in "".join(caught.value.__notes__)


def test_bad_arguments_raise_at_the_call() -> None:
    once: Dataset[Any] = Dataset.from_iterable(iter([[1, 1]]))
    with pytest.raises(asd.StageBuildError, match="more than once"):
        Dataset.sample_from([once, once.map(len)], once)
    with pytest.raises(PlanError, match="stop"):
        Dataset.sample_from([LOW, HIGH], vectors([1, 1]), stop="none")  # type: ignore[arg-type]
    with pytest.raises(PlanError, match=r"of unknown length\. Use take"):
        Dataset.weighted_flat_map([LOW, HIGH.filter(bool)])
    with pytest.raises(PlanError, match="dataset a is infinite"):
        Dataset.weighted_flat_map({"a": LOW.repeat()}, {"a": 1})
    with pytest.raises(PlanError, match="one number per dataset"):
        Dataset.weighted_flat_map([LOW, HIGH], [1])


# -- weighted_flat_map


def test_elements_are_in_sequence_and_in_proportion() -> None:
    ten, twenty = Dataset.range(10), Dataset.range(10, 20)
    assert list(Dataset.weighted_flat_map([ten, twenty], [0.5, 1])) == [*range(5), *range(10, 20)]
    assert list(Dataset.weighted_flat_map([ten, Dataset.range(50, 53)])) == [0, 1, 2, 50, 51, 52]
    assert list(Dataset.weighted_flat_map({"a": ten, "b": HIGH.filter(bool)}, {"a": 1, "b": 0})) == list(range(10))
    assert len(Dataset.weighted_flat_map([ten, twenty], [0.1, 0.3])) == 13


# -- resuming


@pytest.mark.parametrize(
    "dataset",
    [
        Dataset.sample_from([LOW.take(9), HIGH.take(20)], Dataset.range(40).map(ramp)),
        Dataset.sample_from([LOW.take(5), HIGH.take(9)], Dataset.range(30).map(ramp).shuffle(5), stop="all"),
        Dataset.sample_from([LOW.take(9), HIGH.take(9)], vectors([1, 2], [3, 1]).repeat(6), random=True).repeat(2),
        Dataset.weighted_flat_map([LOW.take(9).shuffle(3), HIGH.take(9)], [1, 2]).batch(4),
    ],
    ids=["ramp", "stop at all", "random", "weighted_flat_map"],
)
def test_it_resumes_after_every_element(dataset: Dataset[Any]) -> None:
    resumes_everywhere(dataset)
