"""``rejection_resample``: classes of elements get a target distribution."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import aiostream_data as asd
from aiostream_data import Dataset, PlanError, StageBuildError
from aiostream_data.testing.resume import resumes_everywhere
from aiostream_data.transforms.resampling import KeepingByClass


def tenth(number: int) -> int:
    return int(int(number) % 10 > 0)


def fails_at(row: int) -> Any:
    def function(number: int) -> int:
        if number == row:
            raise ValueError(f"row {row}")
        return 0

    return function


def first_epoch(dataset: Dataset[Any], **options: Any) -> list[tuple[int, int]]:
    with dataset.open(seed=1, **options) as loader:
        return [(int(kind), int(number)) for kind, number in loader]


ROWS = Dataset.range(4000)
KNOWN = ROWS.rejection_resample(tenth, [0.5, 0.5], [0.1, 0.9], seed=1)
ESTIMATED = ROWS.rejection_resample(tenth, [0.5, 0.5], seed=1)


# -- the probabilities


def test_a_known_distribution_gives_the_ratios_of_target_and_input() -> None:
    keeping = KeepingByClass([1, 1, 2], [1, 2, 1])
    assert keeping.push(np.array([0, 1, 2, 2])).tolist() == [0.5, 0.25, 1.0, 1.0]
    assert keeping.counts is None


def test_the_estimate_counts_the_rows_up_to_each_row_and_ten_of_each_class() -> None:
    keeping = KeepingByClass([1, 1])
    assert keeping.push(np.array([0, 0, 1])).tolist() == pytest.approx([10 / 11, 10 / 12, 1.0])
    assert keeping.counts is not None
    assert keeping.counts.tolist() == [2, 1]


def test_a_class_that_the_input_lacks_may_have_no_weight() -> None:
    assert KeepingByClass([1, 0], [1, 0]).push(np.array([0, 1])).tolist() == [1.0, 0.0]


@pytest.mark.parametrize("classes", [3, 40_000])
def test_the_probabilities_do_not_depend_on_the_division_into_calls(classes: int) -> None:
    rows = np.random.default_rng(1).integers(0, 3, 50)
    whole = KeepingByClass([1.0] * classes).push(rows)
    keeping = KeepingByClass([1.0] * classes)
    parts = [keeping.push(rows[first : first + 7]) for first in range(0, 50, 7)]
    assert np.concatenate(parts).tolist() == whole.tolist()


# -- the operator


@pytest.mark.parametrize("dataset", [KNOWN, ESTIMATED])
def test_elements_become_pairs_whose_classes_have_the_target_distribution(dataset: Dataset[tuple[int, int]]) -> None:
    pairs = list(dataset)
    assert [tenth(number) for _, number in pairs] == [kind for kind, _ in pairs]
    assert [number for _, number in pairs] == sorted(number for _, number in pairs)
    counts = Counter(kind for kind, _ in pairs)
    assert counts[0] == 400  # the rarest class is kept completely
    assert 340 <= counts[1] <= 480


def test_the_weights_of_the_target_may_have_any_sum() -> None:
    other = ROWS.rejection_resample(tenth, np.array([7, 7]), [1, 9], seed=1)
    assert first_epoch(other) == first_epoch(KNOWN)


def test_the_draws_depend_on_seed_epoch_and_row_only() -> None:
    kept = first_epoch(KNOWN)
    assert first_epoch(KNOWN, debug=True) == kept
    assert first_epoch(KNOWN.batch(7).unbatch()) == kept
    assert first_epoch(ROWS.prefetch(9).rejection_resample(tenth, [1, 1], [1, 9], seed=1)) == kept
    assert first_epoch(ROWS.rejection_resample(tenth, [1, 1], [1, 9], seed=2)) != kept
    assert first_epoch(KNOWN, epoch=1) != kept


def test_the_stream_is_the_same_in_another_process() -> None:
    assert first_epoch(ESTIMATED.in_subprocess()) == first_epoch(ESTIMATED)


def test_ranks_share_the_rows_that_one_process_gives() -> None:
    ranks = [list(ESTIMATED.open(rank=rank, world_size=2, seed=1)) for rank in range(2)]
    alone = list(ESTIMATED.open(seed=1))
    shared = [pair for both in zip(*ranks, strict=True) for pair in both]
    assert shared == alone[: len(shared)]
    assert len(alone) - len(shared) < 2


def test_tuples_are_the_arguments_of_the_function_and_stay_an_element() -> None:
    pairs = ROWS.take(5).enumerate().rejection_resample(lambda place, number: int(place % 2), [1, 1], [1, 1])
    assert list(pairs) == [(0, (0, 0)), (1, (1, 1)), (0, (2, 2)), (1, (3, 3)), (0, (4, 4))]


def test_elements_of_any_kind_are_resampled() -> None:
    words = Dataset.from_iterable(["a", "bb", None, "c"]).rejection_resample(lambda word: 0, [1])
    assert list(words) == [(0, "a"), (0, "bb"), (0, None), (0, "c")]
    batches = Dataset.range(6).batch(2).rejection_resample(lambda batch: int(batch[0] > 1), [0, 1], [1, 1])
    assert [(kind, batch.tolist()) for kind, batch in batches] == [(1, [2, 3]), (1, [4, 5])]


def test_the_plan_knows_what_it_can() -> None:
    assert KNOWN.cardinality() == asd.UNKNOWN
    assert ROWS.repeat().rejection_resample(tenth, [1, 1]).cardinality() == asd.INFINITE
    assert KNOWN.element_spec == (asd.ArraySpec((), np.dtype(np.int64)), ROWS.element_spec)
    assert "rejection_resample(tenth, [0.5, 0.5], initial=[0.1, 0.9], seed=1)" in KNOWN.explain()


def test_dropped_rows_are_counted() -> None:
    with KNOWN.open() as loader:
        rows = sum(1 for _ in loader)
        (stage,) = (stage for stage in loader.stats().stages if stage.name == "rejection_resample")
    assert (stage.rows, stage.dropped) == (rows, 4000 - rows)


# -- failures


@pytest.mark.parametrize("row", [0, 3, 9])
def test_elements_before_a_failure_are_delivered(row: int) -> None:
    with Dataset.range(10).rejection_resample(fails_at(row), [1]).open() as loader:
        assert [next(loader) for _ in range(row)] == [(0, number) for number in range(row)]
        with pytest.raises(ValueError, match=f"row {row}") as caught:
            next(loader)
    notes = "\n".join(caught.value.__notes__)
    assert "stage: rejection_resample, written at" in notes
    assert "fails_at" in notes
    assert f"range record {row}" in notes


@pytest.mark.parametrize("value", [2, -1, 0.5, None, "a"])
def test_a_value_that_is_no_class_is_refused(value: Any) -> None:
    with pytest.raises(
        PlanError, match=r"class_fn must return an integer from 0 to 1, but .*lambda.* returned"
    ) as caught:
        list(Dataset.range(5).rejection_resample(lambda number: value if number == 3 else 0, [1, 1]))
    assert "record: range record 3" in caught.value.__notes__


def test_bad_arguments_raise_at_the_call() -> None:
    resample: Any = Dataset.range(3).rejection_resample
    for target in ([], [1, -1], [0, 0], [float("nan"), 1], ["a", 1]):
        with pytest.raises(PlanError, match="target must"):
            resample(tenth, target)
    with pytest.raises(PlanError, match=r"initial must have as many weights as target \(2\), got 1"):
        resample(tenth, [1, 1], [1])
    with pytest.raises(PlanError, match="class 1 has the weight 1 in target, but 0 in initial"):
        resample(tenth, [1, 1], [1, 0])
    with pytest.raises(PlanError, match="seed"):
        resample(tenth, [1, 1], seed="a")
    with pytest.raises(asd.ArgumentTypeError, match="target"):
        resample(tenth, 3)
    with pytest.raises(PlanError, match="needs a function"):
        resample(3, [1, 1])
    with pytest.raises(StageBuildError, match="takes no positional argument"):
        resample(lambda: 1, [1, 1])


# -- resuming


@pytest.mark.parametrize(
    "dataset",
    [
        Dataset.range(40).rejection_resample(tenth, [1, 2], [1, 9], seed=1),
        Dataset.range(40).rejection_resample(tenth, [1, 2], seed=1),
        Dataset.range(40).rejection_resample(tenth, [1, 2]).batch(3),
        Dataset.range(20).shuffle(4).rejection_resample(tenth, [1, 2]).shuffle(5).repeat(2),
        Dataset.range(20).filter(lambda n: n % 3 > 0).repeat(2).rejection_resample(tenth, [1, 1]).enumerate(),
    ],
    ids=["known", "estimated", "batch", "between shuffles", "of a filter"],
)
def test_it_resumes_after_every_element(dataset: Dataset[Any]) -> None:
    resumes_everywhere(dataset)


def test_the_state_has_the_counts_of_the_rows_up_to_the_last_element() -> None:
    with ESTIMATED.open() as loader:
        for _ in range(20):
            _, number = next(loader)
        state = loader.state_dict()
    counts = [int(number) // 10 + 1, int(number) - int(number) // 10]
    assert f"'counts': {counts}" in str(state["position"])
