"""Shards behind the one whose turn it is are decompressed too, because one thread at a time can decompress a shard."""

from __future__ import annotations

import gzip
import random
import threading
from pathlib import Path
from typing import Any

import pytest

from aiostream_data import Dataset
from aiostream_data._engine.sources.group_limits import GROUP_NBYTES
from aiostream_data._engine.sources.ranges_ahead import CUT_NBYTES, SHARDS_OF_A_CPU, shards_cut_ahead
from aiostream_data._engine.sources.shard_cutter import ShardCutter
from aiostream_data._engine.sources.typical_shards import COMPRESSION_RATIO

WITHIN_S = 30.0
SHARDS, ROWS, LONG = 6, 100, 500_000
"""The rows of a shard do not fit into the queue before the consumer, so the second shard does not get its turn."""

NOISE = GROUP_NBYTES // COMPRESSION_RATIO + 1
"""Bytes that cannot be compressed, so that a shard is expected to be too large for a group."""


@pytest.mark.parametrize(
    ("limit", "cpus", "crowd", "expected"),
    [
        (100 * CUT_NBYTES, 2, 1, 2 * SHARDS_OF_A_CPU),
        (100 * CUT_NBYTES, 16, 1, 16 * SHARDS_OF_A_CPU),
        (3 * CUT_NBYTES, 16, 1, 3),
        (CUT_NBYTES - 1, 16, 1, 0),
        (100 * CUT_NBYTES, 16, 2, 0),
    ],
)
def test_the_number_follows_cpus_and_memory(limit: int, cpus: int, crowd: int, expected: int) -> None:
    assert shards_cut_ahead(limit, cpus, crowd) == expected


def test_the_next_shards_are_decompressed_while_the_consumer_holds_the_first_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = random.Random(1).randbytes(NOISE).hex().encode()
    for number in range(SHARDS):
        text = (b"%d " % number + bytes([97 + number]) * LONG + b"\n") * ROWS
        (tmp_path / f"{number}.gz").write_bytes(gzip.compress(noise + b"\n" + text, 1))
    begun: set[int] = set()
    are_begun = threading.Event()
    cut = ShardCutter.cut

    def noted(self: ShardCutter, *args: Any) -> Any:
        begun.add(id(self))
        if len(begun) >= 4:
            are_begun.set()
        return cut(self, *args)

    monkeypatch.setattr(ShardCutter, "cut", noted)
    with Dataset.from_text(str(tmp_path / "*.gz")).open(memory_limit=16 * CUT_NBYTES) as loader:
        rows = iter(loader)
        next(rows)
        assert are_begun.wait(WITHIN_S)
        found = [row[:3] for row in rows]
    expected = [
        row for number in range(SHARDS) for row in (noise[:3].decode(), *[f"{number} {chr(97 + number)}"] * ROWS)
    ]
    assert found == expected[1:]
