"""Processes that a signal has stopped (SIGSTOP) end with their loader, and keep to the time-outs of their stage."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from leaks import leaves_nothing
from stopped_functions import StopsOnceWhenLearned, process_ids, stops_at_5

from aiostream_data import Dataset, Loader, Skip
from aiostream_data.errors import RecordTimeoutError
from aiostream_data.executors.child_process import Child, bury_all

CLOSE_S = 2.0
PROGRAM = Path(__file__).with_name("stopped_program.py")
HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def functions_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE))


def status(pid: int) -> str:
    """Return the letter that the system has for what a process does; "" for one that has ended."""
    try:
        letter = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
    return "" if letter == "Z" else letter


def stop(pids: Iterable[int]) -> None:
    """Stop processes, and wait until the system has done so."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    wait_until(pids, "T")


def wait_until(pids: Iterable[int], letter: str, within_s: float = CLOSE_S) -> None:
    deadline = time.monotonic() + within_s
    while {status(pid) for pid in pids} != {letter}:
        assert time.monotonic() < deadline
        time.sleep(0.01)  # the system tells nobody when the processes of others change


def workers_of(loader: Loader[Any], count: int) -> tuple[set[int], set[int]]:
    """Read until ``count`` workers have answered; return their parents, and them."""
    parents, workers = set(), set()
    for parent, worker in loader:
        parents.add(parent)
        workers.add(worker)
        if len(workers) == count:
            break
    return parents, workers


def closes_in_time(loader: Loader[Any], pids: set[int]) -> None:
    started = time.monotonic()
    loader.close()
    assert time.monotonic() - started < CLOSE_S
    wait_until(pids, "", within_s=CLOSE_S - (time.monotonic() - started))


@pytest.mark.parametrize("workers", [1, 4])
def test_stopped_workers_end_within_two_seconds_of_close(workers: int) -> None:
    with leaves_nothing():
        loader = Dataset.range(10_000_000).map(process_ids, executor="process", concurrency=workers).open()
        _, pids = workers_of(loader, workers)
        stop(pids)
        closes_in_time(loader, pids)


@pytest.mark.parametrize("workers", [1, 3])
def test_stopped_processes_of_in_subprocess_end_within_two_seconds_of_close(workers: int) -> None:
    with leaves_nothing():
        loader = Dataset.range(10_000_000).map(process_ids).in_subprocess(workers).open()
        _, pids = workers_of(loader, workers)
        stop(pids)
        closes_in_time(loader, pids)


@pytest.mark.parametrize("who", ["workers", "workers and host", "host"])
def test_stopped_workers_in_a_subprocess_end_within_two_seconds_of_close(who: str) -> None:
    with leaves_nothing():
        inside = Dataset.range(10_000_000).map(process_ids, executor="process", concurrency=2)
        loader = inside.in_subprocess().open()
        hosts, workers = workers_of(loader, 2)
        stop({"workers": workers, "workers and host": workers | hosts, "host": hosts}[who])
        closes_in_time(loader, workers | hosts)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_stopped_processes_end_with_their_program(number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, str(PROGRAM)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as running:
        try:
            assert running.stdout is not None
            pids = [int(pid) for pid in running.stdout.readline().split()]
            assert len(pids) == 3
            stop(pids)
            running.send_signal(number)
            running.wait(2 * CLOSE_S)
            wait_until(pids, "")
        finally:
            running.kill()


def test_a_stopped_host_takes_its_stopped_workers_along_when_it_is_killed() -> None:
    with leaves_nothing():
        inside = Dataset.range(10_000_000).map(process_ids, executor="process", concurrency=2)
        with inside.in_subprocess().open() as loader:
            hosts, workers = workers_of(loader, 2)
            stop(workers | hosts)
            for pid in hosts:
                os.kill(pid, signal.SIGKILL)
            wait_until(workers, "")


@pytest.mark.parametrize("in_subprocess", [False, True])
def test_a_worker_that_is_stopped_in_a_call_has_timed_out(in_subprocess: bool) -> None:
    stops = Dataset.range(10).map(stops_at_5, executor="process", concurrency=1, timeout=0.5, on_error=Skip())
    with leaves_nothing():
        assert list(stops.in_subprocess() if in_subprocess else stops) == [0, 1, 2, 3, 4, 6, 7, 8, 9]


def test_the_error_of_a_stopped_worker_says_that_a_signal_stopped_it() -> None:
    stops = Dataset.range(10).map(stops_at_5, executor="process", concurrency=1, timeout=0.5)
    with leaves_nothing(), pytest.raises(RecordTimeoutError, match="SIGSTOP"):
        list(stops)


def test_a_worker_that_is_stopped_while_it_learns_its_function_has_timed_out(tmp_path: Path) -> None:
    function = StopsOnceWhenLearned(tmp_path)
    stops = Dataset.range(10).map(function, executor="process", concurrency=1, timeout=0.5, on_error=Skip())
    with leaves_nothing(), stops.open(stage_timeout=60) as loader:
        assert list(loader)[-9:] == list(range(1, 10))


def test_a_stopped_process_is_named_as_such_where_it_does_not_say_what_it_does() -> None:
    child = Child("aiostream_data.executors.serving:serve", "asd-test", 1 << 20)
    try:
        stop([child.pid])
        assert child.is_stopped
        assert "a signal such as SIGSTOP has stopped it" in child.stacks(0.1)
    finally:
        bury_all([child])
    assert not child.alive
