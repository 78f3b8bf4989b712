"""Where in a plan the rows of several ranks part, what is known of it before reading, and what is refused."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aiostream_data import INFINITE, UNKNOWN, Dataset, FixedLen
from aiostream_data.errors import PlanError, RankError
from aiostream_data.plan.annotations import element_spec
from aiostream_data.plan.base import Node, walk
from aiostream_data.plan.cardinality import cardinality
from aiostream_data.plan.explain import explain
from aiostream_data.plan.operators import Map
from aiostream_data.plan.rank_nodes import EqualRows, RankShard
from aiostream_data.plan.ranks import check_enough_files, check_enough_rows, for_rank
from aiostream_data.plan.rewrite import unordered
from aiostream_data.plan.sources import ListFiles, ReadFiles
from aiostream_data.plan.windows import Bucket
from aiostream_data.ranks import Ranks, Sharing

RANK_2_OF_4 = Ranks(2, 4)


def chain(node: Node) -> str:
    """Return the labels of a plan, sources first."""
    return " ".join(lower.label for lower in walk(node))


def numbers(rows: int = 100) -> Dataset[int]:
    return Dataset.range(rows)


def same(row: Any) -> Any:
    return row


def row_of(length: int) -> Any:
    return np.zeros(length)


def buckets(boundaries: tuple[int, ...] = (5,), sizes: tuple[int, ...] = (4, 2)) -> Dataset[Any]:
    return numbers().map(row_of).bucket_by_sequence_length(len, boundaries, sizes)


def always(mine: bool) -> bool:
    return mine


DATASETS: list[tuple[Callable[[], Dataset[Any]], str]] = [
    # rows part below what gives one row per row
    (lambda: numbers(), "range rank_shard"),
    (lambda: numbers().map(same), "range rank_shard map"),
    (lambda: numbers().map(same, ordered=False), "range rank_shard map"),
    (lambda: numbers().shuffle(9).map(same).batch(4), "range shuffle rank_shard map batch"),
    (lambda: numbers().shuffle(9).prefetch().map(same).batch(4), "range shuffle rank_shard prefetch map batch"),
    (
        lambda: Dataset.from_tfrecord("a*").parse_example({"x": FixedLen((), np.int64)}).batch(4).to_device("cpu"),
        "read_tfrecord rank_shard parse_example batch to_device",
    ),
    # and above everything else
    (lambda: numbers().map(same).filter(bool).batch(4), "range map filter rank_shard batch"),
    (lambda: numbers().repeat(2).batch(4), "range repeat rank_shard batch"),
    (lambda: numbers().take(50).batch(4), "range take rank_shard batch"),
    (lambda: numbers().take(50), "range take rank_shard"),
    (lambda: numbers().enumerate().batch(4), "range enumerate rank_shard batch"),
    (lambda: numbers().cache().batch(4), "range cache rank_shard batch"),
    (lambda: numbers().zip(numbers()).batch(4), "range range zip rank_shard batch"),
    (lambda: numbers().concatenate(numbers()), "range range concatenate rank_shard"),
    (lambda: numbers().flat_map(lambda n: [n, n]).map(same), "range flat_map rank_shard map"),
    (lambda: numbers().batch(4).unbatch().batch(2), "range batch unbatch rank_shard batch"),
    # what follows the last batches happens to every rank's own
    (lambda: numbers().batch(4).map(same).prefetch(), "range rank_shard batch map prefetch"),
    (lambda: numbers().shuffle(9).batch(4).repeat(2), "range shuffle rank_shard batch repeat"),
    (lambda: numbers().batch(4).repeat().take(50), "range rank_shard batch repeat take"),
    (lambda: numbers().batch(4).skip(2).map(same), "range rank_shard batch skip map"),
    (lambda: numbers().batch(4).batch(2), "range batch rank_shard batch"),
    (lambda: numbers().map(row_of).padded_batch(4).prefetch(), "range rank_shard map padded_batch prefetch"),
    # batches that are chosen, numbered or mixed are shared as they are
    (lambda: numbers().batch(4).filter(bool), "range batch filter rank_shard"),
    (lambda: numbers().batch(4).enumerate(), "range batch enumerate rank_shard"),
    (lambda: numbers().batch(4).shuffle(9).repeat(2), "range batch shuffle repeat rank_shard"),
]


@pytest.mark.parametrize(("dataset", "expected"), DATASETS, ids=[expected for _, expected in DATASETS])
def test_the_rows_of_ranks_part_at_the_lowest_place_at_which_all_see_the_same(
    dataset: Callable[[], Dataset[Any]], expected: str
) -> None:
    plan = for_rank(dataset().plan, RANK_2_OF_4)
    assert chain(plan) == expected
    assert chain(dataset().plan) == expected.replace("rank_shard ", "").replace(" rank_shard", "")


def test_a_single_rank_runs_the_plan_as_it_is() -> None:
    plan = numbers().map(same).batch(4).plan
    assert chain(for_rank(plan, Ranks())) == "range map batch"
    assert chain(for_rank(plan, Ranks(1, 4, replicate=4))) == "range map batch"


def test_ranks_of_one_group_of_replicas_get_the_same_rows() -> None:
    shards = [node for r in range(4) for node in walk(for_rank(numbers().plan, Ranks(r, 4, replicate=2)))]
    places = [(node.rank, node.world_size) for node in shards if isinstance(node, RankShard)]
    assert places == [(0, 2), (0, 2), (1, 2), (1, 2)]


def test_padding_is_marked_after_the_functions_that_should_not_see_the_mark() -> None:
    sharing = Sharing(tail="pad")
    plan = numbers().shuffle(9).map(same).batch(4).repeat(2).prefetch().plan
    assert (
        chain(for_rank(plan, RANK_2_OF_4, sharing)) == "range shuffle rank_shard map mark_padding batch repeat prefetch"
    )
    assert chain(for_rank(plan, Ranks(), sharing)) == "range shuffle map mark_padding batch repeat prefetch"
    rows = numbers().map(same).prefetch().plan
    assert chain(for_rank(rows, RANK_2_OF_4, sharing)) == "range rank_shard map mark_padding prefetch"


@pytest.mark.parametrize(
    ("tail", "rows", "batches"), [("drop", 25, 6), ("drop", 26, 6), ("pad", 26, 7), ("repeat", 26, 7)]
)
def test_the_cardinality_is_that_of_one_rank(tail: Any, rows: int, batches: int) -> None:
    plan = for_rank(numbers(rows).batch(1).plan, RANK_2_OF_4, Sharing(tail=tail))
    assert cardinality(plan) == batches


def test_what_is_unknown_or_infinite_stays_so() -> None:
    assert cardinality(for_rank(numbers().filter(bool).plan, RANK_2_OF_4)) == UNKNOWN
    assert cardinality(for_rank(numbers().repeat().plan, RANK_2_OF_4)) == INFINITE


def test_the_spec_tells_of_the_flag() -> None:
    def spec(dataset: Dataset[Any]) -> Any:
        return element_spec(for_rank(dataset.plan, RANK_2_OF_4, Sharing(tail="pad")))

    in_dict = spec(Dataset.from_tensor_slices({"x": np.zeros((9, 3))}).batch(3, drop_remainder=True))
    assert in_dict["valid"].dtype == np.bool_
    assert in_dict["valid"].shape == (3,)
    assert in_dict["x"].shape == (3, 3)
    element, flag = spec(numbers())
    assert (element.dtype, flag.dtype, flag.shape) == (np.int64, np.bool_, ())
    assert spec(numbers().map(same)).dtype is None


def test_explain_shows_the_rank() -> None:
    plan = for_rank(numbers().batch(4).plan, RANK_2_OF_4)
    assert "rank_shard(rank 2 of 4, tail=drop)" in explain(plan, 1 << 30)


def test_ranks_share_every_batch_of_a_bucket() -> None:
    plan = for_rank(buckets().map(same).prefetch().plan, RANK_2_OF_4, Sharing(tail="repeat"))
    assert chain(plan) == "range map bucket_by_sequence_length map prefetch"
    [bucket] = [node for node in walk(plan) if isinstance(node, Bucket)]
    assert (bucket.batch_sizes, bucket.share, bucket.tail) == ((16, 8), (2, 4), "repeat")
    padded = for_rank(buckets().prefetch().plan, RANK_2_OF_4, Sharing(tail="pad"))
    assert chain(padded) == "range map bucket_by_sequence_length mark_padding prefetch"
    assert chain(for_rank(buckets().plan, Ranks())) == "range map bucket_by_sequence_length"


@pytest.mark.parametrize(
    "dataset",
    [
        lambda: numbers().map(same, ordered=False).shuffle(9),
        lambda: Dataset.from_tfrecord("a*", ordered=False),
        lambda: numbers().interleave(lambda n: [n], ordered=False).batch(4),
    ],
)
def test_an_order_that_differs_between_ranks_is_refused(dataset: Callable[[], Dataset[Any]]) -> None:
    with pytest.raises(PlanError, match="ordered=False has another order on every rank"):
        for_rank(dataset().plan, RANK_2_OF_4)
    for_rank(dataset().plan, Ranks())


def test_determinism_can_be_switched_off_only_for_what_ranks_do_not_share() -> None:
    plan = unordered(for_rank(numbers().map(same).filter(bool).map(same).batch(4).plan, RANK_2_OF_4))
    assert [node.ordered for node in walk(plan) if isinstance(node, Map)] == [True, False]


def test_elements_that_have_a_flag_already_are_refused() -> None:
    dataset = Dataset.from_tensor_slices({"x": np.zeros(9), "valid": np.ones(9)})
    with pytest.raises(PlanError, match="the elements have 'valid' already"):
        for_rank(dataset.batch(3).plan, RANK_2_OF_4, Sharing(tail="pad"))


@pytest.mark.parametrize(("rows", "is_enough"), [(3, False), (0, False), (4, True)])
def test_fewer_rows_than_ranks_are_refused_where_they_are_known(rows: int, is_enough: bool) -> None:
    plan = for_rank(numbers(rows).batch(2).plan, RANK_2_OF_4)
    if is_enough:
        check_enough_rows(plan, RANK_2_OF_4)
        return
    with pytest.raises(RankError, match=f"{rows} rows cannot be shared by 4 ranks"):
        check_enough_rows(plan, RANK_2_OF_4)


def test_rows_that_are_not_counted_yet_are_believed_to_be_enough() -> None:
    check_enough_rows(for_rank(numbers(3).filter(bool).plan, RANK_2_OF_4), RANK_2_OF_4)


# -- by file

BY_FILE = Sharing(policy="file")


def shares(plan: Node) -> list[Any]:
    return [node.share for node in walk(plan) if isinstance(node, (ReadFiles, ListFiles))]


def test_by_file_every_source_is_told_its_share() -> None:
    one, other = Dataset.from_tfrecord("a*"), Dataset.from_text("b*", ordered=False)
    plan = for_rank(one.zip(other).shuffle(9).batch(4).plan, RANK_2_OF_4, BY_FILE)
    assert chain(plan) == "read_tfrecord read_text zip shuffle batch"
    assert shares(plan) == [(2, 4), (2, 4)]


def test_a_source_that_is_given_its_files_shares_them_once() -> None:
    listed = Dataset.list_files("a*")
    assert shares(for_rank(Dataset.from_tfrecord(listed).plan, RANK_2_OF_4, BY_FILE)) == [None, (2, 4)]
    assert shares(for_rank(listed.interleave(Dataset.from_tfrecord).plan, RANK_2_OF_4, BY_FILE)) == [(2, 4)]


def test_a_single_rank_reads_all_files() -> None:
    assert shares(for_rank(Dataset.from_tfrecord("a*").plan, Ranks(), BY_FILE)) == [None]


def test_a_source_without_files_cannot_be_shared_by_file() -> None:
    with pytest.raises(PlanError, match="range has none"):
        for_rank(Dataset.from_text("a*").zip(numbers()).plan, RANK_2_OF_4, BY_FILE)


@pytest.mark.parametrize(("tail", "rows", "own"), [("drop", 5, 6), ("repeat", 9, 6), ("pad", 9, 6)])
def test_known_counts_give_every_rank_as_many_rows(tail: Any, rows: int, own: int) -> None:
    sharing = Sharing(policy="file", tail=tail, counts=[9, 5, 6, 7])
    plan = for_rank(Dataset.from_text("a*").shuffle(9).map(same).batch(2).plan, RANK_2_OF_4, sharing)
    mark = " mark_padding" if tail == "pad" else ""
    assert chain(plan) == f"read_text shuffle equal_rows map{mark} batch"
    assert [(node.rows, node.own) for node in walk(plan) if isinstance(node, EqualRows)] == [(rows, own)]
    assert cardinality(plan) == -(-rows // 2)


@pytest.mark.parametrize(
    ("counts", "error", "message"),
    [
        ([1, 2], PlanError, "counts must have one number per share of the files \\(4\\), got 2"),
        ([1, 2, 0, 4], RankError, "share 2 of the files has no rows"),
    ],
)
def test_counts_that_do_not_fit_are_refused(counts: list[int], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        for_rank(Dataset.from_text("a*").plan, RANK_2_OF_4, Sharing(policy="file", tail="drop", counts=counts))


def test_counts_of_rows_say_nothing_of_the_batches_of_buckets() -> None:
    dataset = Dataset.from_text("a*").bucket_by_sequence_length(len, (5,), (4, 2))
    with pytest.raises(PlanError, match="does not support batches whose sizes depend"):
        for_rank(dataset.plan, RANK_2_OF_4, Sharing(policy="file", tail="drop", counts=[1, 2, 3, 4]))


def test_without_counts_ranks_agree_on_every_batch() -> None:
    plan = Dataset.from_text("a*").batch(2).repeat(2).prefetch().plan
    agreed = for_rank(plan, RANK_2_OF_4, Sharing(policy="file", tail="drop", consensus=always))
    assert chain(agreed) == "read_text batch repeat agree prefetch"
    padded = for_rank(plan, RANK_2_OF_4, Sharing(policy="file", tail="pad", consensus=always))
    assert chain(padded) == "read_text batch repeat agree mark_padding prefetch"
    assert element_spec(padded)[1].shape == (None,)


def test_fewer_files_than_ranks_are_refused() -> None:
    check_enough_files(4, (0, 4))
    check_enough_files(0, None)
    with pytest.raises(RankError, match="3 files cannot be shared by 4 ranks"):
        check_enough_files(3, (0, 4))


# -- what can be asked for


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"policy": "shard"}, "policy must be one of 'row', 'split', 'file', got 'shard'"),
        ({"tail": "cut"}, "tail must be one of 'drop', 'pad', 'repeat', got 'cut'"),
        ({"policy": "file", "tail": "drop"}, "requires counts= or consensus="),
        ({"counts": [1]}, "require policy='file'"),
        ({"consensus": always}, "require policy='file'"),
        ({"policy": "file", "counts": [1]}, "require tail="),
        ({"policy": "file", "tail": "drop", "counts": [-1]}, "counts must be at least 0, got -1"),
    ],
)
def test_a_way_to_share_that_makes_no_sense_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        Sharing(**arguments)


def test_the_plan_of_a_rank_can_be_pickled() -> None:
    plan = for_rank(numbers().map(same).batch(4).plan, RANK_2_OF_4, Sharing(tail="pad"))
    assert chain(pickle.loads(pickle.dumps(plan))) == chain(plan)
