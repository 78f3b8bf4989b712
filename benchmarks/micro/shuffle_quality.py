"""Compare how well shuffles mix 1,024 sorted shards, on row ids alone: ``python -m benchmarks.micro.shuffle_quality``.

Nothing is read: the figures depend on the orders only, and are the same on every machine. Each is the mean
over a few seeds. "Rows held" counts the buffer, and two requests for every shard that is open or opened ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from aiostream_data.plan.operators import AUTO_BUFFER_ROWS
from aiostream_data.plan.shuffling import SPREAD_CYCLE
from aiostream_data.transforms.randomness import key_of
from aiostream_data.transforms.shard_order import even_cycle, shard_order
from aiostream_data.transforms.shuffle_buffer import ShuffleOrder
from aiostream_data.transforms.shuffle_quality import ShuffleQuality, quality_of
from benchmarks.micro.shuffle_simulation import interleaved_ids, shuffled_ids

SHARDS = 1024
SEEDS = 3
RANGE_ROWS = 20
"""Rows in one request of 1 MiB, if a row has 50 kB."""


@dataclass(frozen=True)
class Shuffle:
    """One way to shuffle.

    Attributes:
        cycle: Shards read at once.
        in_order: Read the shards as they are listed.
        growing: Give rows out before the buffer is full.
    """

    name: str
    cycle: int
    buffer_rows: int
    in_order: bool = False
    growing: bool = False

    @property
    def rows_held(self) -> int:
        return self.buffer_rows + 2 * RANGE_ROWS * (self.cycle + max(1, self.cycle // 4))

    def quality(self, rows_of_shards: Sequence[int], seed: int) -> ShuffleQuality:
        cycle = even_cycle(len(rows_of_shards), self.cycle)
        turns = shard_order(key_of(seed, "shards"), rows_of_shards, cycle)
        ids = interleaved_ids(rows_of_shards, range(SHARDS) if self.in_order else turns, cycle)
        return quality_of(shuffled_ids(ids, ShuffleOrder(self.buffer_rows, key_of(seed, "rows"), self.growing)))


SHUFFLES = [
    Shuffle("shuffle(10_000), shards in order", 1, 10_000, in_order=True),
    Shuffle("shuffle(10_000), shards in random order", 1, 10_000),
    Shuffle("shuffle()", SPREAD_CYCLE, AUTO_BUFFER_ROWS, growing=True),
    Shuffle("shuffle(), stopped at 2,048 large rows", SPREAD_CYCLE, 2048, growing=True),
]
UNEQUAL = np.random.default_rng(7).lognormal(np.log(800), 0.7, SHARDS).astype(int).tolist()
SIZES: dict[str, Sequence[int]] = {
    "1,000 rows each": [1000] * SHARDS,
    "1,000 rows on average, log-normal": UNEQUAL,
    "4,000 rows each": [4000] * SHARDS,
}


def main() -> None:
    """Print a table per size of shards."""
    for name, rows_of_shards in SIZES.items():
        print(f"\n{SHARDS:,} shards of {name}\n")
        print("| | rows held | rank distance | first 5 % | last 5 % | same shard | first 5 % | last 5 % |")
        print("|---|---|---|---|---|---|---|---|")
        for shuffle in SHUFFLES:
            qualities = [shuffle.quality(rows_of_shards, seed) for seed in range(SEEDS)]
            print(f"| {shuffle.name} | {shuffle.rows_held:,} | {_figures(qualities)} |")
        print(f"| uniform order | {sum(rows_of_shards):,} | 1.00 | 1.00 | 1.00 |" + f" {1 / SHARDS:.1%} |" * 3)


def _figures(qualities: Sequence[ShuffleQuality]) -> str:
    def mean(figure: Callable[[ShuffleQuality], float]) -> float:
        return fmean(map(figure, qualities))

    parts: list[Callable[[ShuffleQuality], float]] = [
        lambda q: q.whole.rank_distance,
        lambda q: q.first.rank_distance,
        lambda q: q.last.rank_distance,
    ]
    shares: list[Callable[[ShuffleQuality], float]] = [
        lambda q: q.whole.same_shard,
        lambda q: q.first.same_shard,
        lambda q: q.last.same_shard,
    ]
    return " | ".join([f"{mean(part):.2f}" for part in parts] + [f"{mean(share):.1%}" for share in shares])


if __name__ == "__main__":
    main()
