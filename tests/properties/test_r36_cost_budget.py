"""R36: a batch by cost never costs more than it may, and holds as many rows as that allows, in their order."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aiostream_data import Dataset
from aiostream_data.errors import BatchCostError, PlanError
from aiostream_data.plan.costs import TooLarge
from aiostream_data.testing.resume import resumes_everywhere
from aiostream_data.transforms.costed import MAX_COST, CostOrder

COSTS = st.lists(st.integers(0, 14), max_size=60)
CUTS = st.lists(st.integers(0, 12), max_size=8)
SIZES = st.one_of(st.none(), st.integers(1, 6))
POLICIES: list[TooLarge] = ["skip", "alone"]


def cost_of(costs: list[int], padded: bool) -> int:
    return len(costs) * max(costs, default=0) if padded else sum(costs)


def batches_one_by_one(
    costs: list[int], max_cost: int, padded: bool, size: int | None, drop_remainder: bool
) -> list[list[int]]:
    """Take a row at a time, and look at the whole batch each time. Rows that are too large are alone."""
    batches: list[list[int]] = [[]]
    for row, cost in enumerate(costs):
        batch = batches[-1]
        together = [costs[number] for number in batch] + [cost]
        if batch and (cost_of(together, padded) > max_cost or len(batch) == size):
            batches.append([row])
        else:
            batch.append(row)
    last = [costs[number] for number in batches[-1]]
    is_full = len(last) == size or cost_of([*last, 1], padded) > max_cost
    return batches if last and (is_full or not drop_remainder) else batches[:-1]


def batches_of(order: CostOrder, costs: list[int], cuts: list[int], first: int = 0) -> list[list[int]]:
    """Return the batches of rows that come in pieces of these sizes, and of the rest."""
    stops = [min(stop, len(costs)) for stop in np.cumsum([0, *cuts]).tolist()]
    numbers, array = np.arange(first, first + len(costs)), np.array(costs, np.int64)
    batches = [b for a, c in pairwise([*stops, len(costs)]) for b in order.push(numbers[a:c], array[a:c])]
    return [batch.tolist() for batch in [*batches, *order.finish()]]


@settings(max_examples=400)
@given(COSTS, CUTS, st.integers(1, 40), st.booleans(), SIZES, st.booleans())
@example([0] * 20, [3], 1, True, None, False)
@example([0, 0, 5, 0, 0], [], 5, False, None, True)
@example([5, 0, 7, 7], [1, 1, 1], 6, True, None, True)
def test_batches_are_those_that_taking_one_row_at_a_time_makes(
    costs: list[int], cuts: list[int], max_cost: int, padded: bool, size: int | None, drop: bool
) -> None:
    order = CostOrder(max_cost, padded, size, drop)
    expected = batches_one_by_one(costs, max_cost, padded, size, drop)
    assert batches_of(order, costs, cuts) == expected
    assert (order.given, order.dropped) == (sum(map(len, expected)), len(costs) - sum(map(len, expected)))


@given(COSTS, CUTS, st.integers(14, 60), st.booleans(), SIZES)
def test_no_batch_is_above_the_budget_and_none_could_have_taken_the_next_row(
    costs: list[int], cuts: list[int], max_cost: int, padded: bool, size: int | None
) -> None:
    batches = batches_of(CostOrder(max_cost, padded, size), costs, cuts)
    assert [row for batch in batches for row in batch] == list(range(len(costs)))
    for batch in batches:
        assert cost_of([costs[row] for row in batch], padded) <= max_cost
        assert size is None or len(batch) <= size
    for batch, following in pairwise(batches):
        more = [costs[row] for row in [*batch, following[0]]]
        assert cost_of(more, padded) > max_cost or len(batch) == size


@given(COSTS, st.integers(14, 60), st.booleans(), SIZES, st.booleans())
def test_what_follows_a_batch_does_not_depend_on_what_came_before_it(
    costs: list[int], max_cost: int, padded: bool, size: int | None, drop: bool
) -> None:
    whole = batches_of(CostOrder(max_cost, padded, size, drop), costs, [])
    for given_batches in range(len(whole) + 1):
        first = whole[given_batches - 1][-1] + 1 if given_batches else 0
        left = batches_of(CostOrder(max_cost, padded, size, drop), costs[first:], [], first)
        assert left == whole[given_batches:]


def test_costs_that_are_near_the_end_of_64_bits_are_compared_and_not_added_up() -> None:
    costs = [MAX_COST, 2**63 - 1, 2**63 - 1, MAX_COST - 1, 1, 1]
    for padded in (True, False):
        batches = batches_of(CostOrder(MAX_COST, padded), costs, [])
        assert batches == [[0], [1], [2], *([[3], [4, 5]] if padded else [[3, 4], [5]])]


@pytest.mark.parametrize("wrong", [0, MAX_COST + 1])
def test_a_budget_that_makes_no_sense_is_refused(wrong: int) -> None:
    with pytest.raises(PlanError, match="max_cost must be"):
        CostOrder(wrong)


# -- as part of a plan


def sequence(number: int) -> np.ndarray[Any, Any]:
    return np.full(int(number) * 7 % 13, int(number))


def dearer(number: int) -> int:
    return 3 * (int(number) * 7 % 13)


CALLS: list[Callable[[Dataset[Any], int], Dataset[Any]]] = [
    lambda rows, most: rows.map(sequence).batch(max_cost=most),
    lambda rows, most: rows.map(sequence).batch(max_cost=most, padding_values=-1, batch_size=3),
    lambda rows, most: rows.map(sequence).batch(max_cost=most, cost=len, on_too_large="skip"),
]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 70), st.sampled_from(CALLS), st.integers(12, 80))
def test_r36_a_padded_batch_never_has_more_values_than_its_budget(rows: int, call: Any, most: int) -> None:
    batches = list(call(Dataset.range(rows), most))
    assert all(batch.size <= most for batch in batches)
    assert sum(len(batch) for batch in batches) == rows


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 70), st.integers(1, 60), st.booleans(), SIZES, st.sampled_from(POLICIES))
def test_r36_a_function_tells_the_cost_and_a_policy_what_becomes_of_a_row_that_is_too_large(
    rows: int, most: int, padded: bool, size: int | None, policy: TooLarge
) -> None:
    dataset = Dataset.range(rows).batch(size, max_cost=most, cost=dearer, padded=padded, on_too_large=policy)
    with dataset.open() as loader:
        batches = [batch.tolist() for batch in loader]
        dropped = sum(stage.dropped for stage in loader.stats().stages)
    costs = [dearer(row) for row in range(rows)]
    small = [row for row in range(rows) if costs[row] <= most]
    left = list(range(rows)) if policy == "alone" else small
    expected = batches_one_by_one([costs[row] for row in left], most, padded, size, False)
    assert batches == [[left[row] for row in batch] for batch in expected]
    assert dropped == rows - len(left)
    for batch in batches:
        over = cost_of([costs[row] for row in batch], padded) > most
        assert not over or (policy == "alone" and len(batch) == 1 and costs[batch[0]] > most)


def test_r36_a_row_that_is_too_large_is_an_error_that_names_it() -> None:
    dataset = Dataset.range(30).map(sequence).batch(max_cost=11)
    with pytest.raises(BatchCostError, match="cannot batch range record 11: its cost 12 exceeds max_cost=11") as caught:
        list(dataset)
    assert (caught.value.record, caught.value.cost, caught.value.max_cost) == ("range record 11", 12, 11)
    assert any(note.startswith("stage: batch_by_cost") for note in caught.value.__notes__)


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 14), st.integers(6, 40), st.booleans(), SIZES, st.booleans(), st.sampled_from(POLICIES))
def test_r36_batches_by_cost_are_taken_up_again_after_each(
    rows: int, most: int, padded: bool, size: int | None, drop: bool, policy: TooLarge
) -> None:
    shuffled = Dataset.range(rows).shuffle(4, seed=1)
    dataset = shuffled.batch(
        size, max_cost=most, cost=dearer, padded=padded, on_too_large=policy, drop_remainder=drop
    ).shuffle(2, seed=2)
    resumes_everywhere(dataset.repeat(2), open_options={"seed": 7}, twice=False)


def test_a_state_names_no_row_and_stays_small() -> None:
    with Dataset.range(400).map(sequence).batch(max_cost=2000).open(seed=1) as loader:
        next(iter(loader))
        assert len(json.dumps(loader.state_dict())) < 1024


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 70), st.integers(13, 60), st.lists(st.integers(1, 12), max_size=3, unique=True), st.booleans())
def test_r36_a_batch_of_a_bucket_never_has_more_values_than_the_budget_for_all(
    rows: int, most: int, boundaries: list[int], to_boundary: bool
) -> None:
    dataset = (
        Dataset.range(rows)
        .map(sequence)
        .bucket_by_sequence_length(
            len, [*sorted(boundaries), 13], max_cost=most, padded_shapes=[None], pad_to_bucket_boundary=to_boundary
        )
    )
    batches = list(dataset)
    assert all(batch.size <= most for batch in batches)
    assert sum(map(len, batches)) == rows
