"""R03: a worker that is killed in the middle of a record is noticed, the record is tried once more, and then named."""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path

import pytest
from leaks import leaves_nothing

from aiostream_data import Dataset, Retry
from aiostream_data.errors import WorkerDiedError

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))

import policy_functions as fn


def test_a_record_whose_worker_was_killed_once_is_given_all_the_same(tmp_path: Path) -> None:
    function = partial(fn.kills_its_process_once, folder=str(tmp_path))
    with leaves_nothing():
        assert list(Dataset.range(200).map(function, executor="process", concurrency=2)) == list(range(200))
    assert (tmp_path / "died").exists()


@pytest.mark.parametrize("rows_before", [0, 13])
def test_a_record_that_kills_two_workers_is_named_in_the_error(tmp_path: Path, rows_before: int) -> None:
    function = partial(fn.kills_its_process_on_13, folder=str(tmp_path))
    dataset = Dataset.range(13 - rows_before, 200).map(function, executor="process", concurrency=2)
    began = time.perf_counter()
    with leaves_nothing(), pytest.raises(WorkerDiedError, match="signal 9, likely out of memory") as caught:
        list(dataset)
    assert time.perf_counter() - began < 10
    assert any(note == f"record: range record {rows_before}" for note in caught.value.__notes__)
    assert (tmp_path / "deaths").read_text() == "xx"
    del caught


def test_a_record_that_kills_its_workers_can_be_skipped(tmp_path: Path) -> None:
    function = partial(fn.kills_its_process_on_13, folder=str(tmp_path))
    dataset = Dataset.range(60).map(function, executor="process", concurrency=2, on_error="skip")
    with leaves_nothing(), dataset.open() as loader:
        assert list(loader) == [number for number in range(60) if number != 13]
        assert loader.stats().stages[1].skipped == 1


def test_further_attempts_are_made_where_the_policy_says_so(tmp_path: Path) -> None:
    function = partial(fn.kills_its_process_on_13, folder=str(tmp_path))
    policy = Retry(2, backoff_s=0.0, then="skip")
    dataset = Dataset.range(20).map(function, executor="process", concurrency=2, on_error=policy)
    with leaves_nothing():
        assert list(dataset) == [number for number in range(20) if number != 13]
    assert (tmp_path / "deaths").read_text() == "xxxx"
