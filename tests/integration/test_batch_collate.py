"""``batch(collate=...)``: a function makes each batch of the list of its elements."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from aiostream_data import Dataset, PlanError, RaggedArray, StageBuildError
from aiostream_data.testing.resume import resumes_everywhere


def as_they_are(elements: list[Any]) -> list[Any]:
    return elements


def longest_first(elements: list[Any]) -> dict[str, Any]:
    ordered = sorted(elements, key=len, reverse=True)
    return {"lengths": np.array(list(map(len, ordered))), "text": ",".join(ordered)}


def without_four(elements: list[int]) -> int:
    if 4 in elements:
        raise ValueError("four")
    return sum(elements)


LISTS = Dataset.range(7).batch(3, collate=as_they_are)


def test_the_function_gets_the_elements_of_each_batch() -> None:
    assert list(LISTS) == [[0, 1, 2], [3, 4, 5], [6]]
    assert list(Dataset.range(7).batch(3, collate=as_they_are, drop_remainder=True)) == [[0, 1, 2], [3, 4, 5]]
    pairs = Dataset.range(4).enumerate().batch(2, collate=as_they_are)
    assert list(pairs) == [[(0, 0), (1, 1)], [(2, 2), (3, 3)]]


def test_elements_that_do_not_stack_form_a_batch() -> None:
    words = Dataset.from_iterable(["a", "bcd", "ef"]).batch(2, collate=longest_first)
    first, last = list(words)
    assert (first["lengths"].tolist(), first["text"]) == ([3, 1], "bcd,a")
    assert last["text"] == "ef"


def test_arrays_of_a_batch_may_be_modified_and_keep_no_other_rows() -> None:
    tokens = RaggedArray(np.arange(1000), np.array([0, 1, 3, 1000]))
    first = next(iter(Dataset.from_tensor_slices({"t": tokens}).batch(2, collate=as_they_are)))
    first[1]["t"] += 1
    assert first[1]["t"].tolist() == [2, 3]
    assert first[1]["t"].base.nbytes == 3 * tokens.values.itemsize
    assert tokens.values[1] == 1


def test_the_plan_knows_its_length_and_names_the_function() -> None:
    assert LISTS.cardinality() == 3
    assert Dataset.range(7).batch(3, collate=len, drop_remainder=True).cardinality() == 2
    assert "batch(3, collate=as_they_are)" in LISTS.explain()


def test_batches_before_a_failure_are_delivered_and_the_error_names_the_batch() -> None:
    with Dataset.range(9).batch(2, collate=without_four).open() as loader:
        assert [next(loader) for _ in range(2)] == [1, 5]
        with pytest.raises(ValueError, match="four") as caught:
            next(loader)
    notes = "\n".join(caught.value.__notes__)
    assert "stage: batch, written at" in notes
    assert "without_four" in notes
    assert "record: range record 4, the first of 2" in notes


@pytest.mark.parametrize(("first", "batches"), [(0, 0), (3, 3), (6, 6)])
def test_any_batch_can_fail(first: int, batches: int) -> None:
    calls: list[int] = []

    def fails(elements: list[int]) -> int:
        calls.append(elements[0])
        if elements[0] == first:
            raise ValueError("first")
        return elements[0]

    with Dataset.range(7).batch(1, collate=fails).open() as loader:
        assert [next(loader) for _ in range(batches)] == list(range(batches))
        with pytest.raises(ValueError, match="first"):
            next(loader)
    assert calls == list(range(first + 1))  # once for each batch


def numbers_one_by_one(elements: list[int]) -> Iterator[int]:
    yield from elements


async def later(elements: list[int]) -> int:
    return len(elements)


def test_results_must_be_values() -> None:
    with pytest.raises(PlanError, match="is not a value"):
        list(Dataset.range(4).batch(2, collate=lambda rows: numbers_one_by_one(rows)))


def test_bad_arguments_are_refused_at_the_call() -> None:
    rows = Dataset.range(4)
    bad: list[tuple[Callable[[], Any], type[Exception], str]] = [
        (lambda: rows.batch(2, collate=3), PlanError, "needs a function"),  # type: ignore[call-overload]
        (lambda: rows.batch(2, collate=later), PlanError, "coroutine function"),
        (lambda: rows.batch(2, collate=numbers_one_by_one), StageBuildError, "generator function"),
        (lambda: rows.batch(2, collate=lambda: 1), StageBuildError, "no positional argument"),  # type: ignore[arg-type,misc]
        (lambda: rows.batch(collate=len), PlanError, "needs batch_size"),  # type: ignore[call-overload]
        (lambda: rows.batch(0, collate=len), PlanError, "at least 1"),
        (lambda: rows.batch(2, collate=len, max_cost=3), PlanError, "max_cost and strings"),  # type: ignore[call-overload]
        (lambda: rows.batch(2, collate=len, strings="columns"), PlanError, "max_cost and strings"),  # type: ignore[call-overload]
        (lambda: rows.batch(2, collate=len, cost=len), PlanError, "need max_cost"),  # type: ignore[call-overload]
    ]
    for call, kind, message in bad:
        with pytest.raises(kind, match=message):
            call()


@pytest.mark.parametrize(
    "dataset",
    [
        LISTS,
        LISTS.repeat(2),
        LISTS.shuffle(2, seed=1),
        Dataset.range(9).shuffle(4, seed=1).batch(2, collate=as_they_are, drop_remainder=True),
        Dataset.range(12).filter(lambda number: number % 3 > 0).batch(3, collate=as_they_are),
    ],
    ids=["alone", "repeated", "shuffled", "of shuffled", "of filtered"],
)
def test_batches_resume_after_every_element(dataset: Dataset[Any]) -> None:
    resumes_everywhere(dataset)


def test_ranks_and_processes_share_the_rows_of_batches() -> None:
    rows = Dataset.range(8).batch(2, collate=as_they_are)
    assert [list(rows.open(rank=rank, world_size=2)) for rank in range(2)] == [[[0, 2], [4, 6]], [[1, 3], [5, 7]]]
    assert list(LISTS.in_subprocess(2)) == list(LISTS)
