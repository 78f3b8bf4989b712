"""One bad shard among good ones: shards read in groups end, retry, skip and report as if each were read alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from groups_or_alone import check_both_ways
from many_shards import CHANGES, CONTENT, DAMAGE, SUFFIXES, source, write_shards

import aiostream_data as asd
from aiostream_data import Retry, Skip

SHARDS = 60
BAD = 23
"""Number of the bad shard, in the middle of a group."""

ENDING: list[Any] = [None, Retry(1, backoff_s=0.0), Skip(max_count=0)]
"""Policies with which a bad shard ends the rows."""

SKIPPING: list[Any] = ["skip", Retry(1, backoff_s=0.0, then="skip"), Skip(max_rate=0.9)]

READING = [
    {"cycle_length": 1},
    {"cycle_length": 3, "block_length": 2},
    {"cycle_length": 100},
    {"cycle_length": 5, "shuffle_shards": True, "seed": 3},
]
"""Options with which the outcome may differ, but must be that of shards that are read alone."""

GROUP_NBYTES = [4 << 20, 64 << 10, 1 << 11]
"""Sizes of a group: as usual, too small for objects that grow when they are decompressed, and a few shards."""


pytestmark = [pytest.mark.chooses_groups, pytest.mark.leaves_nothing]


def turn(number: int, *lists: list[Any]) -> list[Any]:
    """Return one entry of each list; consecutive numbers give other combinations."""
    return [entries[(number + place * (number // 3)) % len(entries)] for place, entries in enumerate(lists)]


def least(name: str, group_nbytes: int) -> int:
    """Return a size of a group that fits to the shards of a source: an archive has at least 10 KiB."""
    return max(group_nbytes, 1 << 16) if name == "from_webdataset" else group_nbytes


# -- damaged content


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", CONTENT)
def test_a_damaged_shard_ends_the_rows_in_its_turn(tmp_path: Path, name: str, damage: Callable[[Path], None]) -> None:
    start = DAMAGE.index(damage) + 3 * list(CONTENT).index(name)
    for number in range(start, start + 3):
        folder = tmp_path / str(number)
        folder.mkdir()
        compression, policy, reading, group_nbytes = turn(number, list(SUFFIXES), ENDING, READING, GROUP_NBYTES)
        damage(write_shards(folder, name, compression, SHARDS)[BAD])
        check_both_ways(
            source(name, f"{folder}/*", compression, on_error=policy, **reading),
            tmp_path / "log.jsonl",
            least(name, group_nbytes),
        )


@pytest.mark.parametrize("compression", SUFFIXES)
@pytest.mark.parametrize("name", CONTENT)
def test_only_damaged_shards_are_skipped(tmp_path: Path, name: str, compression: str) -> None:
    folder = tmp_path / "shards"
    folder.mkdir()
    paths = write_shards(folder, name, compression, SHARDS)
    for number, damage in enumerate(DAMAGE):
        damage(paths[5 * number])
    for number in range(3):
        policy, reading, group_nbytes = turn(number, SKIPPING, READING, GROUP_NBYTES)
        found = check_both_ways(
            source(name, f"{folder}/*", compression, on_error=policy, **reading),
            tmp_path / "log.jsonl",
            least(name, group_nbytes),
        )
        assert found.error is None


# -- files that change between the listing and the read


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", CONTENT)
def test_a_changed_file_has_the_same_outcome_as_alone(
    tmp_path: Path, name: str, change: Callable[[Path], None]
) -> None:
    start = CHANGES.index(change) + 3 * list(CONTENT).index(name)
    folder, index = tmp_path / "shards", tmp_path / "index"
    folder.mkdir()
    compression = list(SUFFIXES)[start % 4]
    paths = write_shards(folder, name, compression, SHARDS)
    asd.write_index(f"{folder}/*", index, versions=start % 2 == 0)
    change(paths[BAD])
    for number in range(start, start + 2):
        policy, reading, group_nbytes = turn(number, [None, "skip"], READING, GROUP_NBYTES)
        dataset = source(name, None, compression, index=index, on_error=policy, **reading)
        found = check_both_ways(dataset, tmp_path / "log.jsonl", least(name, group_nbytes))
        assert found.error is not None or policy == "skip"


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_of_unknown_size_has_the_same_outcome_as_alone(tmp_path: Path, change: Callable[[Path], None]) -> None:
    number = CHANGES.index(change)
    name, compression, policy, reading = turn(number, list(CONTENT), list(SUFFIXES), [None, "skip"], READING)
    paths = write_shards(tmp_path, name, compression, SHARDS)
    files = asd.Dataset.from_tensor_slices([str(path) for path in paths])
    change(paths[BAD])
    check_both_ways(source(name, files, compression, on_error=policy, **reading), tmp_path / "log.jsonl")
