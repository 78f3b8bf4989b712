"""Sources of very many shards: memory per shard, and bytes that are read before the first batch."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from paged_keys import PagedKeys

from aiostream_data import Dataset
from aiostream_data.storage.key_search import KeySearch
from aiostream_data.storage.local_listing import match_files

pytestmark = pytest.mark.chooses_groups  # a separate object for each file of 8 bytes would take 2 KiB

FEW, MANY = 1_000, 9_000
MOST_NBYTES_PER_SHARD = 200
REPETITIONS = 3


def peak_nbytes(work: Callable[[], object]) -> int:
    """Return the peak of the memory that Python allocates during ``work``."""
    gc.collect()  # now, and not at any time during the work
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        work()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def nbytes_per_shard(work: Callable[[int], object]) -> float:
    """Return by how much the peak grows with each shard; what does not depend on the shards cancels out.

    Other threads of the process may allocate memory in the meantime, so the least of several peaks counts.
    """
    work(FEW)  # imports
    few, many = (min(peak_nbytes(partial(work, count)) for _ in range(REPETITIONS)) for count in (FEW, MANY))
    return (many - few) / (MANY - FEW)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Return a folder of so many files, for each number of files."""
    found = {}
    for count in (FEW, MANY):
        found[count] = tmp_path_factory.mktemp(f"shards-{count}")
        for number in range(count):
            (found[count] / f"train-shard-{number:06}.bin").write_bytes(b"12345678")
    return found


@pytest.mark.parametrize("shuffled", [False, True])
def test_a_listed_shard_takes_200_bytes_at_most(folders: dict[int, Path], shuffled: bool) -> None:
    def first_batch(count: int) -> None:
        files = Dataset.from_fixed_length(f"{folders[count]}/*.bin", 8, shuffle_shards=shuffled, seed=1)
        with files.batch(4).open() as loader:
            assert next(iter(loader)).shape == (4,)
            loader.state_dict()

    assert nbytes_per_shard(first_batch) < MOST_NBYTES_PER_SHARD


def test_a_shard_named_by_the_user_takes_200_bytes_at_most_beside_its_name(folders: dict[int, Path]) -> None:
    plans = {
        count: Dataset.from_fixed_length([f"{folder}/train-shard-{number:06}.bin" for number in range(count)], 8)
        for count, folder in folders.items()
    }

    def first_batch(count: int) -> None:
        with plans[count].batch(4).open() as loader:
            assert next(iter(loader)).shape == (4,)

    assert nbytes_per_shard(first_batch) < MOST_NBYTES_PER_SHARD


def test_a_key_of_a_bucket_takes_200_bytes_at_most_while_it_is_listed() -> None:
    spaces = {count: PagedKeys(f"train/shard-{number:06}" for number in range(count)) for count in (FEW, MANY)}

    def search(count: int) -> None:
        found = asyncio.run(KeySearch().find("s3://b/train/*", "train/*", spaces[count].page))
        assert len(found) == count

    assert nbytes_per_shard(search) < MOST_NBYTES_PER_SHARD


def test_the_first_batch_reads_only_the_first_files(folders: dict[int, Path]) -> None:
    with Dataset.from_fixed_length(f"{folders[MANY]}/*.bin", 8).batch(4).open() as loader:
        next(iter(loader))
        read = loader.stats().storage["requests"]
    assert read < MANY / 4


def test_files_are_listed_in_the_order_of_their_paths(tmp_path: Path) -> None:
    draw = random.Random(5)
    for _ in range(300):
        path = tmp_path.joinpath(
            *("".join(draw.choices("ab-.0é", k=draw.randint(1, 3))).lstrip(".") or "c" for _ in range(3))
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
        path.parent.with_name(f"{path.parent.name}-").mkdir(exist_ok=True)
        (path.parent.parent / f"{path.parent.name}-f").write_bytes(b"")
    for pattern in ("**", "*/*", "*/*/*", "a*/**", "**/a*"):
        found = [shard.url for shard in match_files(f"{tmp_path}/{pattern}")]
        assert found, pattern
        assert found == sorted(found)
    everything = {shard.url for shard in match_files(f"{tmp_path}/**")}
    assert everything == {os.path.join(folder, name) for folder, _, names in os.walk(tmp_path) for name in names}
