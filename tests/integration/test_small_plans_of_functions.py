"""Functions that return operators behind a small file: files in groups have the outcome that each has alone."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from groups_or_alone import alone, check_both_ways, grouped, outcome
from leaks import leaves_nothing
from many_shards import CHANGES, CONTENT, DAMAGE, source, write_shards

from aiostream_data import Dataset
from aiostream_data.testing.comparing import same
from aiostream_data.testing.resume import resumes_everywhere

FILES = 40
BAD = 13
"""Number of the bad file, in the middle of a group."""

Plan = Callable[[Dataset[Any]], Dataset[Any]]
Way = Callable[[], AbstractContextManager[Any]]
WAYS: list[tuple[Way, Way]] = [(grouped, alone), (alone, grouped)]


def sized(row: Any) -> tuple[int, Any]:
    return len(str(row)), row


def number_of(row: Any) -> int:
    """Return the number of a row in its file, which its text names."""
    return int(str(row).split(" ")[2][:2])


def is_even(row: Any) -> bool:
    return number_of(row) % 2 == 0


def is_odd_pair(size: int, row: Any) -> bool:
    return number_of(row) % 2 == 1


def with_state(row: Any, state: dict[str, Any]) -> Any:
    return row


def with_draw(row: Any, rng: np.random.Generator) -> tuple[Any, float]:
    return row, rng.random()


PLANS: dict[str, Plan] = {
    "map": lambda rows: rows.map(sized),
    "filter": lambda rows: rows.filter(is_even),
    "map, filter": lambda rows: rows.map(sized).filter(is_odd_pair),
    "filter, map": lambda rows: rows.filter(is_even).map(sized),
    "filter, skip": lambda rows: rows.filter(is_even).skip(1),
    "skip": lambda rows: rows.skip(1),
    "skip, map": lambda rows: rows.skip(1).map(sized),
    "take": lambda rows: rows.take(2),
    "skip, take": lambda rows: rows.skip(1).take(2),
    "take, skip": lambda rows: rows.take(3).skip(2),
    "skip, filter, take": lambda rows: rows.skip(1).filter(is_even).take(1),
    "map of each file": lambda rows: rows.map(lambda row: (id(rows) > 0, row)),
    "filter of each file": lambda rows: rows.filter(lambda row: number_of(row) != 1).map(sized),
    "draws": lambda rows: rows.map(with_draw, seed=5).filter(lambda row, draw: draw < 0.7),
    "none": lambda rows: rows.filter(lambda row: False),
    "take none": lambda rows: rows.take(0),
}
ROWWISE_SOURCES = ["from_tfrecord", "from_text", "from_fixed_length", "from_csv"]
"""Sources whose rows contain their row number."""


pytestmark = [pytest.mark.chooses_groups, pytest.mark.leaves_nothing]


def opened(paths: list[Path], plan: Plan, name: str = "from_text", **merging: Any) -> Dataset[Any]:
    """Return the rows of a plan per file."""
    files = Dataset.from_tensor_slices([str(path) for path in paths])
    return files.interleave(lambda url: plan(source(name, url, "")), **merging)


@pytest.mark.parametrize("plan", PLANS)
def test_the_rows_are_those_of_files_that_are_read_alone(tmp_path: Path, plan: str) -> None:
    for number, name in enumerate(ROWWISE_SOURCES):
        folder = tmp_path / name
        folder.mkdir()
        paths = write_shards(folder, name, "", FILES)
        paths[5].write_bytes(b"")
        dataset = opened(paths, PLANS[plan], name, cycle_length=1 + number * 3, block_length=1 + number % 2)
        check_both_ways(dataset, tmp_path / "log.jsonl")


@pytest.mark.parametrize("damage", [*DAMAGE, *CHANGES])
def test_a_bad_file_has_the_same_outcome_as_alone(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    number = [*DAMAGE, *CHANGES].index(damage)
    name = list(CONTENT)[number % len(CONTENT)]
    folder = tmp_path / "files"
    folder.mkdir()
    paths = write_shards(folder, name, "", FILES)
    damage(paths[BAD])
    plans: list[Plan] = [lambda rows: rows.map(sized), lambda rows: rows.skip(1), lambda rows: rows.take(1)]
    for plan in plans:
        check_both_ways(opened(paths, plan, name, cycle_length=1 + number % 5), tmp_path / "log.jsonl")


@pytest.mark.parametrize("failing", [0, 1, 2, 5, 13, 39])
def test_a_failing_operator_fails_behind_the_rows_before(tmp_path: Path, failing: int) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    paths = write_shards(folder, "from_text", "", FILES)
    last = failing % 4 // 2 * 2  # among the last rows of the file

    def checked(row: str) -> str:
        if row.startswith(f"shard {failing:04} {last:02}"):
            raise ValueError("unknown row")
        return row

    for plan in (lambda rows: rows.map(checked), lambda rows: rows.filter(is_even).map(checked).map(sized)):
        found = check_both_ways(opened(paths, plan, cycle_length=2), tmp_path / "log.jsonl")
        assert found.error is not None
        assert found.error[0] is ValueError


def test_rows_behind_a_take_do_not_fail(tmp_path: Path) -> None:
    paths = write_shards(tmp_path, "from_text", "", FILES)

    def checked(row: str) -> str:
        if number_of(row) > 0:
            raise ValueError("this row is not needed")
        return row

    with grouped():
        assert len(list(opened(paths, lambda rows: rows.take(1).map(checked)))) == FILES


def test_results_that_are_no_elements_fail_as_alone(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    paths = write_shards(folder, "from_text", "", FILES)

    def strange(row: str) -> Any:
        return (part for part in row) if row.startswith(f"shard {BAD:04}") else row

    found = check_both_ways(opened(paths, lambda rows: rows.map(strange)), tmp_path / "log.jsonl")
    assert found.error is not None


@pytest.mark.parametrize(
    "operator",
    [
        lambda rows: rows.map(sized, on_error="skip"),
        lambda rows: rows.map(sized, concurrency=1),
        lambda rows: rows.map(sized, executor="inline"),
        lambda rows: rows.map(sized, timeout=60),
        lambda rows: rows.map(sized, ordered=False),
        lambda rows: rows.map(with_state, init=dict),
        lambda rows: rows.map(lambda batch: batch, batched=True),
        lambda rows: rows.batch(2),
        lambda rows: rows.take(-1),
        lambda rows: rows.skip(-1),
        lambda rows: rows.repeat(2),
        lambda rows: rows.shuffle(3, seed=1),
        lambda rows: rows.enumerate(),
    ],
)
def test_other_operators_have_runs_of_their_own(tmp_path: Path, operator: Plan) -> None:
    paths = write_shards(tmp_path, "from_text", "", 12)
    dataset = opened(paths, operator, cycle_length=2)
    with grouped() as sizes:
        found = list(dataset)
    with alone():
        expected = list(dataset)
    assert sorted(map(str, found)) == sorted(map(str, expected))
    assert set(sizes) <= {1}  # the shards of each dataset


class Strange:
    """Result that cannot be looked at."""

    def __len__(self) -> int:
        raise MemoryError("strange")

    __array__ = __len__

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise MemoryError("strange")


def test_results_that_cannot_be_looked_at_have_the_same_outcome_as_alone(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    paths = write_shards(folder, "from_text", "", FILES)

    def strange(row: str) -> Any:
        return Strange() if row.startswith(f"shard {BAD:04} 01") else row

    plan: Plan = lambda rows: rows.map(strange).map(lambda row: 0)  # noqa: E731
    check_both_ways(opened(paths, plan, cycle_length=1), tmp_path / "log.jsonl")


def test_different_plans_are_delivered_in_order(tmp_path: Path) -> None:
    paths = write_shards(tmp_path, "from_text", "", FILES)
    plans: list[Plan] = [PLANS["map"], PLANS["skip"], lambda rows: rows, PLANS["map, filter"], PLANS["take"]]

    def read(url: str) -> Any:
        number = int(Path(url).stem)
        return [url] if number % 11 == 10 else plans[number // 6 % 5](Dataset.from_text(url))

    dataset = Dataset.from_tensor_slices([str(path) for path in paths]).interleave(read, cycle_length=3)
    with alone():
        expected = list(dataset)
    with grouped():
        assert list(dataset) == expected


def test_results_of_different_types_stay_as_they_are(tmp_path: Path) -> None:
    paths = write_shards(tmp_path, "from_text", "", FILES)

    def typed(row: str) -> Any:
        number = int(row.split(" ")[1])
        results: list[Any] = [number, float(number), str(number), {"a": number}, np.arange(number), None, [number]]
        return results[number % 7]

    dataset = opened(paths, lambda rows: rows.map(typed))
    with alone():
        expected = [(type(row), str(row)) for row in dataset]
    with grouped() as sizes:
        assert [(type(row), str(row)) for row in dataset] == expected
    assert max(sizes) > 1


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("merging", [{"cycle_length": 1}, {"cycle_length": 3, "block_length": 2}])
def test_a_run_resumes_after_every_row_of_a_group(tmp_path: Path, plan: str, merging: dict[str, Any]) -> None:
    paths = write_shards(tmp_path, "from_text", "", 9)
    with grouped() as sizes:
        resumes_everywhere(opened(paths, PLANS[plan], **merging))
    assert max(sizes) > 1


@pytest.mark.parametrize("plan", [plan for plan in PLANS if "none" not in plan])
def test_states_of_groups_and_of_files_alone_resume_each_other(tmp_path: Path, plan: str) -> None:
    paths = write_shards(tmp_path, "from_tfrecord", "", 9)
    dataset = opened(paths, PLANS[plan], "from_tfrecord", cycle_length=2, block_length=2)
    with dataset.open(seed=1) as loader:
        rows = list(loader)
    for given, (before, after) in product(range(len(rows)), WAYS):
        with before(), dataset.open(seed=1) as loader:
            for _, _ in zip(range(given), loader, strict=False):
                pass
            state = loader.state_dict()
        with after(), dataset.open(state=state) as loader:
            assert same(list(loader), rows[given:])


def test_shuffled_rows_of_groups_are_recalled_from_a_state(tmp_path: Path) -> None:
    paths = write_shards(tmp_path, "from_tfrecord", "", 12)
    with grouped():
        resumes_everywhere(opened(paths, PLANS["skip, map"], "from_tfrecord", cycle_length=3).shuffle(7, seed=1))


def test_rows_have_the_origins_of_files_that_are_read_alone(tmp_path: Path) -> None:
    paths = write_shards(tmp_path, "from_tfrecord", "", 9)
    dataset = opened(paths, PLANS["filter, map"], "from_tfrecord", cycle_length=2)
    found = []
    for way in (grouped, alone):
        with way(), dataset.open(seed=1) as loader:
            found.append([[origin.as_dict() for origin in loader.origins(row)] for row in loader])
    assert found[0] == found[1]


@pytest.mark.parametrize("plan", ["skip, map", "filter, map", "filter, skip", "skip, take"])
def test_the_statistics_count_the_rows_of_each_operator(tmp_path: Path, plan: str) -> None:
    paths = write_shards(tmp_path, "from_text", "", FILES)
    dataset = opened(paths, PLANS[plan])
    found = []
    for way in (grouped, alone):
        with way(), dataset.open() as loader:
            list(loader)
            stages = loader.stats().stages
        counts = [(stage.name, stage.rows_in, stage.rows, stage.dropped) for stage in stages if "/" in stage.name]
        found.append(sorted(counts))
    assert len(found[0]) == 3
    assert found[0] == found[1]


@pytest.mark.parametrize("rows", [0, 1, 7])
def test_leaving_inside_a_group_leaves_nothing_behind(tmp_path: Path, rows: int) -> None:
    paths = write_shards(tmp_path, "from_tfrecord", "", FILES)
    with grouped(), leaves_nothing(), opened(paths, PLANS["map"], "from_tfrecord").open() as loader:
        for _, _ in zip(range(rows), loader, strict=False):
            pass


def test_a_debugged_run_calls_functions_for_one_row_at_a_time(tmp_path: Path) -> None:
    paths = write_shards(tmp_path, "from_text", "", 12)
    calls = 0

    def noted(row: str) -> str:
        nonlocal calls
        calls += 1
        return row

    with opened(paths, lambda rows: rows.map(noted), cycle_length=1).open(debug=True) as loader:
        for number, _ in enumerate(loader, 1):
            assert calls <= number + 2
    assert outcome(opened(paths, PLANS["map"]), tmp_path / "log.jsonl", debug=True).error is None
