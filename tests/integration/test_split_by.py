"""``split_by``: each element goes through the chain of operators of its key."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from aiostream_data import Dataset, MemoryBudgetError, PlanError, StageBuildError
from aiostream_data.plan.fingerprint import describe_plan
from aiostream_data.testing.resume import resumes_everywhere


def by_three(number: int) -> int:
    return number % 3


def whole(rows: Dataset[Any]) -> Dataset[Any]:
    return rows


def negative(rows: Dataset[Any]) -> Dataset[Any]:
    return rows.map(lambda number: -number)


def pairs(rows: Dataset[Any]) -> Dataset[Any]:
    return rows.batch(2).map(lambda batch: tuple(batch.tolist()))


BRANCHES = {2: negative, 0: pairs}


def test_without_a_window_size_branches_follow_each_other_in_the_given_order() -> None:
    rows = Dataset.range(10).split_by(by_three, BRANCHES, default=whole)
    assert list(rows) == [-2, -5, -8, (0, 3), (6, 9), 1, 4, 7]


def test_windows_come_when_they_are_full_and_the_rest_in_the_order_of_the_branches() -> None:
    rows = Dataset.range(11).split_by(by_three, BRANCHES, 2, default=whole)
    assert list(rows) == [(0, 3), 1, 4, -2, -5, (6, 9), 7, 10, -8]


def test_windows_of_one_element_keep_the_order_of_the_input() -> None:
    rows = Dataset.range(6).split_by(lambda number: number % 2, {0: whole, 1: negative}, 1)
    assert list(rows) == [0, -1, 2, -3, 4, -5]


def test_keys_can_be_anything_hashable_and_elements_anything() -> None:
    words = Dataset.from_iterable(["b", "a", None, 3, ("x", 1)])
    kinds = {str: whole, tuple: lambda rows: rows.map(lambda name, number: name * number)}
    rows = words.split_by(lambda *word: tuple if len(word) > 1 else type(word[0]), kinds, default=whole)
    assert list(rows) == ["b", "a", "x", None, 3]
    numbers = Dataset.range(4).split_by(lambda number: np.int8(number % 2), {True: whole, 0: negative})
    assert list(numbers) == [1, 3, 0, -2]


def test_a_chain_may_leave_out_and_add_elements() -> None:
    rows = Dataset.range(6).split_by(
        by_three, {0: lambda rows: rows.take(0), 1: lambda rows: rows.repeat(2)}, default=whole
    )
    assert list(rows) == [1, 4, 1, 4, 2, 5]


def test_the_plan_names_the_branches() -> None:
    rows = Dataset.range(10).split_by(by_three, BRANCHES, 2, default=whole)
    told = rows.explain()
    assert "split_by(by_three, window_size=2)" in told
    assert "split_by({2: negative, 0: pairs, default: whole})" in told
    assert rows.cardinality() == -2


def test_another_chain_is_another_plan() -> None:
    plans = [
        Dataset.range(10).split_by(by_three, branches, default=whole).plan
        for branches in ({0: whole}, {1: whole}, {0: pairs}, {0: whole, 1: whole}, {1: whole, 0: whole})
    ]
    assert len({str(describe_plan(plan)) for plan in plans}) == 5


def test_a_key_without_a_branch_raises_after_the_rows_before() -> None:
    with Dataset.range(6).split_by(by_three, {0: whole, 1: whole}, 1).open() as loader:
        assert [next(loader) for _ in range(2)] == [0, 1]
        with pytest.raises(PlanError, match=r"no branch for key 2: the branches are 0, 1\. Add a branch") as caught:
            next(loader)
    assert "record: range record 2" in caught.value.__notes__
    with pytest.raises(PlanError, match="no branch for key"):
        list(Dataset.range(6).split_by(lambda number: [number], {0: whole}))


def fails(rows: Dataset[Any]) -> Dataset[Any]:
    raise ValueError("no chain")


def fails_at_four(number: int) -> int:
    if number == 4:
        raise ValueError("four")
    return number


@pytest.mark.parametrize(
    ("chain", "message", "rows", "note"),
    [
        (fails, "no chain", [0, 2], "branch: 1, fails"),
        (lambda rows: rows.map(fails_at_four), "four", [0, 2, 1], "fails_at_four"),
        (lambda rows: 3, "must return a Dataset or an iterable", [0, 2], "record: range record 1"),
    ],
)
def test_elements_before_a_failing_chain_are_delivered(chain: Any, message: str, rows: list[int], note: str) -> None:
    with Dataset.range(9).split_by(by_three, {1: chain}, 2, default=whole).open() as loader:
        assert [next(loader) for _ in rows] == rows
        with pytest.raises((ValueError, PlanError), match=message) as caught:
            next(loader)
    assert note in "\n".join(caught.value.__notes__)


def test_windows_that_never_fill_count_against_the_memory_limit() -> None:
    rows = Dataset.range(4000).map(lambda number: np.full(1000, number)).split_by(lambda row: 0, {0: whole})
    with (
        pytest.raises(MemoryBudgetError, match="cannot hold more rows in split_by"),
        rows.open(memory_limit="4MB") as loader,
    ):
        list(loader)


async def later(number: int) -> int:
    return number


def one_by_one(rows: Dataset[Any]) -> Iterator[Any]:
    yield from rows


def test_bad_arguments_are_refused_at_the_call() -> None:
    rows = Dataset.range(4)
    bad: list[tuple[Callable[[], Any], type[Exception]]] = [
        (lambda: rows.split_by(by_three, {}), PlanError),
        (lambda: rows.split_by(by_three, [whole]), PlanError),  # type: ignore[call-overload]
        (lambda: rows.split_by(by_three, {0: 3}), PlanError),  # type: ignore[dict-item]
        (lambda: rows.split_by(by_three, {0: one_by_one}), StageBuildError),  # type: ignore[dict-item]
        (lambda: rows.split_by(by_three, {0: whole}, 0), PlanError),
        (lambda: rows.split_by(by_three, {0: whole}, default=3), PlanError),  # type: ignore[call-overload]
        (lambda: rows.split_by(later, {0: whole}), PlanError),
        (lambda: rows.split_by("key", {0: whole}), PlanError),  # type: ignore[call-overload]
    ]
    for call, kind in bad:
        with pytest.raises(kind):
            call()


@pytest.mark.parametrize(
    "dataset",
    [
        Dataset.range(13).split_by(by_three, BRANCHES, 2, default=whole),
        Dataset.range(9).split_by(by_three, BRANCHES, default=whole).repeat(2),
        Dataset.range(9).shuffle(4, seed=1).split_by(by_three, {0: whole, 1: negative, 2: whole}, 1).shuffle(3, seed=2),
        Dataset.range(12).split_by(by_three, {0: lambda rows: rows.shuffle(3).repeat(2)}, 3, default=negative),
    ],
    ids=["windows", "whole branches", "single elements", "inner shuffle"],
)
def test_split_by_resumes_after_every_element(dataset: Dataset[Any]) -> None:
    resumes_everywhere(dataset)


def test_a_split_dataset_pickles() -> None:
    rows = Dataset.range(9).split_by(by_three, {0: whole}, 2, default=pairs)
    assert list(pickle.loads(pickle.dumps(rows))) == list(rows)
