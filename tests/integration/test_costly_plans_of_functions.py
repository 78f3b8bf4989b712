"""Functions that return operators behind small files are called once per row, with bounded time and memory."""

from __future__ import annotations

import threading
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from groups_or_alone import alone, grouped
from many_shards import write_shards

from aiostream_data import Dataset

pytestmark = [pytest.mark.chooses_groups, pytest.mark.leaves_nothing]


def opened(paths: list[Path], plan: Callable[[Dataset[Any]], Dataset[Any]], **merging: Any) -> Dataset[Any]:
    """Return the rows of a plan per file."""
    files = Dataset.from_tensor_slices([str(path) for path in paths])
    return files.interleave(lambda url: plan(Dataset.from_text(url)), **merging)


def is_even(row: str) -> bool:
    return int(row.split(" ")[2][:2]) % 2 == 0


class Calls:
    """Slow function that notes how many of its calls run at the same time."""

    def __init__(self) -> None:
        self.most = 0
        self._now = 0
        self._lock = threading.Lock()

    def slow(self, row: str) -> str:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        time.sleep(0.02)
        with self._lock:
            self._now -= 1
        return row


CALLS = Calls()


def slow(row: str) -> str:
    return CALLS.slow(row)


def test_slow_functions_run_concurrently(tmp_path: Path) -> None:
    paths = write_shards(tmp_path, "from_text", "", 60)
    CALLS.most = 0
    with grouped() as sizes:
        assert len(list(opened(paths, lambda rows: rows.map(slow), cycle_length=1))) == 150
    assert CALLS.most >= 4  # at most 3 with two groups, or with runs that do not know the pace of others
    assert sum(size > 1 for size in sizes) <= 2


@pytest.mark.parametrize("slow_s", [0.0, 0.001, 0.02])
def test_functions_are_called_once_per_row(tmp_path: Path, slow_s: float) -> None:
    paths = write_shards(tmp_path, "from_text", "", 300 if slow_s < 0.02 else 60)
    calls: list[str] = []

    def noted(row: str) -> str:
        if slow_s and row.endswith(("00 .", "02 .")):
            time.sleep(slow_s)
        calls.append(row)
        return row

    with grouped() as sizes:
        rows = list(opened(paths, lambda rows: rows.filter(is_even).map(noted).filter(bool), cycle_length=1))
    assert sorted(calls) == sorted(rows)
    assert len(set(calls)) == len(calls)
    assert max(sizes) > 1


@pytest.mark.parametrize("failing", [3, 50, 199])
def test_rows_before_a_failure_are_not_processed_again(tmp_path: Path, failing: int) -> None:
    """A function that fails once must not succeed when it is called again."""
    paths = write_shards(tmp_path, "from_text", "", 200)
    wanted = f"shard {failing:04} 00"
    for way in (grouped, alone):
        failed: list[str] = []
        calls: list[str] = []

        def checked(row: str, failed: list[str] = failed, calls: list[str] = calls) -> str:
            calls.append(row)
            if row.startswith(wanted) and not failed:
                failed.append(row)
                raise OSError("once")
            return row

        received: list[str] = []
        with way(), pytest.raises(OSError, match="once"):
            received.extend(opened(paths, lambda rows: rows.map(checked), cycle_length=1))
        assert len(set(calls)) == len(calls)
        assert len(received) == sum(1 + number % 4 for number in range(failing))


def test_rows_that_a_function_changes_are_changed_once(tmp_path: Path) -> None:
    for number in range(40):
        np.save(tmp_path / f"{number:02}.npy", np.arange(6).reshape(3, 2))

    def raised(row: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        row += 1000
        return row

    with grouped() as sizes:
        rows = list(Dataset.list_files(f"{tmp_path}/*.npy").interleave(lambda url: Dataset.from_npy(url).map(raised)))
    assert max(sizes) > 1
    assert {tuple(row) for row in rows} == {(1000, 1001), (1002, 1003), (1004, 1005)}


def test_large_files_and_slow_rows_arrive_early(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.txt" for number in range(4)]
    for path in paths:
        path.write_text("".join(f"{row}\n" for row in range(200)))

    def slow(row: str) -> str:
        time.sleep(0.005)
        return row

    began = time.perf_counter()
    with grouped(), opened(paths, lambda rows: rows.skip(1).map(slow), cycle_length=1).open() as loader:
        for _ in loader:
            break
    assert time.perf_counter() - began < 0.7  # one file alone takes a second


def test_results_between_operators_are_not_kept(tmp_path: Path) -> None:
    paths = write_shards(tmp_path, "from_text", "", 200)
    dataset = opened(paths, lambda rows: rows.map(lambda row: np.zeros(500_000, np.uint8)).map(len), cycle_length=1)
    tracemalloc.start()
    try:
        with grouped() as sizes, dataset.open(memory_limit="64MB") as loader:
            assert sum(loader) == 500 * 500_000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert max(sizes) > 1
    assert peak < 64 << 20  # of 250 MB


@pytest.mark.parametrize("limit", [4 << 20, 64 << 20])
def test_the_memory_limit_bounds_the_results_of_operators(tmp_path: Path, limit: int) -> None:
    paths = write_shards(tmp_path, "from_text", "", 100)
    paths[50].write_text("row\n" * 3000)
    dataset = opened(paths, lambda rows: rows.map(lambda row: np.full(50_000, len(row), np.uint8)), cycle_length=3)
    with dataset.open(memory_limit=limit) as loader:
        rows = sum(1 for _ in loader)
        peak = loader.stats().memory.peak
    assert rows == 250 - 3 + 3000
    assert peak <= limit
