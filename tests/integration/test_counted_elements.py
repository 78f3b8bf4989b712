"""``assert_cardinality``, ``pad_to_cardinality``, ``get_single_element`` and ``ignore_errors``."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aiostream_data import INFINITE, CardinalityError, Dataset, PlanError, RankError, Skip
from aiostream_data.testing.resume import resumes_everywhere


def is_even(number: int) -> bool:
    return number % 2 == 0


def fails_at_three(number: int) -> int:
    if number == 3:
        raise ValueError("three")
    return int(number)


def size(number: int, is_valid: bool) -> int:
    return number


EVEN = Dataset.range(10).filter(is_even)

# -- assert_cardinality


def test_the_right_number_passes_and_is_known() -> None:
    dataset = EVEN.assert_cardinality(5)
    assert list(dataset) == [0, 2, 4, 6, 8]
    assert len(dataset) == 5
    assert len(dataset.batch(2)) == 3
    assert dataset.element_spec == EVEN.element_spec
    assert "assert_cardinality(5)" in dataset.explain()
    assert list(dataset.open(rank=0, world_size=1)) == list(dataset.debug()) == list(dataset)


@pytest.mark.parametrize(("count", "given", "found"), [(7, 5, "5"), (3, 3, "more"), (0, 0, "more"), (INFINITE, 5, "5")])
def test_a_wrong_number_is_an_error_behind_the_elements(count: int, given: int, found: str) -> None:
    with EVEN.assert_cardinality(count).open() as loader:
        assert [next(loader) for _ in range(given)] == [0, 2, 4, 6, 8][:given]
        with pytest.raises(CardinalityError, match=f"but its input has {found}"):
            next(loader)


def test_what_is_not_read_is_not_counted() -> None:
    assert list(EVEN.assert_cardinality(7).take(2)) == [0, 2]


@pytest.mark.parametrize("count", [9, 11, INFINITE])
def test_a_known_number_is_compared_at_once(count: int) -> None:
    with pytest.raises(PlanError, match=r"assert_cardinality\(\) expects .* has 10 elements"):
        Dataset.range(10).assert_cardinality(count)
    with pytest.raises(PlanError, match="has an infinite number of elements"):
        Dataset.counter().assert_cardinality(10)


@pytest.mark.parametrize("wrong", [-2, 1.5, "3", None])
def test_an_assertion_needs_a_number(wrong: Any) -> None:
    with pytest.raises(PlanError, match="count"):
        EVEN.assert_cardinality(wrong)


# -- pad_to_cardinality


def test_padding_an_input_with_fewer_elements_than_its_cardinality_is_an_error() -> None:
    passes = [3, 0]
    dataset = Dataset.from_generator(lambda: range(passes.pop(0))).repeat().take(8).pad_to_cardinality(10)
    received: list[Any] = []
    with pytest.raises(CardinalityError, match=r"expects 8 elements, .* but its input has 3\."):
        received.extend(dataset)
    assert received == [(0, True), (1, True), (2, True)]


def test_dicts_get_a_mask() -> None:
    padded = Dataset.from_tensor_slices({"a": [1, 2]}).pad_to_cardinality(3)
    assert list(padded) == [{"a": 1, "valid": True}, {"a": 2, "valid": True}, {"a": 2, "valid": False}]
    assert padded.cardinality() == 3
    assert padded.element_spec["valid"].dtype == np.bool_
    assert "pad_to_cardinality(3)" in padded.explain()


def test_other_elements_become_pairs() -> None:
    assert list(Dataset.range(2).pad_to_cardinality(4)) == [(0, True), (1, True), (1, False), (1, False)]
    assert list(Dataset.range(2).pad_to_cardinality(2)) == [(0, True), (1, True)]
    assert list(Dataset.from_iterable([{1}]).pad_to_cardinality(2)) == [({1}, True), ({1}, False)]


def test_ranks_get_equal_numbers_of_padded_rows() -> None:
    dataset = Dataset.range(5).pad_to_cardinality(6)
    assert [list(dataset.open(rank=rank, world_size=2)) for rank in range(2)] == [
        [(0, True), (2, True), (4, True)],
        [(1, True), (3, True), (4, False)],
    ]


def test_an_asserted_number_can_be_extended() -> None:
    assert list(EVEN.assert_cardinality(5).pad_to_cardinality(6))[-2:] == [(8, True), (8, False)]


@pytest.mark.parametrize(
    ("dataset", "problem"),
    [
        (Dataset.range(5), "cannot extend 5 elements to 4"),
        (Dataset.range(0), "the dataset is empty"),
        (EVEN, "an unknown number of elements"),
        (Dataset.counter(), "an infinite number of elements"),
    ],
    ids=["larger", "empty", "unknown", "infinite"],
)
def test_what_cannot_be_extended_is_refused(dataset: Dataset[Any], problem: str) -> None:
    with pytest.raises(PlanError, match=problem):
        dataset.pad_to_cardinality(4)


def test_a_mask_that_is_there_is_not_replaced() -> None:
    with pytest.raises(RankError, match=r"pad_to_cardinality\(\) adds 'valid'"):
        list(Dataset.from_tensor_slices({"valid": [1, 2]}).pad_to_cardinality(3))


# -- get_single_element


def test_the_only_element_is_returned() -> None:
    assert Dataset.range(1).get_single_element() == 0
    assert Dataset.range(5).batch(5).get_single_element().tolist() == [0, 1, 2, 3, 4]
    assert EVEN.filter(lambda number: number == 4).get_single_element() == 4
    assert asyncio.run(EVEN.take(1).aget_single_element()) == 0


@pytest.mark.parametrize(
    ("dataset", "found"),
    [
        (Dataset.range(0), "no element"),
        (Dataset.range(3), "3 elements"),
        (EVEN, "more than one element"),
        (EVEN.take(0), "no element"),
        (Dataset.counter(), "more than one element"),
    ],
    ids=["empty", "several", "several, unknown", "none, unknown", "infinite"],
)
def test_any_other_number_is_an_error(dataset: Dataset[Any], found: str) -> None:
    with pytest.raises(CardinalityError, match=f"the dataset has {found}"):
        dataset.get_single_element()
    with pytest.raises(CardinalityError, match=f"the dataset has {found}"):
        asyncio.run(dataset.aget_single_element())


# -- ignore_errors


def test_errors_before_the_call_are_skipped_and_counted() -> None:
    dataset = Dataset.range(6).map(fails_at_three).ignore_errors()
    with dataset.open() as loader:
        assert list(loader) == [0, 1, 2, 4, 5]
        assert sum(stage.skipped for stage in loader.stats().stages) == 1
    assert dataset.cardinality() == -2


def test_a_dataset_that_is_used_twice_stays_one() -> None:
    numbers = Dataset.range(6).map(fails_at_three)
    plan: Any = Dataset.zip(numbers, numbers).ignore_errors().plan
    assert plan.nodes[0] is plan.nodes[1]
    assert plan.nodes[0].on_error == Skip()


def test_errors_behind_the_call_are_raised() -> None:
    with pytest.raises(ValueError, match="three"):
        list(Dataset.range(6).ignore_errors().map(fails_at_three))


def test_policies_that_are_set_stay() -> None:
    dataset = Dataset.range(6).map(fails_at_three, on_error="raise").ignore_errors()
    with pytest.raises(ValueError, match="three"):
        list(dataset)
    assert "max_count=7" in Dataset.range(6).map(fails_at_three, on_error=Skip(max_count=7)).ignore_errors().explain()


def test_skipped_elements_can_be_logged_and_replayed(tmp_path: Path) -> None:
    log = tmp_path / "lost.jsonl"
    assert list(Dataset.range(6).map(fails_at_three).ignore_errors(log=log)) == [0, 1, 2, 4, 5]
    assert list(Dataset.range(6).map(int).replay(log)) == [3]
    with pytest.raises(PlanError, match="Quarantine"):
        Dataset.range(6).ignore_errors(log="")


RESUMING: dict[str, Dataset[Any]] = {
    "asserted": EVEN.assert_cardinality(5),
    "asserted and shuffled": EVEN.assert_cardinality(5).shuffle(3, seed=1).repeat(2).batch(2),
    "padded": Dataset.range(3).pad_to_cardinality(7),
    "padded dicts": Dataset.from_list([{"n": n, "t": str(n)} for n in range(3)]).pad_to_cardinality(7).batch(2),
    "padded and shuffled": Dataset.range(3).pad_to_cardinality(7).shuffle(4, seed=1).repeat(2),
    "padded and in buckets": Dataset.range(3)
    .pad_to_cardinality(7)
    .bucket_by_sequence_length(size, [2], [2, 1])
    .shuffle(3),
    "padded twice": Dataset.range(3).pad_to_cardinality(5).pad_to_cardinality(7).shuffle(4, seed=1),
    "ignored": Dataset.range(6).map(fails_at_three).ignore_errors().batch(2),
}


@pytest.mark.parametrize("dataset", RESUMING.values(), ids=RESUMING.keys())
def test_counted_elements_resume_after_every_element(dataset: Dataset[Any]) -> None:
    resumes_everywhere(dataset)


@pytest.mark.parametrize("rank", [0, 1])
def test_padding_of_an_operator_and_of_ranks_are_told_apart_in_states(rank: int) -> None:
    padded = Dataset.range(3).pad_to_cardinality(7)
    options = {"rank": rank, "world_size": 2, "tail": "pad"}
    for dataset in (padded.shuffle(4, seed=1), padded.bucket_by_sequence_length(size, [2], [2, 1]).shuffle(3)):
        resumes_everywhere(dataset, open_options=options)
