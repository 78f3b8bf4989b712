"""``shuffle(spill=)``: the same elements, order and states as without, within a limit that the rows do not fit into."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import spill_functions as functions
from leaks import leaves_nothing

from aiostream_data import Dataset, TFRecordWriter
from aiostream_data.errors import MemoryBudgetError, PlanError, SpillError
from aiostream_data.metrics.counters import ON_DISK, PEAK_ON_DISK, StageCounters
from aiostream_data.testing.comparing import same

ROWS, BUFFER = 3_000, 1_200
LIMIT = 512 << 10
SEED = 5

Plan = Callable[[bool], Dataset[Any]]


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("spill")
    paths = [str(folder / f"{number}.tfrecord") for number in range(4)]
    for number, path in enumerate(paths):
        with TFRecordWriter(path) as writer:
            for row in range(number, ROWS, len(paths)):
                writer.write(functions.record(row))
    return paths


def numbers(rows: int = ROWS) -> Dataset[int]:
    return Dataset.range(rows)


PLANS: dict[str, Plan] = {
    "records": lambda spill: numbers().map(functions.record).shuffle(BUFFER, spill=spill),
    "columns": lambda spill: numbers().map(functions.row).shuffle(BUFFER, spill=spill).batch(64),
    "ragged": lambda spill: numbers().map(functions.ragged).shuffle(BUFFER, spill=spill),
    "odd": lambda spill: numbers().map(functions.odd).shuffle(BUFFER, spill=spill),
    "images": lambda spill: numbers().map(functions.image).shuffle(BUFFER, spill=spill),
    "batches": lambda spill: numbers().map(functions.row).batch(3).shuffle(400, spill=spill).unbatch(),
    "draws": lambda spill: numbers().map(functions.record).shuffle(BUFFER, spill=spill).map(functions.drawn),
    "without a size": lambda spill: numbers().map(functions.record).skip(0).shuffle(spill=spill),
    "twice": lambda spill: (
        numbers(1_500).map(functions.record).shuffle(600, spill=spill).batch(2).unbatch().shuffle(600, spill=spill)
    ),
    "of one process": lambda spill: numbers().map(functions.record).shuffle(BUFFER, spill=spill).in_subprocess(),
    "repeated": lambda spill: numbers(1_500).map(functions.record).shuffle(800, spill=spill).repeat(2),
    "kept order": lambda spill: (
        numbers(1_500).map(functions.record).shuffle(800, reshuffle_each_iteration=False, spill=spill).repeat(2)
    ),
}


def opened(dataset: Dataset[Any], spill: bool, **options: Any) -> Any:
    return dataset.open(seed=SEED, memory_limit=LIMIT if spill else 1 << 28, **options)


def alone(dataset: Dataset[Any], spill: bool, state: Any = None) -> Any:
    return opened(dataset, spill, state=state, rank=0, world_size=1)


@cache
def expected(name: str) -> tuple[list[Any], str]:
    """Return the elements of a plan, as a shuffle in memory gives them, and their hash; nobody may change them."""
    with alone(PLANS[name](False), False) as loader:
        elements = list(loader)
        assert disk_peak(loader) == 0
        return elements, loader.stream_hash


@cache
def saved(name: str, spill: bool, taken: int) -> str:
    """Return the state after so many elements."""
    with alone(PLANS[name](spill), spill) as loader:
        reads(loader, taken)
        return json.dumps(loader.state_dict())


def disk_peak(loader: Any) -> float:
    stages: Sequence[StageCounters] = loader.stats().stages
    return sum(stage.extra.get(PEAK_ON_DISK, 0.0) for stage in stages)


@pytest.mark.parametrize("name", PLANS)
def test_the_elements_are_those_of_a_shuffle_in_memory(name: str) -> None:
    wanted, digest = expected(name)
    with leaves_nothing(), alone(PLANS[name](True), True) as loader:
        found = list(loader)
        assert loader.stream_hash == digest
        stats = loader.stats()
        assert disk_peak(loader) > LIMIT
        assert all(stage.extra.get(ON_DISK, 0.0) == 0.0 for stage in stats.stages)  # given back at the end
        assert "shuffle on disk: 0.0 MiB, at most" in str(loader.report())
        if name != "of one process":  # what this process takes in from the other stands in no proportion to its limit
            assert stats.memory.peak <= 2 * LIMIT
            assert stats.memory.holders["shuffle"][1] <= LIMIT
    assert same(wanted, found)


def reads(loader: Any, count: int) -> list[Any]:
    elements = iter(loader)
    return [next(elements) for _ in range(count)]


@pytest.mark.parametrize(
    ("saved_by", "resumed_by"), [(True, True), (True, False), (False, True)], ids=["on", "off again", "on later"]
)
@pytest.mark.parametrize("name", ["records", "odd", "batches", "without a size", "repeated"])
def test_a_state_resumes_with_and_without(name: str, saved_by: bool, resumed_by: bool) -> None:
    wanted, _ = expected(name)
    for taken in (701, len(wanted) - 321):  # in the middle, and among the last that are left
        state = json.loads(saved(name, saved_by, taken))
        with leaves_nothing(), alone(PLANS[name](resumed_by), resumed_by, state) as loader:
            assert same(list(loader), wanted[taken:])
            if resumed_by:
                assert loader.stats().memory.peak <= 3 * LIMIT


def test_states_and_fingerprints_are_equal() -> None:
    states = []
    for spill in (False, True):
        with alone(PLANS["records"](spill), spill) as loader:
            reads(loader, 700)
            states.append(loader.state_dict())
    assert states[0] == states[1]


def test_ranks_share_the_rows_alike(shards: list[str]) -> None:
    def rows(spill: bool, rank: int, world: int, state: Any = None) -> list[Any]:
        dataset = Dataset.from_tfrecord(shards, cycle_length=2).shuffle(BUFFER, spill=spill).batch(50)
        with opened(dataset, spill, rank=rank, world_size=world, state=state) as loader:
            return list(loader)

    for rank in range(3):
        assert same(rows(True, rank, 3), rows(False, rank, 3))


def test_a_state_of_three_ranks_is_taken_up_by_two(shards: list[str]) -> None:
    def dataset(spill: bool) -> Dataset[Any]:
        return Dataset.from_tfrecord(shards, cycle_length=2).shuffle(BUFFER, spill=spill).batch(20)

    with opened(dataset(False), False, rank=1, world_size=3) as loader:
        reads(loader, 40)
        state = loader.state_dict()
    for rank in range(2):
        found = []
        for spill in (False, True):
            with opened(dataset(spill), spill, rank=rank, world_size=2, state=state) as loader:
                found.append(list(loader))
        assert len(found[0]) > 10
        assert same(*found)


def test_a_buffer_that_fits_touches_no_disk() -> None:
    with alone(PLANS["records"](True), False) as loader:
        assert len(list(loader)) == ROWS
        assert disk_peak(loader) == 0


def test_what_would_not_fit_without_is_an_error() -> None:
    with alone(PLANS["records"](False), True) as loader, pytest.raises(MemoryBudgetError, match="rows already take"):
        list(loader)


@pytest.mark.parametrize("source", ["files", "functions"])
def test_r13_a_buffer_of_four_times_the_limit_stays_within_it(tmp_path: Path, source: str) -> None:
    limit, row_nbytes = 8 << 20, 20_000
    rows = 3 * (4 * limit // row_nbytes)
    dataset: Dataset[Any] = numbers(rows).map(functions.long_record)
    if source == "files":
        paths = [str(tmp_path / f"{number}.tfrecord") for number in range(2)]
        for number, path in enumerate(paths):
            with TFRecordWriter(path) as writer:
                for row in range(number, rows, 2):
                    writer.write(functions.long_record(row))
        dataset = Dataset.from_tfrecord(paths, cycle_length=2)
    with dataset.shuffle(rows // 3, seed=1, spill=True).batch(16).open(memory_limit=limit) as loader:
        found = [row[:8] for batch in loader for row in batch]
        stats = loader.stats()
        assert disk_peak(loader) > 4 * limit
    assert sorted(found) == sorted(functions.long_record(row)[:8] for row in range(rows))
    assert stats.memory.peak <= 1.1 * limit  # what is charged after it was made may exceed it on a busy machine
    assert stats.memory.holders["shuffle"][1] <= limit // 4


def test_elements_without_bytes_stay_within_the_limit_or_are_an_error() -> None:
    dataset = numbers().map(functions.opaque).shuffle(BUFFER, seed=1, spill=True)
    with alone(dataset, True) as loader, pytest.raises(MemoryBudgetError, match="shuffle"):
        list(loader)
    with alone(dataset, False) as loader:
        assert sorted(element.number for element in loader) == list(range(ROWS))


def test_the_file_is_bounded_on_a_stream_of_ten_buffers() -> None:
    rows = 10 * BUFFER
    dataset = numbers(rows).map(functions.record).shuffle(BUFFER, spill=True)
    with alone(dataset, True) as loader:
        assert sum(1 for _ in loader) == rows
        assert disk_peak(loader) < 2.5 * BUFFER * functions.ROW_NBYTES


@pytest.mark.parametrize("spill", [3, 0, None, "", b"/tmp", ["/tmp"]])
def test_what_is_no_folder_is_refused_where_it_is_written(spill: Any) -> None:
    with pytest.raises(PlanError, match="spill must be True, False or the path of a folder"):
        numbers().shuffle(10, spill=spill)


@pytest.mark.parametrize("place", ["here", "of a process"])
def test_a_missing_folder_is_refused_by_open(tmp_path: Path, place: str) -> None:
    dataset = numbers().shuffle(10, spill=tmp_path / "none")
    dataset = dataset if place == "here" else dataset.in_subprocess()
    with leaves_nothing(), pytest.raises(SpillError, match=r"spill folder .*none .*No such file") as caught:
        dataset.open()
    assert caught.value.folder == str(tmp_path / "none")


def test_a_file_instead_of_a_folder_is_refused_by_open(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with leaves_nothing(), pytest.raises(SpillError, match="Not a directory"):
        numbers().shuffle(10, spill=tmp_path / "file").open()


def test_a_folder_is_where_the_file_is_and_has_no_name(tmp_path: Path) -> None:
    dataset = numbers().map(functions.record).shuffle(BUFFER, spill=tmp_path)
    with leaves_nothing(folders=[tmp_path]), alone(dataset, True) as loader:
        reads(loader, 100)
        assert str(tmp_path) in " ".join(_open_files())
        assert os.listdir(tmp_path) == []


def _open_files() -> Iterator[str]:
    for number in os.listdir("/proc/self/fd"):
        try:
            yield os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue


def test_where_files_need_a_name_it_is_taken_away_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    really_open = os.open

    def refuse(path: Any, flags: int, *args: Any, **options: Any) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")
        return really_open(path, flags, *args, **options)

    monkeypatch.setattr(os, "open", refuse)
    dataset = numbers().map(functions.record).shuffle(BUFFER, spill=tmp_path)
    with leaves_nothing(folders=[tmp_path]), alone(dataset, True) as loader:
        reads(loader, 100)
        assert os.listdir(tmp_path) == []
        assert len(list(loader)) == ROWS - 100


def test_explain_says_where_rows_may_wait(tmp_path: Path) -> None:
    told = numbers().shuffle(10, seed=1, spill=tmp_path).explain()
    assert f"shuffle(10, seed=1, spill={str(tmp_path)!r})" in told
    assert f"rows are written to a file in {tmp_path}" in told
    assert "written to a file" not in numbers().shuffle(10).explain()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_full_or_broken_disk_is_an_error_that_says_where(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    really_write, left = os.pwritev, [20]

    def fill_up(*args: Any) -> int:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(number, os.strerror(number))
        return really_write(*args)

    monkeypatch.setattr(os, "pwritev", fill_up)
    with (
        leaves_nothing(),
        alone(PLANS["records"](True), True) as loader,
        pytest.raises(SpillError, match=os.strerror(number)) as caught,
    ):
        list(loader)
    assert caught.value.nbytes > 0
    assert isinstance(caught.value.__cause__, OSError)
    assert "free space in the folder, pass another folder as spill=, or use a smaller buffer_size" in str(caught.value)
    assert any(note.startswith("stage: shuffle") for note in caught.value.__notes__)


def test_a_limit_on_the_size_of_files_is_an_error_that_says_so() -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with leaves_nothing(), alone(PLANS["records"](True), True) as loader:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
        try:
            with pytest.raises(SpillError, match="File too large"):
                list(loader)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_writes_that_take_a_part_only_are_gone_on_with(monkeypatch: pytest.MonkeyPatch) -> None:
    really_write = os.pwritev

    def write_some(file: int, parts: list[memoryview], offset: int) -> int:
        return really_write(file, [parts[0][: 1 + len(parts[0]) // 2]], offset)

    monkeypatch.setattr(os, "pwritev", write_some)
    with alone(PLANS["records"](True), True) as loader:
        found = list(loader)
    monkeypatch.undo()
    with alone(PLANS["records"](False), False) as loader:
        assert same(found, list(loader))


@pytest.mark.parametrize("damage", ["zeros", "cut off"])
def test_a_row_that_comes_back_damaged_is_an_error_and_never_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    really_write, files = os.pwritev, set()

    def write(file: int, parts: list[memoryview], offset: int) -> int:
        files.add(file)
        return really_write(file, parts, offset)

    monkeypatch.setattr(os, "pwritev", write)
    known = {functions.record(number) for number in range(ROWS)}
    with leaves_nothing(), alone(numbers().map(functions.record).shuffle(BUFFER, spill=tmp_path), True) as loader:
        found = reads(loader, 50)
        (file,) = files
        if damage == "zeros":
            os.pwrite(file, bytes(200_000), 500_000)
        else:
            os.ftruncate(file, 500_000)
        with pytest.raises(SpillError, match=r"the checksums|ends before|rows back"):
            found.extend(loader)
    assert set(found) <= known


KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
import spill_functions as functions
from aiostream_data import Dataset

dataset = Dataset.range(100_000).map(functions.record).shuffle(2_000, spill=sys.argv[2])
if sys.argv[3] == "hosted":
    dataset = dataset.in_subprocess()
with dataset.open(memory_limit=1 << 20) as loader:
    for number, _ in enumerate(loader):
        if number == 500:
            os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("where", ["here", "hosted"])
def test_a_killed_process_leaves_no_file(tmp_path: Path, where: str) -> None:
    command = [sys.executable, "-c", KILLED, str(Path(__file__).parent), str(tmp_path), where]
    done = subprocess.run(command, timeout=60, check=False, capture_output=True)
    assert done.returncode == -9, done.stderr
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("taken", [0, 1_000, ROWS - 10])
def test_leaving_at_any_moment_leaves_nothing(tmp_path: Path, taken: int) -> None:
    dataset = numbers().map(functions.record).shuffle(BUFFER, spill=tmp_path).batch(1)
    with leaves_nothing(folders=[tmp_path]), alone(dataset, True) as loader:
        reads(loader, taken)
    with leaves_nothing(folders=[tmp_path]):
        loader = alone(dataset, True)
        reads(loader, taken)
        state = loader.state_dict()
        loader.close()
        alone(dataset, True, state).close()


def test_an_error_while_rows_are_got_back_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with alone(PLANS["records"](True), True) as loader:
        reads(loader, 100)
        state = loader.state_dict()

    def refuse(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwritev", refuse)
    again = alone(PLANS["records"](True), True, state)
    with leaves_nothing(), again as loader, pytest.raises(SpillError, match="No space left"):
        list(loader)
