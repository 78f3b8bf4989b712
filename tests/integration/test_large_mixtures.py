"""Mixtures of very many inputs: what they hold, what they start, and that their rows and places are those of few."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import tracemalloc
from collections.abc import Iterable
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import numpy as np
import pytest
from leaks import leaves_nothing

from aiostream_data import Dataset, Loader
from aiostream_data._engine import running
from aiostream_data._engine.flow import context
from aiostream_data.testing.resume import resumes_everywhere
from aiostream_data.transforms.inputs_ahead import INPUTS_AT_ONCE

INPUTS = 400
TASKS_OF_READING_INPUTS = 5 * INPUTS_AT_ONCE + 20
SHARDS = 2
ROWS = 8
NBYTES = 16


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a folder of shards for each input. A row is its input's number and its own number."""
    folder = tmp_path_factory.mktemp("inputs")
    for number in range(INPUTS):
        (folder / f"{number:03}").mkdir()
        for shard in range(SHARDS):
            rows = np.stack([np.full(ROWS, number), np.arange(ROWS) + shard * ROWS], axis=1)
            (folder / f"{number:03}" / f"{shard}.bin").write_bytes(rows.astype(np.int64).tobytes())
    return folder


def files(folder: Path, number: int) -> Dataset[Any]:
    return Dataset.from_fixed_length(f"{folder}/{number:03}/*.bin", NBYTES)


def numbers(rows: Iterable[bytes]) -> list[list[int]]:
    """Return the numbers in each row: of its input, and its own."""
    return [np.frombuffer(row, np.int64).tolist() for row in rows]


def requests(loader: Loader[Any]) -> float:
    return loader.stats().storage["requests"]


def running_tasks(loader: Loader[Any]) -> int:
    loop = loader._engine.loop
    assert loop is not None, "the loader is open"
    return len(asyncio.all_tasks(loop))


def test_each_input_gives_its_rows_in_order_and_in_proportion(folder: Path) -> None:
    mixture = Dataset.sample_from([files(folder, number) for number in range(INPUTS)], stop="all").batch(INPUTS)
    with leaves_nothing():
        batches = [numbers(batch) for batch in mixture]
    for count, batch in enumerate(batches):
        assert sorted(batch) == [[number, count] for number in range(INPUTS)]
    assert len(batches) == SHARDS * ROWS


def test_the_first_batch_starts_only_the_inputs_of_its_rows_and_the_next_ones(folder: Path) -> None:
    mixture = Dataset.sample_from([files(folder, number).repeat() for number in range(INPUTS)]).batch(16)
    with mixture.open() as loader:
        before = requests(loader)  # of the listings
        next(iter(loader))
        assert requests(loader) - before < 200 * SHARDS


def test_inputs_share_their_threads(folder: Path) -> None:
    inputs = [files(folder, number).map(bytes.upper).repeat() for number in range(INPUTS)]
    with leaves_nothing():
        threads = threading.active_count()
        with Dataset.sample_from(inputs).batch(INPUTS).open() as loader:
            batches = iter(loader)
            for _ in range(4):
                next(batches)
            assert threading.active_count() - threads < 60


def test_an_input_at_rest_has_one_task(folder: Path) -> None:
    mixture = Dataset.sample_from([files(folder, number).repeat() for number in range(INPUTS)]).batch(INPUTS)
    with mixture.open() as loader:
        batches = iter(loader)
        for _ in range(4):
            next(batches)
        deadline = monotonic() + 20
        while running_tasks(loader) > INPUTS + 20:
            assert monotonic() < deadline, f"{running_tasks(loader)} tasks still run"
            sleep(0.02)  # until the read-ahead of all inputs is complete


def endless(folder: Path, kind: str, number: int) -> Dataset[Any]:
    """Return an input of a kind that never ends."""
    rows = files(folder, number)
    if kind == "memory":
        return Dataset.from_tensor_slices(np.arange(8)).repeat()
    return {"files": rows, "map": rows.map(bytes.upper), "shuffle": rows.shuffle(100, seed=number)}[kind].repeat()


@pytest.mark.parametrize(("kind", "tasks"), [("files", 1), ("memory", 1), ("shuffle", 1), ("map", 2)])
def test_each_input_of_a_large_mixture_holds_a_bounded_share(folder: Path, kind: str, tasks: int) -> None:
    """Tasks and memory per input stay bounded while the mixture runs, and threads do not grow at all."""
    mixture = Dataset.sample_from([endless(folder, kind, number) for number in range(INPUTS)]).batch(16)
    with leaves_nothing(), mixture.open() as loader:
        batches = iter(loader)
        for _ in range(INPUTS // 16 * 2):
            next(batches)
        threads, objects, most_tasks = threading.active_count(), sys.getallocatedblocks(), 0
        for _ in range(10):
            for _ in range(INPUTS // 16 * SHARDS * ROWS // 8):
                next(batches)
            most_tasks = max(most_tasks, running_tasks(loader))
        assert most_tasks <= tasks * INPUTS + TASKS_OF_READING_INPUTS
        assert threading.active_count() <= threads + 8
        assert sys.getallocatedblocks() - objects < 400 * INPUTS, "objects of ended epochs are kept"


def test_the_memory_of_an_input_at_rest_is_little_more_than_its_rows(folder: Path) -> None:
    held = []
    for inputs in (INPUTS // 4, INPUTS):
        mixture = Dataset.sample_from([files(folder, number).repeat() for number in range(inputs)]).batch(20)
        with mixture.open() as loader:
            batches = iter(loader)
            tracemalloc.start()
            for _ in range(inputs // 20 * 2):
                next(batches)
            gc.collect()
            held.append(tracemalloc.get_traced_memory()[0])
            tracemalloc.stop()
    assert (held[1] - held[0]) / (INPUTS - INPUTS // 4) < 60_000


@pytest.mark.parametrize("batches", [0, 1, 5, 12, 25])
def test_a_large_mixture_may_be_closed_at_any_moment_of_its_start(folder: Path, batches: int) -> None:
    kinds = ("files", "map", "shuffle")
    inputs = [endless(folder, kinds[number % 3], number) for number in range(INPUTS)]
    with leaves_nothing(), Dataset.sample_from(inputs).batch(16).open() as loader:
        rows = iter(loader)
        for _ in range(batches):
            next(rows)


def test_a_mixture_that_ends_early_leaves_its_unstarted_inputs_alone(folder: Path) -> None:
    inputs = [files(folder, number) for number in range(INPUTS)]
    inputs[3] = inputs[3].take(0)
    with leaves_nothing():
        assert numbers(Dataset.sample_from(inputs)) == [[0, 0], [1, 0], [2, 0]]


def test_an_error_of_one_input_comes_after_the_rows_before_it(folder: Path) -> None:
    def fails(row: bytes) -> bytes:
        raise ValueError("no such row")

    inputs = [files(folder, number) for number in range(INPUTS)]
    inputs[5] = inputs[5].map(fails)
    seen: list[bytes] = []
    with leaves_nothing(), pytest.raises(ValueError, match="no such row"):
        seen.extend(Dataset.sample_from(inputs))
    assert numbers(seen) == [[number, 0] for number in range(5)]


def test_a_large_mixture_resumes_everywhere(folder: Path) -> None:
    def input_of(number: int) -> Dataset[Any]:
        rows = files(folder, number)
        even = rows.filter(lambda row: row[8] % 2 == 0)
        return [rows, rows.shuffle(4, seed=number), rows.repeat(2), rows.map(bytes.lower), even][number % 5]

    mixture = Dataset.sample_from([input_of(number) for number in range(20)], seed=2, stop="all", random=True)
    resumes_everywhere(mixture.batch(40), max_state_nbytes=20 * 1024)


def test_the_rows_do_not_depend_on_what_counts_as_large(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = [files(folder, number).shuffle(5, seed=number).repeat(2) for number in range(20)]
    mixture = Dataset.sample_from(inputs, seed=4, stop="all").batch(16)
    with mixture.open() as loader:
        large = [numbers(batch) for batch in loader]
    monkeypatch.setattr(context, "CROWD", 1000)
    monkeypatch.setattr(running, "CROWD", 1000)
    with mixture.open() as loader:
        assert [numbers(batch) for batch in loader] == large


def test_choices_start_the_inputs_that_they_name(folder: Path) -> None:
    inputs = [files(folder, number) for number in range(INPUTS)]
    choices = Dataset.from_tensor_slices(np.array([7, 300, 7, 11]))
    with leaves_nothing():
        rows = list(Dataset.choose_from(inputs, choices))
    assert numbers(rows) == [[7, 0], [300, 0], [7, 1], [11, 0]]


def test_a_large_mixture_may_be_an_input_of_another(folder: Path) -> None:
    inner = [Dataset.sample_from([files(folder, 20 * group + number) for number in range(20)]) for group in range(20)]
    with leaves_nothing():
        rows = numbers(Dataset.sample_from(inner, stop="all"))
    assert sorted(rows) == [[number, row] for number in range(400) for row in range(SHARDS * ROWS)]
