"""A dead-letter log holds every record once, whoever writes to it; one that is damaged or another's is refused."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import policy_functions as fn
import pytest
from leaks import leaves_nothing

from aiostream_data import Dataset, Quarantine, Skip
from aiostream_data.errors import DeadLetterError, PlanError, StateMismatchError
from aiostream_data.failing.dead_letter_log import DeadLetterLog, read_entries

FAILING = Dataset.range(1000).map(fn.fails_on_every_hundredth)
MENDED = Dataset.range(1000).map(lambda number: number)

RANK = """
import sys
sys.path.insert(0, {folder!r})
import policy_functions as fn
from aiostream_data import Dataset
data = Dataset.range(20_000).map(fn.fails_on_every_hundredth, on_error="skip").batch(10)
with data.open(rank=int(sys.argv[1]), world_size=3, seed=0, dead_letters={log!r}) as loader:
    list(loader)
"""


def indices(log: Path) -> list[int]:
    return [entry["index"] for entry in read_entries(log)]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "dead.jsonl"
    with FAILING.open(on_error="skip", dead_letters=path, seed=1) as loader:
        list(loader)
    return path


def test_ranks_that_write_to_one_log_leave_every_record_there_once(tmp_path: Path) -> None:
    log = tmp_path / "dead.jsonl"
    program = RANK.format(folder=str(Path(fn.__file__).parent), log=str(log))
    ranks = [subprocess.Popen([sys.executable, "-W", "ignore", "-c", program, str(rank)]) for rank in range(3)]
    assert [rank.wait(60) for rank in ranks] == [0, 0, 0]
    assert sorted(indices(log)) == [number for number in range(20_000) if number % 100 == 7]


def test_loaders_that_write_to_one_log_at_once_leave_every_record_there_once(tmp_path: Path) -> None:
    log = tmp_path / "dead.jsonl"
    begun = threading.Barrier(4)

    def reads() -> None:
        with FAILING.open(on_error="skip", dead_letters=log) as loader:
            begun.wait(30)
            list(loader)

    threads = [threading.Thread(target=reads) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(indices(log)) == list(range(7, 1000, 100))


def test_a_log_that_is_emptied_while_it_is_written_holds_what_comes_after(tmp_path: Path) -> None:
    path = tmp_path / "dead.jsonl"
    log = DeadLetterLog(str(path))
    entry = {"name": ["map", 0, 1], "row": {}}
    log.append([entry])
    os.truncate(path, 0)
    log.append([entry])
    log.append([entry])
    log.close()
    assert list(read_entries(path)) == [entry]


def test_what_another_writer_left_unfinished_does_not_hide_what_comes_after(tmp_path: Path) -> None:
    path = tmp_path / "dead.jsonl"
    log = DeadLetterLog(str(path))
    first, second = ({"url": "", "name": ["map", 0, number], "row": {}} for number in range(2))
    log.append([first])
    with path.open("a") as other:
        other.write('{"url": "cut sho')
    log.append([second])
    log.close()
    assert list(read_entries(path)) == [first, second]


def test_a_log_stays_where_it_was_when_a_function_changes_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)

    def moves_and_fails(number: int) -> int:
        os.chdir(tmp_path / "elsewhere")
        raise ValueError("no")

    with Dataset.range(3).map(moves_and_fails).open(on_error="skip", dead_letters="dead.jsonl") as loader:
        assert list(loader) == []
    assert len(indices(tmp_path / "dead.jsonl")) == 3


def test_a_pipe_may_be_written_to_and_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with FAILING.open(on_error="skip", dead_letters=pipe) as loader:
            assert len(list(loader)) == 990
        assert len(os.read(reader, 1 << 20).splitlines()) == 10
    finally:
        os.close(reader)
    with pytest.raises(DeadLetterError, match="not a regular file"):
        MENDED.replay(pipe)


def test_logs_joined_to_one_are_replayed_without_repetition(log: Path) -> None:
    log.write_text(log.read_text() * 2)
    assert list(MENDED.replay(log)) == list(range(7, 1000, 100))


@pytest.mark.parametrize("wrong", [None, [], {}, -1, 2**70, "x", 1.5, [[1, 2]]], ids=repr)
def test_a_log_that_is_damaged_anywhere_is_refused_or_gives_the_records_all_the_same(wrong: Any, log: Path) -> None:
    entry = next(read_entries(log))
    refused = 0
    with leaves_nothing():
        for path in _paths(entry):
            log.write_text(json.dumps(_put(entry, path, wrong)) + "\n")
            try:
                with MENDED.replay(log).open() as loader:
                    assert all(0 <= number < 1000 for number in loader)
            except (DeadLetterError, StateMismatchError):
                refused += 1
    assert refused > 5


OTHERS: dict[str, Callable[[], Dataset[Any]]] = {
    "shorter": lambda: Dataset.range(3).map(lambda number: number),
    "batches": lambda: Dataset.range(1000).batch(2).map(lambda numbers: numbers),
    "joined": lambda: Dataset.range(9).interleave(lambda _: Dataset.range(5)).map(lambda number: number),
    "pairs": lambda: Dataset.zip(Dataset.range(1000), Dataset.range(1000)).map(lambda number, _: number),
    "windows": lambda: Dataset.range(1000).window(2).map(lambda numbers: numbers),
    "another stage": lambda: Dataset.range(1000).filter(lambda _: True),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_log_of_another_data_set_is_refused(name: str, log: Path) -> None:
    with leaves_nothing(), pytest.raises((DeadLetterError, StateMismatchError)):
        list(OTHERS[name]().replay(log))


@pytest.mark.parametrize("wrong", ["", "a\0b", 3, None], ids=repr)
def test_what_is_no_path_is_refused_where_it_is_written(wrong: Any) -> None:
    with pytest.raises(PlanError, match="path of a file"):
        Quarantine(wrong)
    if wrong is not None:
        with pytest.raises(PlanError, match="path of a file"):
            FAILING.open(on_error=Skip(), dead_letters=wrong)


def _paths(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield (*before, key)
        yield from _paths(part, (*before, key))


def _put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    changed = copy.deepcopy(value)
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = new
    return changed
