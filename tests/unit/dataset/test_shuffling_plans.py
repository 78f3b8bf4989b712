"""A shuffle that chooses its buffer becomes a permutation of the source, wide reading, or a growing buffer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aiostream_data as asd
from aiostream_data.plan.base import AUTO, Node, walk
from aiostream_data.plan.keyed import WindowSlices
from aiostream_data.plan.operators import AUTO_BUFFER_NBYTES, AUTO_BUFFER_ROWS, Cache, Map, Repeat, Shuffle, Take
from aiostream_data.plan.rewrite import rewrite
from aiostream_data.plan.shuffling import SPREAD_CYCLE
from aiostream_data.plan.sources import ListFiles, Permuted, Range, ReadFiles, TensorSlices
from aiostream_data.rows.structure import LEAF

SLICES = asd.Dataset.from_tensor_slices(np.arange(10))
RECORDS = asd.Dataset.from_tfrecord("/data/*.tfrecord")


def shuffled(dataset: asd.Dataset[Any], seed: int | None = 7, reshuffle: bool = True) -> Node:
    return rewrite(Shuffle(input=dataset.plan, buffer_size=AUTO, seed=seed, reshuffle_each_iteration=reshuffle))


def source_of(plan: Node) -> Any:
    return next(node for node in walk(plan) if not node.inputs)


def has(plan: Node, kind: type[Node]) -> bool:
    return any(isinstance(node, kind) for node in walk(plan))


@pytest.mark.parametrize(
    "dataset",
    [
        SLICES,
        asd.Dataset.range(10),
        asd.Dataset.list_files("/data/*"),
        SLICES.map(abs).filter(bool).prefetch(2),
        SLICES.map(abs, ordered=False),
    ],
)
def test_where_rows_have_numbers_the_source_is_permuted_and_there_is_no_buffer(dataset: asd.Dataset[Any]) -> None:
    plan = shuffled(dataset)
    assert not has(plan, Shuffle)
    assert source_of(plan).permuted == Permuted(seed=7)
    assert [type(node) for node in walk(plan)] == [type(node) for node in walk(dataset.plan)]


def test_repetitions_of_a_permuted_source_are_folded_into_it() -> None:
    plan = rewrite(Repeat(input=Shuffle(input=SLICES.plan, buffer_size=AUTO, seed=7), count=3))
    assert isinstance(plan, TensorSlices)
    assert (plan.times, plan.permuted) == (3, Permuted(seed=7))


def test_one_order_for_all_epochs_is_handed_on() -> None:
    assert source_of(shuffled(SLICES, reshuffle=False)).permuted == Permuted(seed=7, reshuffle=False)
    assert not source_of(shuffled(RECORDS, reshuffle=False)).reshuffle


@pytest.mark.parametrize(
    "dataset",
    [
        SLICES.take(5),
        SLICES.skip(5),
        SLICES.batch(2),
        SLICES.enumerate(),
        SLICES.cache(),
        SLICES.shard(2, 0),
        asd.Dataset.from_generator(lambda: iter([1])),
        asd.Dataset.zip(SLICES, SLICES),
        asd.Dataset.list_files("/data/*", seed=1),
    ],
)
def test_where_the_order_below_decides_what_rows_there_are_a_buffer_grows(dataset: asd.Dataset[Any]) -> None:
    plan = shuffled(dataset)
    assert isinstance(plan, Shuffle)
    assert plan.growing
    assert plan.buffer_rows == AUTO_BUFFER_ROWS
    assert getattr(source_of(plan), "permuted", None) is None


def test_a_permuted_source_is_not_permuted_again() -> None:
    inner = shuffled(SLICES)
    plan = rewrite(Shuffle(input=inner, buffer_size=AUTO, seed=8))
    assert isinstance(plan, Shuffle)
    assert source_of(plan).permuted == Permuted(seed=7)


@pytest.mark.parametrize("dataset", [RECORDS, RECORDS.map(len).filter(bool)])
def test_over_files_many_are_read_at_once_in_random_order(dataset: asd.Dataset[Any]) -> None:
    plan = shuffled(dataset)
    assert isinstance(plan, Shuffle)
    source: ReadFiles = source_of(plan)
    assert (source.cycle_length, source.shuffle_shards, source.seed, source.spread) == (SPREAD_CYCLE, True, 7, True)


def test_what_was_said_about_the_files_is_kept() -> None:
    dataset = asd.Dataset.from_tfrecord("/data/*", cycle_length=100, shuffle_shards=True, seed=3)
    source: ReadFiles = source_of(shuffled(dataset, reshuffle=False))
    assert (source.cycle_length, source.seed, source.reshuffle) == (100, 3, True)


def test_over_files_that_are_cut_off_the_reading_stays_as_it_is() -> None:
    source: ReadFiles = source_of(shuffled(RECORDS.take(100)))
    assert (source.cycle_length, source.shuffle_shards) == (1, False)


def test_whole_files_are_permuted_without_a_buffer() -> None:
    plan = shuffled(asd.Dataset.from_files("/data/*"))
    assert isinstance(plan, ReadFiles)
    assert (plan.shuffle_shards, plan.seed, plan.cycle_length) == (True, 7, 1)


def test_a_number_of_rows_means_a_buffer_of_that_size_and_nothing_else() -> None:
    for dataset, rows in ((SLICES, 9), (RECORDS, 100), (SLICES.map(abs), 100), (SLICES.repeat(2), 100)):
        plan = rewrite(dataset.shuffle(rows, seed=7).plan)
        assert isinstance(plan, Shuffle)
        assert not plan.growing
        assert plan.input is dataset.plan or isinstance(dataset.plan, Repeat)


@pytest.mark.parametrize("dataset", [SLICES, asd.Dataset.range(10), asd.Dataset.range(0)])
def test_a_buffer_for_all_rows_in_memory_is_not_needed(dataset: asd.Dataset[Any]) -> None:
    plan = rewrite(dataset.shuffle(10, seed=7, reshuffle_each_iteration=False).repeat(3).plan)
    assert isinstance(plan, (TensorSlices, Range))
    assert (plan.permuted, plan.times) == (Permuted(seed=7, reshuffle=False), 3)


def test_a_process_of_its_own_and_prefetching_do_not_change_the_order() -> None:
    plan = rewrite(SLICES.prefetch(2).in_subprocess().shuffle(10, seed=7).plan)
    assert source_of(plan).permuted == Permuted(seed=7, reshuffle=True)
    assert not has(plan, Shuffle)


def test_the_rows_of_a_window_are_shuffled_by_a_buffer() -> None:
    """Chunks decide whether they are arrays or a list, which must not change the order."""
    leaves = (np.arange(4),)
    for size in (10, AUTO):
        window: asd.Dataset[Any] = asd.Dataset(WindowSlices(structure=LEAF, leaves=leaves, rows=4))
        assert isinstance(rewrite(window.shuffle(size).plan), Shuffle)


def test_spilling_does_not_change_how_rows_are_shuffled() -> None:
    for rows, kind in ((10, TensorSlices), (9, Shuffle)):
        for spill in (False, True):
            assert isinstance(rewrite(SLICES.shuffle(rows, spill=spill).plan), kind)


def test_the_user_s_operators_stay_above_the_source() -> None:
    plan = shuffled(asd.Dataset.range(10).map(abs))
    assert isinstance(plan, Map)
    assert isinstance(plan.input, Range)


def test_other_operators_are_where_they_were() -> None:
    plan = shuffled(SLICES.cache().take(3))
    assert isinstance(plan, Shuffle)
    assert isinstance(plan.input, Take)
    assert isinstance(plan.input.input, Cache)


def test_explain_names_what_runs() -> None:
    def text(dataset: asd.Dataset[Any]) -> str:
        return asd.Dataset[Any](Shuffle(input=dataset.plan, buffer_size=AUTO, seed=7)).explain(memory_limit="1GB")

    assert "from_tensor_slices reads all its rows in a random order" in text(SLICES)
    assert "shuffle holds" not in text(SLICES)
    assert f"from_tfrecord reads {SPREAD_CYCLE} files at once, in a random order" in text(RECORDS)
    assert "shuffle(seed=7)" in text(RECORDS)
    assert "shuffle holds up to 8,192 rows of unknown size, 128 MiB at most" in text(RECORDS)
    rows = AUTO_BUFFER_NBYTES // 800_000
    large = asd.Dataset.from_tensor_slices(np.zeros((3, 100_000))).take(2)
    assert f"shuffle holds up to {rows} rows of 800000 bytes" in text(large)


def test_list_files_with_a_seed_keeps_its_own_order() -> None:
    source: ListFiles = source_of(shuffled(asd.Dataset.list_files("/data/*", seed=3)))
    assert (source.seed, source.permuted) == (3, None)
