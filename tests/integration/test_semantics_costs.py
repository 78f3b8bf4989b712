"""Batches by cost: worked examples, arguments, what is known beforehand, and how several ranks share them."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from leaks import leaves_nothing

import aiostream_data as asd
from aiostream_data.errors import BatchCostError, BatchShapeError, MemoryBudgetError, PlanError
from aiostream_data.plan.fingerprint import describe_plan
from aiostream_data.plan.ranks import for_rank
from aiostream_data.ranks import Ranks, Sharing

FEATURES: dict[str, Any] = {"v": asd.VarLen(np.int64), "n": asd.FixedLen((), np.int64)}


def of_lengths(lengths: Iterable[int]) -> asd.Dataset[Any]:
    """Rows that consist of their own length, again and again."""
    return asd.Dataset.from_iterable([np.full(length, length) for length in lengths])


def parsed(lengths: Iterable[int]) -> asd.Dataset[Any]:
    """Records with a leaf of these lengths beside a number."""
    records = [asd.encode_example({"v": [length] * length, "n": length}) for length in lengths]
    return asd.Dataset.from_iterable(records).parse_example(FEATURES)


def shapes(dataset: Iterable[Any]) -> list[tuple[int, ...]]:
    return [element.shape for element in dataset]


# -- what goes together


def test_a_batch_takes_elements_until_padding_would_bring_it_above() -> None:
    assert shapes(of_lengths([3, 5, 4, 4, 9, 1, 1]).batch(max_cost=12)) == [(2, 5), (2, 4), (1, 9), (2, 1)]


def test_a_batch_is_padded_as_padded_batch_does_it() -> None:
    first, second = of_lengths([1, 2, 3]).batch(max_cost=5, padding_values=-1)
    assert first.tolist() == [[1, -1], [2, 2]]
    assert second.tolist() == [[3, 3, 3]]


def test_without_padding_the_costs_are_added_up_and_varying_leaves_stay_ragged() -> None:
    batches = list(parsed([3, 5, 4, 4, 9]).batch(max_cost=12, padded=False))
    assert [batch["n"].tolist() for batch in batches] == [[3, 5, 4], [4], [9]]
    assert [batch["v"].to_list() for batch in batches[:1]] == [[[3] * 3, [5] * 5, [4] * 4]]


def test_without_padding_rows_that_do_not_stack_are_an_error_as_in_batch() -> None:
    with pytest.raises(BatchShapeError, match="cannot batch"):
        list(of_lengths([1, 2]).batch(max_cost=9, padded=False))


def test_a_number_of_elements_is_a_bound_besides() -> None:
    assert shapes(of_lengths([1, 1, 1, 5, 1]).batch(2, max_cost=6)) == [(2, 1), (1, 1), (1, 5), (1, 1)]


def test_the_last_batch_is_left_out_where_another_element_might_have_joined_it() -> None:
    assert shapes(of_lengths([4, 4, 4]).batch(max_cost=8, drop_remainder=True)) == [(2, 4)]
    assert shapes(of_lengths([4, 4, 4, 4]).batch(max_cost=8, drop_remainder=True)) == [(2, 4), (2, 4)]
    sums = asd.Dataset.from_tensor_slices([3, 3, 2, 4]).batch(max_cost=6, cost=int, padded=False, drop_remainder=True)
    assert [batch.tolist() for batch in sums] == [[3, 3], [2, 4]]


def test_nothing_makes_no_batch() -> None:
    assert list(asd.Dataset.range(0).batch(max_cost=3, cost=int)) == []


# -- what an element costs


def test_a_function_gets_the_parts_of_a_tuple_as_arguments() -> None:
    pairs = asd.Dataset.from_tensor_slices((np.array([1, 2, 3, 1]), np.array([1, 1, 2, 1])))
    batches = list(pairs.batch(max_cost=6, cost=lambda a, b: a * b))
    assert [batch[0].tolist() for batch in batches] == [[1, 2], [3], [1]]


@pytest.mark.parametrize("cost", [None, "v", lambda element: len(element["v"])])
def test_the_length_of_a_leaf_is_a_cost(cost: Any) -> None:
    batches = list(parsed([3, 5, 4, 4, 9]).batch(max_cost=12, cost=cost))
    assert [batch["v"].shape for batch in batches] == [(2, 5), (2, 4), (1, 9)]
    assert [batch["n"].tolist() for batch in batches] == [[3, 5], [4, 4], [9]]


def test_the_only_leaf_with_a_length_is_found_before_anything_is_read_where_that_is_known() -> None:
    assert "batch(max_cost=12, cost='v')" in parsed([1]).batch(max_cost=12).explain()
    arrays = asd.Dataset.from_tensor_slices({"a": np.eye(3), "n": np.arange(3)})
    assert shapes(batch["a"] for batch in arrays.batch(max_cost=6)) == [(2, 3), (1, 3)]


def test_the_only_leaf_with_a_length_is_found_in_what_functions_give() -> None:
    rows = asd.Dataset.range(5).map(lambda n: {"n": n, "name": "x" * int(n), "tokens": np.zeros(int(n) + 1)})
    assert shapes(batch["tokens"] for batch in rows.batch(max_cost=6)) == [(2, 2), (1, 3), (1, 4), (1, 5)]


def test_texts_have_a_length_where_nothing_else_does() -> None:
    texts = asd.Dataset.from_iterable(["a", "bbb", "cc", "d"])
    assert [batch.tolist() for batch in texts.batch(max_cost=6)] == [["a", "bbb"], ["cc", "d"]]
    numbered = texts.map(lambda text: {"text": text, "n": 1})
    assert [batch["text"].tolist() for batch in numbered.batch(max_cost=6)] == [["a", "bbb"], ["cc", "d"]]


@pytest.mark.parametrize(
    ("leaves", "message"),
    [
        ({"n": np.arange(3)}, r"no leaf \('n'\) has a length\. Pass the name"),
        ({"a": np.eye(3), "b": np.eye(3)}, r"several leaves have a length \('a', 'b'\)\. Pass the name"),
    ],
)
def test_without_one_leaf_that_has_a_length_the_cost_must_be_said(leaves: dict[str, Any], message: str) -> None:
    dataset = asd.Dataset.from_tensor_slices(leaves)
    with pytest.raises(PlanError, match=message):
        dataset.batch(max_cost=3)
    with pytest.raises(PlanError, match=message):
        list(dataset.map(lambda element: element).batch(max_cost=3))


def test_a_leaf_that_is_padded_to_one_length_costs_that_length() -> None:
    rows = parsed([1, 2, 3])
    batches = list(rows.batch(max_cost=8, cost="v", padded_shapes={"v": [4], "n": []}))
    assert [batch["v"].shape for batch in batches] == [(2, 4), (1, 4)]


@pytest.mark.parametrize("wrong", [-1, 0.5, None, 1 << 64])
def test_a_cost_that_is_no_number_is_an_error_that_names_the_record(wrong: Any) -> None:
    def cost(number: int) -> Any:
        return wrong if number == 3 else 1

    with pytest.raises(PlanError, match=r"cost must return an integer of at least 0, but .*cost.* returned") as caught:
        list(asd.Dataset.range(9).batch(max_cost=3, cost=cost))
    assert "record: range record 3" in caught.value.__notes__


def test_what_the_cost_function_raises_names_the_function_and_the_record() -> None:
    def cost(number: int) -> int:
        return abs(6 // (int(number) - 5))

    with leaves_nothing(), pytest.raises(ZeroDivisionError) as caught:
        list(asd.Dataset.range(9).batch(max_cost=3, cost=cost, on_too_large="skip"))
    assert "record: range record 5" in caught.value.__notes__
    assert any(note.startswith("function: ") and "cost" in note for note in caught.value.__notes__)


# -- an element that is too large


@pytest.mark.parametrize("padded", [True, False])
def test_an_element_that_is_too_large_is_an_error_with_its_cost(padded: bool) -> None:
    with pytest.raises(BatchCostError, match=r"its cost 5 exceeds max_cost=4.*on_too_large=") as caught:
        list(asd.Dataset.range(9).batch(max_cost=4, cost=int, padded=padded))
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.record, error.cost, error.max_cost) == ("range record 5", 5, 4)


def test_an_element_that_is_too_large_can_be_left_out_without_ending_a_batch() -> None:
    dataset = of_lengths([2, 9, 2, 9, 9, 3]).batch(max_cost=6, on_too_large="skip")
    with dataset.open() as loader:
        assert shapes(loader) == [(2, 2), (1, 3)]
        [stage] = [stage for stage in loader.stats().stages if stage.name == "batch_by_cost"]
    assert (stage.rows_in, stage.dropped) == (6, 3)


def test_an_element_that_is_too_large_can_have_a_batch_of_its_own() -> None:
    dataset = of_lengths([2, 9, 2, 9, 9, 3]).batch(max_cost=6, on_too_large="alone")
    assert shapes(dataset) == [(1, 2), (1, 9), (1, 2), (1, 9), (1, 9), (1, 3)]


# -- arguments


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "batch\\(\\) needs batch_size or max_cost"),
        ({"max_cost": 0}, "max_cost must be at least 1, got 0"),
        ({"max_cost": 1.5}, "max_cost must be an integer"),
        ({"max_cost": 1 << 41}, "max_cost must be from 1 to"),
        ({"max_cost": 3, "batch_size": 0}, "batch_size must be at least 1"),
        ({"max_cost": 3, "cost": 7}, "cost must be a function or the name of a leaf, got 7"),
        ({"max_cost": 3, "cost": "w"}, "unknown leaf 'w'"),
        ({"max_cost": 3, "on_too_large": "drop"}, "on_too_large must be one of raise, skip, alone, got 'drop'"),
        ({"max_cost": 3, "padded": False, "padding_values": 1}, "need padded=True"),
        ({"max_cost": 3, "padded_shapes": {"v": [2]}}, "padded_shapes must have the structure"),
        ({"batch_size": 3, "cost": len}, "need max_cost"),
        ({"batch_size": 3, "on_too_large": "skip"}, "need max_cost"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        parsed([1]).batch(**arguments)


def test_a_coroutine_function_tells_no_cost() -> None:
    async def cost(element: Any) -> int:
        return 1

    with pytest.raises(PlanError, match=r"cost must be a plain function .*, got a coroutine function"):
        asd.Dataset.range(3).batch(max_cost=3, cost=cost)  # type: ignore[arg-type]


# -- what is known beforehand


def test_what_batches_look_like_is_known() -> None:
    padded, ragged = parsed([1]).batch(max_cost=9), parsed([1]).batch(max_cost=9, padded=False)
    assert padded.element_spec["v"].shape == (None, None)
    assert not padded.element_spec["v"].ragged
    assert ragged.element_spec["v"].ragged
    assert padded.element_spec["n"] == ragged.element_spec["n"] == asd.ArraySpec((None,), np.dtype(np.int64))


def test_how_many_batches_there_are_is_not() -> None:
    rows = asd.Dataset.range(9)
    assert rows.batch(max_cost=9, cost=int).cardinality() == asd.UNKNOWN
    assert rows.take(0).batch(max_cost=9, cost=int).cardinality() == 0
    assert rows.repeat().batch(max_cost=9, cost=int).cardinality() == asd.INFINITE


def test_all_that_decides_about_batches_stands_in_the_fingerprint() -> None:
    rows = parsed([1])
    described = [
        describe_plan(dataset.plan)
        for dataset in (
            rows.batch(max_cost=9),
            rows.batch(max_cost=8),
            rows.batch(max_cost=9, padded=False),
            rows.batch(4, max_cost=9),
            rows.batch(max_cost=9, cost="n"),
            rows.batch(max_cost=9, on_too_large="skip"),
            rows.batch(max_cost=9, drop_remainder=True),
        )
    ]
    assert all(one not in described[:number] for number, one in enumerate(described))
    assert described[0] == describe_plan(parsed([1]).batch(max_cost=9).plan)


def test_a_plan_says_how_it_makes_batches() -> None:
    text = asd.Dataset.range(3).batch(7, max_cost=1000, cost=int, padded=False, on_too_large="alone").explain()
    assert "batch(7, max_cost=1000, cost=int, padded=False, on_too_large='alone')" in text


# -- together with the rest


def test_batches_can_be_taken_apart_again() -> None:
    rows = list(of_lengths([1, 2, 3, 1]).batch(max_cost=4).unbatch())
    assert [row.tolist() for row in rows] == [[1, 0], [2, 2], [3, 3, 3], [1]]


def test_batches_belong_to_the_consumer() -> None:
    array = np.arange(12).reshape(4, 3)
    for batch in asd.Dataset.from_tensor_slices(array).batch(max_cost=6):
        batch[:] = -1
    assert array.tolist() == np.arange(12).reshape(4, 3).tolist()


def test_the_rows_of_a_batch_are_known_and_can_be_fetched_again() -> None:
    dataset = of_lengths([1, 2, 3, 1]).batch(max_cost=4)
    with dataset.open() as loader:
        batches = iter(loader)
        next(batches)
        origins = loader.origins()
        assert [origin.index for origin in origins] == [0, 1]
        assert dataset.fetch(origins[1]).tolist() == [2, 2]


def test_rows_that_cost_nothing_are_held_no_longer_than_there_is_memory() -> None:
    dataset = asd.Dataset.range(1 << 21).batch(max_cost=9, cost=lambda row: 0)
    with leaves_nothing(), pytest.raises(MemoryBudgetError, match="cannot hold more rows in batch_by_cost"):
        list(dataset.open(memory_limit="4MB"))


def test_batches_go_to_a_device() -> None:
    assert shapes(of_lengths([1, 2, 3]).batch(max_cost=4).to_device("cpu")) == [(2, 2), (1, 3)]


# -- several ranks


def many() -> asd.Dataset[Any]:
    return asd.Dataset.range(200).map(lambda number: np.full(int(number) * 7 % 13 + 1, int(number)))


@pytest.mark.parametrize("world", [1, 2, 3, 5])
def test_ranks_take_turns_with_the_batches_of_one_order(world: int) -> None:
    dataset = many().batch(max_cost=30).map(lambda batch: batch)
    one = [batch.tolist() for batch in dataset.open(rank=0, world_size=1)]
    ranks = [[batch.tolist() for batch in dataset.open(rank=rank, world_size=world)] for rank in range(world)]
    steps = len(one) // world
    assert [len(batches) for batches in ranks] == [steps] * world
    assert [batch for step in zip(*ranks, strict=True) for batch in step] == one[: steps * world]


def test_a_rank_that_runs_out_gets_a_batch_that_is_marked_as_padding() -> None:
    dataset = many().take(20).batch(max_cost=30)
    ranks = [list(dataset.open(rank=rank, world_size=3, tail="pad")) for rank in range(3)]
    assert len({len(batches) for batches in ranks}) == 1
    assert all(batch.shape[0] == len(valid) and batch.size <= 30 for batches in ranks for batch, valid in batches)
    real = sum(int(valid.sum()) for batches in ranks for _, valid in batches)
    assert real == 20


def test_what_follows_batches_by_cost_happens_to_the_batches_of_each_rank() -> None:
    dataset = many().batch(max_cost=30).take(4)
    assert [len(list(dataset.open(rank=rank, world_size=2))) for rank in range(2)] == [4, 4]


def test_a_state_of_three_ranks_is_taken_up_by_two() -> None:
    dataset = many().batch(max_cost=30)
    one = [batch.tolist() for batch in dataset.open(rank=0, world_size=1, seed=1)]
    with dataset.open(rank=0, world_size=3, seed=1) as loader:
        batches = iter(loader)
        for _ in range(4):
            next(batches)
        state = loader.state_dict()
    ranks = [[batch.tolist() for batch in dataset.open(state, rank=rank, world_size=2)] for rank in range(2)]
    left = one[12:]
    assert [batch for step in zip(*ranks, strict=True) for batch in step] == left[: len(left) // 2 * 2]


def test_counts_of_rows_say_nothing_of_batches_by_cost() -> None:
    plan = asd.Dataset.from_text("a*").batch(max_cost=100).plan
    with pytest.raises(PlanError, match="does not support batches whose sizes depend on their rows"):
        for_rank(plan, Ranks(1, 2), Sharing(policy="file", tail="drop", counts=[3, 4]))


# -- buckets of like length with a budget


def test_a_budget_gives_each_bucket_as_many_rows_as_its_longest_allows() -> None:
    dataset = of_lengths([3, 8, 1, 2, 8, 3, 3, 8]).bucket_by_sequence_length(len, [5, 10], max_cost=18)
    assert "bucket_by_sequence_length(len, [5, 10], max_cost=18)" in dataset.explain()
    assert "batches of 4, 2, 1 rows, by bucket" in dataset.explain()
    assert shapes(dataset) == [(2, 8), (4, 3), (1, 3), (1, 8)]


def test_with_a_budget_no_row_may_reach_the_last_boundary() -> None:
    dataset = of_lengths([3, 10]).bucket_by_sequence_length(len, [5, 10], max_cost=18)
    with pytest.raises(
        BatchShapeError, match=r"record 1 into a bucket: its length is 10, but max_cost requires lengths below"
    ):
        list(dataset)


@pytest.mark.parametrize(
    ("boundaries", "arguments", "message"),
    [
        ([5], {}, "either bucket_batch_sizes or max_cost"),
        ([5], {"max_cost": 9, "bucket_batch_sizes": [2, 1]}, "either bucket_batch_sizes or max_cost"),
        ([5, 11], {"max_cost": 9}, "got max_cost=9 and the longest row 10"),
        ([], {"max_cost": 9}, "got no boundary"),
        ([5], {"max_cost": 0}, "max_cost must be at least 1"),
    ],
)
def test_budgets_of_buckets_that_make_no_sense_are_refused(
    boundaries: list[int], arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(PlanError, match=message):
        of_lengths([1]).bucket_by_sequence_length(len, boundaries, **arguments)
