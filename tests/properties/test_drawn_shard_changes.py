"""Shards that are added, removed and replaced between two runs: exactly the rows that are left, or a refusal."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from drawn_cases import TIMES, in_time
from shard_changes import try_case

CASES = 150
LEAST_EXACT = 0.45


@in_time
def test_resuming_with_other_shards_delivers_exactly_the_rows_that_are_left_or_refuses(tmp_path: Path) -> None:
    outcomes: Counter[str] = Counter()
    cases = max(1, round(CASES * TIMES))
    for seed in range(cases):
        folder = tmp_path / str(seed)
        folder.mkdir()
        outcomes[try_case(seed, folder).refused] += 1
    assert outcomes[""] >= LEAST_EXACT * cases, outcomes
