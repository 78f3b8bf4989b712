"""Functions that open one file with row groups: small files in groups have the outcome that each has alone."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from groups_or_alone import alone, check_both_ways, grouped
from many_shards import DAMAGE

from aiostream_data import Dataset, ObjectNotFoundError
from aiostream_data.formats.table_types import TypesOfFiles
from aiostream_data.testing.comparing import same
from aiostream_data.testing.resume import resumes_everywhere

FILES = 30
BAD = 13
"""Number of the bad file, in the middle of a group."""


def write_parquet(path: Path, number: int) -> None:
    rows = number % 4
    table = pyarrow.table({"x": np.arange(rows) + 10 * number, "name": [f"{number}:{row}" for row in range(rows)]})
    pyarrow.parquet.write_table(table, path)


def write_npy(path: Path, number: int) -> None:
    np.save(path, np.arange(2 * (number % 4)).reshape(-1, 2) + 10 * number)


WRITE: dict[str, Callable[[Path, int], None]] = {"parquet": write_parquet, "npy": write_npy}


pytestmark = [pytest.mark.chooses_groups, pytest.mark.leaves_nothing]


def written(folder: Path, kind: str, files: int = FILES) -> list[Path]:
    folder.mkdir()
    paths = [folder / f"{number:02}.{kind}" for number in range(files)]
    for number, path in enumerate(paths):
        WRITE[kind](path, number)
    return paths


def opened(
    paths: list[Path], kind: str, plan: Callable[[Any], Any] = lambda rows: rows, **merging: Any
) -> Dataset[Any]:
    """Return the rows of a dataset per file."""
    source = getattr(Dataset, f"from_{kind}")
    files = Dataset.from_tensor_slices([str(path) for path in paths])
    return files.interleave(lambda url: plan(source(url)), **merging)


@pytest.mark.parametrize("kind", WRITE)
def test_the_rows_are_those_of_a_list_of_the_files(tmp_path: Path, kind: str) -> None:
    paths = written(tmp_path / "files", kind)
    with grouped() as sizes:
        found = list(opened(paths, kind, cycle_length=1))
    assert same(found, list(getattr(Dataset, f"from_{kind}")([str(path) for path in paths])))
    assert max(sizes) > 1


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("kind", WRITE)
def test_a_bad_file_has_the_same_outcome_as_alone(tmp_path: Path, kind: str, damage: Callable[[Path], None]) -> None:
    paths = written(tmp_path / "files", kind)
    damage(paths[BAD])
    for cycle_length in (1, 3):
        check_both_ways(opened(paths, kind, cycle_length=cycle_length), tmp_path / "log.jsonl")


@pytest.mark.parametrize("kind", WRITE)
def test_operators_run_in_groups_too(tmp_path: Path, kind: str) -> None:
    paths = written(tmp_path / "files", kind)
    plans: list[Callable[[Any], Any]] = [
        lambda rows: rows.map(str),
        lambda rows: rows.skip(1),
        lambda rows: rows.filter(lambda row: len(str(row)) % 2 == 1).take(1),
    ]
    for plan in plans:
        check_both_ways(opened(paths, kind, plan, cycle_length=2), tmp_path / "log.jsonl")
        with grouped() as sizes:
            resumes_everywhere(opened(paths[:7], kind, plan, cycle_length=2))
        assert max(sizes) > 1


def test_files_with_other_columns_and_options_keep_their_own(tmp_path: Path) -> None:
    paths = written(tmp_path / "files", "parquet")

    def read(url: str) -> Dataset[Any]:
        number = int(Path(url).stem)
        return Dataset.from_parquet(url, columns=["x"] if number % 2 else ["name", "x"], filters=[("x", "!=", 21)])

    dataset = Dataset.from_tensor_slices([str(path) for path in paths]).interleave(read, cycle_length=2)
    with alone():
        expected = list(dataset)
    with grouped():
        assert same(list(dataset), expected)
    assert {len(row) for row in expected} == {1, 2}
    assert 21 not in [row["x"] for row in expected]


def test_a_missing_file_is_named_with_similar_ones_or_skipped(tmp_path: Path) -> None:
    paths = written(tmp_path / "files", "parquet", 3)
    missing = Dataset.from_list([str(paths[1].with_name("01.parqet")), str(paths[2])])
    told = r"01\.parqet: no such object; the folder contains '01\.parquet'"
    with pytest.raises(ObjectNotFoundError, match=told) as raised:
        list(missing.flat_map(Dataset.from_parquet))
    assert "to skip this: pass on_error= to the dataset" in raised.value.__notes__[-1]
    assert len(list(missing.flat_map(lambda url: Dataset.from_parquet(url, on_error="skip")))) == 2


@pytest.mark.parametrize("groups", [alone, grouped])
def test_a_loader_forgets_the_types_of_data_sets_that_have_ended(tmp_path: Path, groups: Callable[[], Any]) -> None:
    urls = [str(path) for path in written(tmp_path / "files", "npy", 8)]
    rows = Dataset.from_tensor_slices(urls).repeat(10).interleave(lambda url: Dataset.from_npy(url))
    with groups(), rows.open() as loader:
        assert len(list(loader)) == 10 * 12
        gc.collect()
        assert sum(isinstance(each, TypesOfFiles) for each in gc.get_objects()) < 20


def test_patterns_are_listed_as_before(tmp_path: Path) -> None:
    written(tmp_path / "files", "npy", 12)
    dataset = Dataset.from_list([f"{tmp_path}/files/0*.npy", f"{tmp_path}/files/1*.npy"]).flat_map(Dataset.from_npy)
    assert same(list(dataset), list(Dataset.from_npy(f"{tmp_path}/files/*.npy")))


def test_rows_have_the_origins_of_files_that_are_read_alone(tmp_path: Path) -> None:
    dataset = opened(written(tmp_path / "files", "npy", 9), "npy", lambda rows: rows.map(str), cycle_length=2)
    found = []
    for way in (grouped, alone):
        with way(), dataset.open(seed=1) as loader:
            found.append([[origin.as_dict() for origin in loader.origins(row)] for row in loader])
    assert found[0] == found[1]
    assert found[0][0][0]["url"].endswith("01.npy")
