"""Shuffle without a buffer size: all rows once, another order every epoch, at once, the same after a resume."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aiostream_data as asd
from aiostream_data.plan.operators import AUTO_BUFFER_NBYTES
from aiostream_data.plan.ranks import for_rank
from aiostream_data.ranks import Ranks, Sharing
from aiostream_data.testing.resume import resumes_everywhere
from aiostream_data.transforms.shuffle_buffer import GROW_EVERY, GROW_FROM

FILES, RECORDS = 40, 25


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty files of fixed-length records, each holding its own number, and the same numbers in forty NumPy files."""
    path = tmp_path_factory.mktemp("records")
    for number in range(FILES):
        first = number * RECORDS
        numbers = np.arange(first, first + RECORDS, dtype="<i8")
        (path / f"{number:02}.bin").write_bytes(numbers.tobytes())
        np.save(path / f"{number:02}.npy", numbers)
    return path


def number_in(record: bytes) -> int:
    return int.from_bytes(record, "little")


def of_files(folder: Path) -> asd.Dataset[int]:
    return asd.Dataset.from_fixed_length(f"{folder}/*.bin", 8).map(number_in)


SOURCES: dict[str, Callable[[Path], asd.Dataset[int]]] = {
    "range": lambda _: asd.Dataset.range(FILES * RECORDS),
    "slices": lambda _: asd.Dataset.from_tensor_slices(np.arange(FILES * RECORDS)).map(int),
    "generator": lambda _: asd.Dataset.from_generator(lambda: iter(range(FILES * RECORDS))),
    "files": of_files,
    "tables": lambda folder: asd.Dataset.from_npy(f"{folder}/*.npy").map(int),
}


@pytest.mark.parametrize("source", SOURCES)
def test_every_row_comes_once_an_epoch_and_each_epoch_in_another_order(source: str, folder: Path) -> None:
    rows = FILES * RECORDS
    given = list(SOURCES[source](folder).shuffle(seed=3).repeat(3))
    epochs = [given[start : start + rows] for start in range(0, 3 * rows, rows)]
    assert all(sorted(epoch) == list(range(rows)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]


@pytest.mark.parametrize("source", SOURCES)
def test_the_seed_decides_and_without_reshuffling_epochs_are_alike(source: str, folder: Path) -> None:
    def order(seed: int, reshuffle: bool, epoch: int = 0) -> list[int]:
        dataset = SOURCES[source](folder).shuffle(seed=seed, reshuffle_each_iteration=reshuffle)
        with dataset.open(epoch=epoch) as loader:
            return list(loader)

    assert order(1, True) == order(1, True) != order(2, True)
    assert order(1, True) != order(1, True, epoch=1)
    assert order(1, False) == order(1, False, epoch=1)


@pytest.mark.parametrize("source", SOURCES)
def test_it_resumes_at_every_element(source: str, folder: Path) -> None:
    dataset = SOURCES[source](folder).shuffle().batch(40).repeat(2)
    report = resumes_everywhere(dataset, open_options={"seed": 5}, every=4)
    assert report.elements == 2 * FILES * RECORDS // 40


def test_it_resumes_where_a_buffer_of_large_rows_has_stopped_growing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiostream_data._engine.stages.shuffle.AUTO_BUFFER_NBYTES", 256 * 200)
    dataset = asd.Dataset.from_generator(lambda: (np.full(20, n) for n in range(1000))).shuffle().batch(20)
    with dataset.open(seed=1) as loader:
        for _ in range(40):
            next(iter(loader))
        assert loader.state_dict()["position"]["size"] == 256
    resumes_everywhere(dataset, open_options={"seed": 1}, every=3)


@pytest.mark.parametrize("source", SOURCES)
def test_ranks_share_one_order_whatever_their_number(source: str, folder: Path) -> None:
    dataset = SOURCES[source](folder).shuffle()

    def rows_of(rank: int, world: int) -> list[int]:
        with asd.Dataset[int](for_rank(dataset.plan, Ranks(rank, world))).open(seed=4) as loader:
            return list(loader)

    whole = rows_of(0, 1)
    for world in (2, 5):
        assert [row for group in zip(*(rows_of(k, world) for k in range(world)), strict=True) for row in group] == whole


@pytest.mark.parametrize("source", ["files", "tables"])
def test_ranks_that_share_files_shuffle_their_own(source: str, folder: Path) -> None:
    dataset = SOURCES[source](folder).shuffle()
    parts = []
    for rank in range(3):
        plan = for_rank(dataset.plan, Ranks(rank, 3), Sharing(policy="file"))
        with asd.Dataset[int](plan).open(seed=4) as loader:
            parts.append(list(loader))
    assert sorted(row for part in parts for row in part) == list(range(FILES * RECORDS))
    assert all(part != sorted(part) for part in parts)


def test_a_permuted_source_resumes_by_a_number_alone() -> None:
    dataset = asd.Dataset.range(100_000).shuffle(seed=1).batch(100)
    with dataset.open() as loader:
        for _ in range(500):
            next(iter(loader))
        state = loader.state_dict()
    assert len(str(state)) < 2000


def test_a_folded_repetition_has_the_order_of_one_that_is_run() -> None:
    slices = asd.Dataset.from_tensor_slices(np.arange(50))
    folded = list(slices.shuffle(seed=1).repeat(3))
    run = list(slices.shuffle(seed=1).take(-1).repeat(3))
    assert list(map(int, folded)) == list(map(int, run))


def test_repetitions_below_the_shuffle_are_permuted_one_by_one() -> None:
    given = list(map(int, asd.Dataset.from_tensor_slices(np.arange(50)).repeat(2).shuffle(seed=1)))
    assert sorted(given[:50]) == sorted(given[50:]) == list(range(50))
    assert given[:50] != given[50:]


def test_a_huge_range_is_shuffled_at_once() -> None:
    with asd.Dataset.range(1 << 60).shuffle(seed=1).open() as loader:
        first = [next(iter(loader)) for _ in range(100)]
    assert len(set(first)) == 100
    assert sum(number > 1 << 59 for number in first) in range(25, 76)


def test_the_first_elements_do_not_wait_for_a_full_buffer() -> None:
    dataset = asd.Dataset.from_generator(lambda: iter(range(1_000_000))).shuffle()
    with dataset.open() as loader:
        first = [next(iter(loader)) for _ in range(10)]
    assert max(first) < GROW_FROM + 10 * GROW_EVERY


def test_files_are_listed_in_another_order_and_each_once(folder: Path) -> None:
    dataset = asd.Dataset.list_files(f"{folder}/*.bin").shuffle(seed=2)
    names = list(dataset)
    assert sorted(names) == sorted(map(str, folder.glob("*.bin"))) != names
    assert dataset.shuffle_quality().whole.rank_distance > 0.7


def test_whole_files_come_in_random_order(folder: Path) -> None:
    urls = [element["url"] for element in asd.Dataset.from_files(f"{folder}/*.bin").shuffle(seed=2)]
    assert sorted(urls) == sorted(map(str, folder.glob("*.bin"))) != urls


def test_files_with_row_groups_are_opened_in_random_order(folder: Path) -> None:
    files = asd.Dataset.from_npy(f"{folder}/*.npy")
    assert files.shuffle_quality().whole.rank_distance == 0.0
    assert files.shuffle(seed=1).shuffle_quality().whole.rank_distance > 0.9
    assert "shuffle: the files are opened in a random order" in files.shuffle(seed=1).explain()
    assert "no buffer is needed" not in files.shuffle(seed=1).explain()


def test_a_filter_between_sees_every_row(folder: Path) -> None:
    for source in SOURCES.values():
        given = list(source(folder).filter(lambda n: n % 3 == 0).shuffle(seed=1))
        assert sorted(given) == list(range(0, FILES * RECORDS, 3))


def test_inner_data_sets_are_shuffled_too() -> None:
    def pair(number: int) -> asd.Dataset[int]:
        return asd.Dataset.range(10 * number, 10 * number + 10).shuffle(seed=1)

    given = list(asd.Dataset.range(5).flat_map(pair))
    assert sorted(given) == list(range(50))
    assert [number // 10 for number in given] == sorted(number // 10 for number in given)
    assert given != sorted(given)


def test_r32_a_real_run_over_1024_files_is_as_good_as_the_simulated_one(tmp_path: Path) -> None:
    rows = 100
    for number in range(1024):
        (tmp_path / f"{number:04}.bin").write_bytes(bytes(8 * rows))
    files = asd.Dataset.from_fixed_length(f"{tmp_path}/*.bin", 8)
    options: dict[str, Any] = {"max_rows": None, "memory_limit": "64MB", "seed": 1}
    ours, theirs = files.shuffle().shuffle_quality(**options), files.shuffle(10_000).shuffle_quality(**options)
    assert (ours.rows, ours.shards, ours.complete) == (1024 * rows, 1024, True)
    for part in ("whole", "first", "last"):
        assert abs(getattr(ours, part).rank_distance - 1) < 0.1
        assert abs(getattr(theirs, part).rank_distance - 1) > 0.5


def test_explain_says_how_much_memory_a_growing_buffer_may_take(folder: Path) -> None:
    text = of_files(folder).shuffle().explain(memory_limit="1GB")
    assert f"{AUTO_BUFFER_NBYTES >> 20} MiB at most" in text
