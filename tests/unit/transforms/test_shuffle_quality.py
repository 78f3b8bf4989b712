"""The figures of shuffle quality are what their formulas say, and a uniform order scores one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from aiostream_data.errors import PlanError
from aiostream_data.transforms.shuffle_quality import quality_of, quality_of_elements

Numbers = NDArray[np.int64]


def ids_of(shards: int, rows: int) -> Numbers:
    return np.stack([np.repeat(np.arange(shards), rows), np.tile(np.arange(rows), shards)], axis=1)


def test_the_order_of_the_source_has_moved_nothing() -> None:
    quality = quality_of(ids_of(10, 100))
    assert quality.whole.rank_distance == 0.0
    assert quality.whole.same_shard == pytest.approx(990 / 999)
    assert (quality.rows, quality.shards) == (1000, 10)


def test_a_uniform_order_scores_one_in_every_part() -> None:
    ids = ids_of(20, 5000)
    quality = quality_of(ids[np.random.default_rng(1).permutation(len(ids))])
    assert quality.uniform_same_shard == pytest.approx(1 / 20, abs=0.001)
    for part in (quality.whole, quality.first, quality.last):
        assert part.rank_distance == pytest.approx(1.0, abs=0.03)
        assert part.same_shard == pytest.approx(quality.uniform_same_shard, abs=0.01)


def test_the_reverse_order_has_moved_half_as_far_again_as_a_uniform_one() -> None:
    assert quality_of(ids_of(1, 10_000)[::-1]).whole.rank_distance == pytest.approx(1.5, abs=0.001)


def test_distance_is_measured_by_rank_and_not_by_the_numbers_in_the_ids() -> None:
    ids = ids_of(4, 50)[np.random.default_rng(1).permutation(200)]
    assert quality_of(ids * np.array([1 << 40, 3])) == quality_of(ids)


def test_the_last_part_is_the_end() -> None:
    ids = ids_of(100, 100)
    order = np.random.default_rng(1).permutation(9500)
    quality = quality_of(ids[np.concatenate([order, np.arange(9500, 10_000)])])
    assert quality.last.rank_distance == 0.0
    assert quality.last.same_shard == pytest.approx(495 / 499)
    assert quality.first.same_shard < 0.03


def test_round_robin_has_no_neighbours_of_one_shard() -> None:
    quality = quality_of(ids_of(10, 100).reshape(10, 100, 2).swapaxes(0, 1).reshape(-1, 2))
    assert quality.whole.same_shard == 0.0


def test_sources_that_were_opened_in_another_order_keep_their_places() -> None:
    files, rows = 20, 30
    order = np.random.default_rng(1).permutation(files)  # each file gets the next split number when it is opened
    ids = np.concatenate([ids_of(files, rows), np.stack([np.zeros_like(order), order], axis=1).repeat(rows, axis=0)], 1)
    ones_of_files = ids_of(files, rows)
    ones_of_files[:, 0] = order.repeat(rows)
    assert quality_of(ids) == quality_of(ones_of_files)
    assert quality_of(ids).whole.rank_distance > 0.7
    assert quality_of_elements([ids_of(2, 3), ids], None).rows == 6 + files * rows


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_hardly_any_rows_are_as_good_as_uniform(rows: int) -> None:
    quality = quality_of(ids_of(1, rows))
    assert quality.rows == rows
    assert "shuffle quality of" in str(quality)


def test_elements_of_any_number_of_rows_count_row_by_row() -> None:
    ids = ids_of(4, 50)[np.random.default_rng(1).permutation(200)]
    batches = np.split(ids, [1, 3, 3, 90])
    assert quality_of_elements(batches, None) == quality_of(ids)
    assert quality_of_elements(batches, 200) == quality_of(ids)


def test_no_more_is_read_than_the_rows_to_look_at() -> None:
    asked = 0

    def elements() -> Iterator[Numbers]:
        nonlocal asked
        for start in range(0, 1000, 10):
            asked += 1
            yield ids_of(1, 1000)[start : start + 10]

    quality = quality_of_elements(elements(), 25)
    assert (quality.rows, quality.complete, asked) == (25, False, 3)
    assert "the beginning of the stream" in str(quality)


def test_looking_at_no_rows_is_refused() -> None:
    with pytest.raises(PlanError, match="max_rows must be at least 1, got 0"):
        quality_of_elements([], 0)


def test_the_report_is_a_table() -> None:
    assert str(quality_of(ids_of(2, 100))).splitlines() == [
        "shuffle quality of 200 rows of 2 shards",
        "                rank distance   same-shard neighbours",
        "all rows                0.000                 99.497%",
        "first 5 %               0.000                100.000%",
        "last 5 %                0.000                100.000%",
        "uniform order           1.000                 49.749%",
    ]
