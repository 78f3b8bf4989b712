"""``on_error`` of sources: damage is skipped, counted and logged, and the rest is as if it were alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from damaged_files import Case, cases
from leaks import leaves_nothing

from aiostream_data import Dataset
from aiostream_data.errors import CorruptRecordError, DataError
from aiostream_data.failing.dead_letter_log import read_entries
from aiostream_data.rows.provenance import Origin
from aiostream_data.testing.resume import resumes_everywhere

CASES = cases()
FEW = [
    "tfrecord, plain: several",
    "tfrecord, gzip: bytes missing",
    "tfrecord, plain: cut in a payload",
    "text, plain: the first and the last line",
    "fixed length, plain: bytes left over",
    "tfrecord, zstd: stream cut",
    "text, gzip: checked first",
]


def lost(log: Path) -> list[tuple[str, int, int | None]]:
    """Return what the log says was lost, as cases do."""
    found = [(Path(entry["url"]).name, entry["offset"], entry["nbytes"]) for entry in read_entries(log)]
    return sorted(found, key=str)


def skipped(loader: Any) -> int:
    """Return what sources skipped, those inside other stages included."""
    return sum(stage.skipped for stage in loader.stats().stages)


def drawn(row: Any, rng: np.random.Generator) -> tuple[Any, int]:
    """Return a row with a number that depends on the row's name."""
    return row, int(rng.integers(1000))


def source(case: Case, folder: Path, **options: Any) -> Dataset[Any]:
    return case.source(str(folder / "*"), **options)


@pytest.fixture
def folders(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Case, Path, Path]:
    case = CASES[request.param]
    return case, *case.write(tmp_path)


every_case = pytest.mark.parametrize("folders", CASES, indirect=True)
few_cases = pytest.mark.parametrize("folders", FEW, indirect=True)


@every_case
def test_without_on_error_damage_ends_the_stream(folders: tuple[Case, Path, Path]) -> None:
    case, damaged, _ = folders
    with leaves_nothing(), pytest.raises(CorruptRecordError):
        list(source(case, damaged))


@every_case
def test_damage_is_left_out_and_everything_else_comes_in_order(
    folders: tuple[Case, Path, Path], tmp_path: Path
) -> None:
    case, damaged, clean = folders
    log = tmp_path / "dead.jsonl"
    with leaves_nothing(), source(case, damaged, on_error="skip").open(dead_letters=log) as loader:
        assert list(loader) == list(source(case, clean))
        assert skipped(loader) == len(case.lost)
    assert lost(log) == case.lost


def by_names(case: Case, folder: Path, join: Callable[..., Dataset[Any]], **options: Any) -> Dataset[Any]:
    """Return a data set that reads each file by a source that a function makes."""
    names = Dataset.list_files(str(folder / "*"))
    return join(names, lambda name: case.source(name, **options))


PLACES: dict[str, Callable[..., Dataset[Any]]] = {
    "interleaved": lambda case, folder, **o: source(case, folder, cycle_length=3, block_length=2, **o),
    "shuffled shards": lambda case, folder, **o: source(case, folder, shuffle_shards=True, seed=3, **o),
    "flat_map": lambda case, folder, **o: by_names(case, folder, lambda names, make: names.flat_map(make), **o),
    "interleave": lambda case, folder, **o: by_names(
        case, folder, lambda names, make: names.interleave(make, cycle_length=2, block_length=3), **o
    ),
    "names": lambda case, folder, **o: case.source(Dataset.list_files(str(folder / "*")), cycle_length=2, **o),
    "shuffle": lambda case, folder, **o: source(case, folder, **o).shuffle(7, seed=1),
    "repeat": lambda case, folder, **o: source(case, folder, cycle_length=2, **o).repeat(2),
    "batch": lambda case, folder, **o: source(case, folder, **o).map(len).batch(4).map(lambda batch: batch.tolist()),
    "cache": lambda case, folder, **o: source(case, folder, **o).cache().repeat(3),
    "concatenate": lambda case, folder, **o: source(case, folder, **o).concatenate(source(case, folder, **o)),
}


@pytest.mark.parametrize("place", PLACES)
@few_cases
def test_damage_is_left_out_wherever_the_source_stands(
    folders: tuple[Case, Path, Path], place: str, tmp_path: Path
) -> None:
    case, damaged, clean = folders
    log = tmp_path / "dead.jsonl"
    dataset = PLACES[place](case, damaged, on_error="skip")
    with (
        leaves_nothing(),
        dataset.open(dead_letters=log, seed=5) as loader,
        PLACES[place](case, clean).open(seed=5) as twin,
    ):
        assert list(loader) == list(twin)
        times = {"repeat": 2, "concatenate": 2}.get(place, 1)
        assert skipped(loader) == times * len(case.lost)
    assert lost(log) == sorted(times * case.lost, key=str)


@few_cases
def test_damage_is_left_out_in_any_order(folders: tuple[Case, Path, Path]) -> None:
    case, damaged, clean = folders
    dataset = source(case, damaged, cycle_length=3, ordered=False, on_error="skip")
    with leaves_nothing(), dataset.open(deterministic=False) as loader:
        assert sorted(loader) == sorted(source(case, clean))
        assert skipped(loader) == len(case.lost)


@pytest.mark.parametrize("workers", [1, 2])
@few_cases
def test_damage_is_left_out_in_a_process_of_its_own(
    folders: tuple[Case, Path, Path], workers: int, tmp_path: Path
) -> None:
    case, damaged, clean = folders
    log = tmp_path / "dead.jsonl"
    dataset = source(case, damaged, on_error="skip").map(len).in_subprocess(workers)
    with leaves_nothing(), dataset.open(dead_letters=log) as loader:
        assert list(loader) == list(map(len, source(case, clean)))
        assert skipped(loader) == workers * len(case.lost)  # as its rows are counted
    assert lost(log) == case.lost


@few_cases
def test_ranks_share_the_rows_that_are_left(folders: tuple[Case, Path, Path], tmp_path: Path) -> None:
    case, damaged, clean = folders
    log = tmp_path / "dead.jsonl"
    wanted = list(source(case, clean))
    dataset = source(case, damaged, on_error="skip")
    for rank in range(2):
        with dataset.open(rank=rank, world_size=2, dead_letters=log) as loader:
            assert list(loader) == wanted[rank : len(wanted) // 2 * 2 : 2]
    assert lost(log) == case.lost
    found = []
    for rank in range(2):
        with dataset.open(rank=rank, world_size=2, policy="file", dead_letters=log) as loader:
            found += list(loader)
    assert sorted(found) == sorted(wanted)
    assert lost(log) == case.lost


@pytest.mark.parametrize("memory_limit", ["300KB", "1MB"])
@pytest.mark.parametrize("folders", [name for name in FEW if "zstd" not in name], indirect=True)
def test_what_is_left_and_its_names_depend_on_the_bytes_alone(
    folders: tuple[Case, Path, Path], memory_limit: str
) -> None:
    case, damaged, _ = folders
    dataset = source(case, damaged, cycle_length=2, on_error="skip").map(
        lambda row, rng: (row, int(rng.integers(1000)))
    )

    def told(**options: Any) -> tuple[list[Any], list[Any], str]:
        with dataset.open(seed=7, **options) as loader:
            rows, origins = [], []
            for row in loader:
                rows.append(row)
                origins += [(origin.url, origin.index, origin.epoch) for origin in loader.origins(row)]
            return rows, origins, loader.stream_hash

    wanted = told()
    assert told(memory_limit=memory_limit) == wanted
    assert told(debug=True) == wanted


@few_cases
def test_a_run_that_skips_damage_goes_on_at_every_element(folders: tuple[Case, Path, Path]) -> None:
    case, damaged, _ = folders
    resumes_everywhere(source(case, damaged, cycle_length=2, on_error="skip").map(drawn), every=3)
    resumes_everywhere(source(case, damaged, on_error="skip").shuffle(9).repeat(2).batch(4), every=5)
    inner = by_names(case, damaged, lambda names, make: names.interleave(make, cycle_length=2), on_error="skip")
    resumes_everywhere(inner.shuffle(5).map(drawn), every=7)


@few_cases
def test_what_is_skipped_is_in_the_log_once_wherever_a_run_is_taken_up(
    folders: tuple[Case, Path, Path], tmp_path: Path
) -> None:
    case, damaged, _ = folders
    dataset = source(case, damaged, cycle_length=2, on_error="skip")
    whole = list(dataset)
    for stop in range(0, len(whole) + 1, 9):
        log = tmp_path / f"{stop}.jsonl"
        with dataset.open(dead_letters=log) as loader:
            first = [row for _, row in zip(range(stop), loader, strict=False)]
            state = json.loads(json.dumps(loader.state_dict()))
        with dataset.open(state, dead_letters=log) as loader:
            assert first + list(loader) == whole
        assert lost(log) == case.lost


@few_cases
def test_rows_behind_damage_are_fetched_by_their_origins(folders: tuple[Case, Path, Path]) -> None:
    case, damaged, _ = folders
    dataset = source(case, damaged, on_error="skip")
    with dataset.open() as loader:
        found = [(row, loader.origins(row)[0]) for row in loader]
    for row, origin in found[:: len(found) // 7]:
        assert dataset.fetch(origin) == row


def test_a_row_that_was_lost_cannot_be_fetched(tmp_path: Path) -> None:
    case = CASES["tfrecord, plain: a payload"]
    damaged, _ = case.write(tmp_path)
    log = tmp_path / "dead.jsonl"
    with source(case, damaged, on_error="skip").open(dead_letters=log) as loader:
        list(loader)
    (entry,) = read_entries(log)
    origin = Origin.from_dict({field.name: entry[field.name] for field in fields(Origin)})
    with pytest.raises(DataError, match="payload checksum mismatch"):
        source(case, damaged, on_error="skip").fetch(origin)
