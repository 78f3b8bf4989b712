"""A chain in processes of its own resumes at every element, and its states are those of the chain without them."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from resume_functions import with_draw
from resume_plans import CASES, draws, numbers, write_files
from thread_child import ThreadChild

from aiostream_data import Dataset
from aiostream_data._engine.processes import process_handle as hosting_process
from aiostream_data.testing.comparing import same
from aiostream_data.testing.resume import resumes_everywhere

ORDERED = (
    *("tfrecord, permuted", "parse_example, batched", "map, coroutine", "filter", "flat_map of data sets"),
    *("shuffle of records of its own size", "shuffle twice", "repeat and shuffle", "skip of shuffle", "enumerate"),
    *("zip of different rates", "batch across epochs", "padded_batch", "buckets", "pack", "choose_from"),
    *("unbatch of batches in any order", "sample_from with a schedule", "cache, shuffle and repeat"),
)
UNORDERED = ("unordered", "map, unordered", "interleave, unordered")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_files(tmp_path_factory.mktemp("resume"))


@pytest.fixture(autouse=True)
def threads_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let threads stand in for processes, which take half a second each to start."""
    monkeypatch.setattr(hosting_process, "Child", ThreadChild)


def resumes(name: str, folder: Path, workers: int) -> None:
    case = CASES[name]
    resumes_everywhere(
        case.make(folder).in_subprocess(workers),
        open_options={"seed": 7, **(case.options or {})},
        every=max(2, case.every),
        unordered=not case.ordered,
        twice=False,
    )


CASES_AND_WORKERS = [
    (name, workers) for number, name in enumerate(ORDERED) if CASES[name].ordered for workers in (2, (1, 3)[number % 2])
]


@pytest.mark.parametrize(("name", "workers"), CASES_AND_WORKERS)
def test_it_resumes_at_every_second_element(name: str, workers: int, folder: Path) -> None:
    resumes(name, folder, workers)


@pytest.mark.parametrize("name", UNORDERED)
def test_it_resumes_in_any_order(name: str, folder: Path) -> None:
    resumes(name, folder, 1)


@pytest.mark.parametrize(
    "dataset",
    [
        draws(9).shuffle(4).in_subprocess(2).repeat(2).batch(4),
        draws().in_subprocess().shuffle(6),
        draws().in_subprocess(3).shuffle(),
        Dataset.zip(draws().shuffle(5).in_subprocess(), numbers().in_subprocess(2)),
        draws(6).in_subprocess().cache().repeat(2),
        Dataset.sample_from([draws().in_subprocess(), draws(20)], [0.6, 0.4]),
        draws().shuffle(5).batch(3).in_subprocess(2).unbatch(),
        draws().shuffle(5).batch(3).in_subprocess().prefetch(2).to_device("cpu"),
    ],
    ids=["repeat", "shuffle", "shuffle()", "zip", "cache", "mix", "unbatch", "to_device"],
)
def test_what_follows_it_resumes_at_every_second_element(dataset: Dataset[Any]) -> None:
    resumes_everywhere(dataset, open_options={"seed": 7}, every=2, twice=False)


@pytest.mark.parametrize("chain", ["shuffled draws", "batches of a shuffle", "parse_example, batched"])
def test_a_state_of_any_number_of_workers_is_opened_with_any_other_and_without_it(chain: str, folder: Path) -> None:
    plain = {
        "shuffled draws": lambda: draws(20).shuffle(7),
        "batches of a shuffle": lambda: draws(23).shuffle(7).batch(4),
    }.get(chain, lambda: CASES[chain].make(folder))()
    variants = [plain, *(plain.in_subprocess(workers) for workers in (1, 2, 3))]
    with plain.open(seed=7) as loader:
        expected = list(loader)
    for number, saved_by in enumerate(variants):
        with saved_by.open(seed=7) as loader:
            assert len(list(islice(loader, 3))) == 3
            state = json.loads(json.dumps(loader.state_dict()))
        for opened_by in (*variants[:number], *variants[number + 1 :]):
            with opened_by.open(state=state) as loader:
                rest = list(loader)
            assert len(rest) == len(expected) - 3
            assert all(map(same, expected[3:], rest))


REPEATED: dict[str, Callable[[Path], Dataset[Any]]] = {
    "slices": lambda _: Dataset.from_tensor_slices(np.arange(9)),
    "slices of repeated slices": lambda _: Dataset.from_tensor_slices(np.arange(4)).repeat(2),
    "tensors": lambda _: Dataset.from_tensors(np.arange(3)).repeat(4),
    "permuted slices": lambda _: Dataset.from_tensor_slices(np.arange(9)).shuffle(seed=3),
    "draws of slices": lambda _: Dataset.from_tensor_slices(np.arange(9)).map(with_draw),
    "files of slices": lambda f: Dataset.from_tfrecord(
        Dataset.list_files(f"{f}/*.tfrecord").shuffle(9), cycle_length=2
    ),
}


@pytest.mark.parametrize("chain", REPEATED)
def test_a_state_of_any_pass_of_repeat_is_opened_with_and_without_processes(chain: str, folder: Path) -> None:
    source = REPEATED[chain](folder)
    variants = [source.repeat(2), source.prefetch(1).repeat(2)]
    for workers in (1, 3):
        variants += [source.in_subprocess(workers).repeat(2), source.repeat(2).in_subprocess(workers)]
    with variants[0].open(seed=7) as loader:
        expected = list(loader)
    stops = [len(expected) // 4, 3 * len(expected) // 4]
    for number, saved_by in enumerate(variants):
        with saved_by.open(seed=7) as loader:
            states = {}
            for stop, before in zip(stops, [0, *stops], strict=False):
                assert len(list(islice(loader, stop - before))) == stop - before
                states[stop] = json.loads(json.dumps(loader.state_dict()))
        for opened_by in (*variants[:number], *variants[number + 1 :]):
            for stop, state in states.items():
                with opened_by.open(state=state) as loader:
                    rest = list(loader)
                assert len(rest) == len(expected) - stop
                assert all(map(same, expected[stop:], rest))


def test_a_state_goes_from_variant_to_variant() -> None:
    source = Dataset.from_tensor_slices(np.arange(6)).repeat(2)
    plain = source.shuffle(5).repeat(2)
    variants = [
        source.in_subprocess().shuffle(5).repeat(2),
        plain,
        source.shuffle(5).in_subprocess(3).repeat(2),
        source.prefetch(2).shuffle(5).repeat(2),
        plain.in_subprocess(),
    ]
    with plain.open(seed=7) as loader:
        expected = list(loader)
    given, state = [], None
    for number in range(8):
        with variants[number % len(variants)].open(state=state, seed=7) as loader:
            given += list(islice(loader, 3))
            state = json.loads(json.dumps(loader.state_dict()))
    assert all(map(same, given, expected))
    assert len(given) == len(expected)


def test_a_state_can_be_taken_when_the_stream_has_ended_and_when_the_loader_was_closed() -> None:
    dataset = draws().shuffle(5).in_subprocess(2)
    with dataset.open(seed=7) as loader:
        elements = list(islice(loader, 6))
    state = loader.state_dict()  # asked for when no process is left
    with dataset.open(state=state) as loader:
        rest = list(loader)
        ended = loader.state_dict()
    with draws().shuffle(5).open(seed=7) as plain:
        assert all(map(same, plain, [*elements, *rest]))
    with dataset.open(state=ended) as loader:
        assert list(loader) == []
