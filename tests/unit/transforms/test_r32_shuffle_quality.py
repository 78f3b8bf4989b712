"""R32: on 1,024 sorted shards the default shuffle beats a buffer of 10,000 rows, at less memory, to the last row."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from statistics import fmean

import numpy as np
import pytest

from aiostream_data.plan.operators import AUTO_BUFFER_ROWS
from aiostream_data.plan.shuffling import SPREAD_CYCLE
from aiostream_data.transforms.randomness import key_of
from aiostream_data.transforms.shard_order import even_cycle, shard_order
from aiostream_data.transforms.shuffle_buffer import ShuffleOrder
from aiostream_data.transforms.shuffle_quality import PartQuality, ShuffleQuality, quality_of
from benchmarks.micro.shuffle_simulation import interleaved_ids, sequential_ids, shuffled_ids

SHARDS = 1024
SEEDS = 3
BASELINE_ROWS = 10_000
RANGE_ROWS = 20
"""Rows in one request of 1 MiB, if a row has 50 kB."""

ROWS_OF_SHARDS = {
    "equal": [1000] * SHARDS,
    "unequal": np.random.default_rng(7).lognormal(np.log(800), 0.7, SHARDS).astype(int).tolist(),
}
BUFFERS = [AUTO_BUFFER_ROWS, AUTO_BUFFER_ROWS // 4]
"""With small rows; and with rows so large that the buffer stops growing early."""


def rows_held(buffer_rows: int) -> int:
    """Most rows held at once: the buffer, and two requests for every file that is open or opened ahead."""
    return buffer_rows + 2 * RANGE_ROWS * (SPREAD_CYCLE + SPREAD_CYCLE // 4)


@cache
def default_shuffle(sizes: str, buffer_rows: int) -> ShuffleQuality:
    rows = ROWS_OF_SHARDS[sizes]
    cycle = even_cycle(SHARDS, SPREAD_CYCLE)
    return mean_of(
        [
            quality_of(
                shuffled_ids(
                    interleaved_ids(rows, shard_order(key_of(seed, "shards"), rows, cycle), cycle),
                    ShuffleOrder(buffer_rows, key_of(seed, "rows"), growing=True),
                )
            )
            for seed in range(SEEDS)
        ]
    )


@cache
def large_buffer(sizes: str) -> ShuffleQuality:
    return quality_of(shuffled_ids(sequential_ids(ROWS_OF_SHARDS[sizes]), ShuffleOrder(BASELINE_ROWS, key_of(1))))


def mean_of(qualities: list[ShuffleQuality]) -> ShuffleQuality:
    """Average over seeds: a twentieth of the shards is few enough for their places to vary."""

    def part(name: str) -> PartQuality:
        parts: list[PartQuality] = [getattr(quality, name) for quality in qualities]
        return PartQuality(fmean(part.rank_distance for part in parts), fmean(part.same_shard for part in parts))

    return replace(qualities[0], whole=part("whole"), first=part("first"), last=part("last"))


def test_r32_the_default_holds_fewer_rows_than_the_buffer_it_is_compared_with() -> None:
    assert rows_held(AUTO_BUFFER_ROWS) <= BASELINE_ROWS


@pytest.mark.parametrize("buffer_rows", BUFFERS)
@pytest.mark.parametrize("sizes", ROWS_OF_SHARDS)
@pytest.mark.parametrize("part", ["whole", "first", "last"])
def test_r32_every_part_of_the_epoch_is_better_shuffled_than_by_a_large_buffer(
    part: str, sizes: str, buffer_rows: int
) -> None:
    ours: PartQuality = getattr(default_shuffle(sizes, buffer_rows), part)
    theirs: PartQuality = getattr(large_buffer(sizes), part)
    assert abs(ours.rank_distance - 1) < 0.1 < 0.9 < abs(theirs.rank_distance - 1)
    assert ours.same_shard < 0.65 * theirs.same_shard


@pytest.mark.parametrize("buffer_rows", BUFFERS)
@pytest.mark.parametrize("sizes", ROWS_OF_SHARDS)
def test_r32_the_last_twentieth_is_not_worse_than_the_mean_by_more_than_a_tenth(sizes: str, buffer_rows: int) -> None:
    quality = default_shuffle(sizes, buffer_rows)
    assert quality.last.rank_distance > 0.9 * quality.whole.rank_distance
    assert quality.last.same_shard < 1.1 * quality.whole.same_shard
