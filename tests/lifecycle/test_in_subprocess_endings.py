"""However a loader ends whose chain runs in processes of its own, none of them is left, nor anything of theirs."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from leaks import leaves_nothing

from aiostream_data import Dataset, Loader
from aiostream_data.errors import ForkedPipelineError, LoaderClosedError, WorkerDiedError

CLOSE_S = 2.0
PROGRAM = Path(__file__).with_name("hosted_program.py")


def rows(number: int) -> np.ndarray[Any, Any]:
    return np.full(30_000, int(number))


def waits(number: int) -> int:
    if number >= 40:
        threading.Event().wait(60)
    return int(number)


def endless(workers: int = 1) -> Dataset[Any]:
    return Dataset.range(1_000_000).map(rows).batch(2).in_subprocess(workers)


def processes_of(loader: Loader[Any]) -> list[int]:
    hosting = loader._engine.hosting
    assert hosting is not None
    return [process.child.pid for process in hosting.processes]


def by_break(loader: Loader[Any]) -> None:
    with loader:
        for _ in islice(loader, 3):
            pass


def fails(batch: Any) -> None:
    raise ZeroDivisionError


def by_an_error(loader: Loader[Any]) -> None:
    with pytest.raises(ZeroDivisionError), loader:
        fails(next(iter(loader)))


def by_closing_on_another_thread(loader: Loader[Any]) -> None:
    next(iter(loader))
    thread = threading.Thread(target=loader.close)
    thread.start()
    with pytest.raises(LoaderClosedError):
        for _ in loader:
            pass
    thread.join()


def by_cancelling(loader: Loader[Any]) -> None:
    async def train() -> None:
        async with loader:
            async for _ in loader:
                await asyncio.sleep(0)

    async def main() -> None:
        task = asyncio.ensure_future(train())
        await asyncio.sleep(random.uniform(0, 0.8))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def by_dropping(loader: Loader[Any]) -> None:
    next(iter(loader))
    del loader
    gc.collect()


def before_the_first_element(loader: Loader[Any]) -> None:
    with loader:
        threading.Event().wait(random.uniform(0, 0.5))  # some moment of the start of a process


ENDINGS: list[Callable[[Loader[Any]], None]] = [
    *(by_break, by_an_error, by_closing_on_another_thread, by_cancelling, by_dropping, before_the_first_element),
]


WORKERS_OF = [(leave, 1 + number % 2) for number, leave in enumerate(ENDINGS)]


@pytest.mark.parametrize(
    ("leave", "workers"),
    [*WORKERS_OF, (by_cancelling, 1), (before_the_first_element, 1)],
    ids=lambda part: getattr(part, "__name__", part),
)
def test_leaving_early_leaves_nothing(leave: Callable[[Loader[Any]], None], workers: int) -> None:
    with leaves_nothing(within_s=CLOSE_S):
        leave(endless(workers).open())


def test_at_the_end_of_the_stream_the_process_goes_although_the_loader_is_kept() -> None:
    with leaves_nothing():
        loader = Dataset.range(6).in_subprocess().open()
        assert list(loader) == list(range(6))
        assert loader.state_dict()["elements"] == 6
        deadline = time.monotonic() + CLOSE_S
        while any(map(_is_running, processes_of(loader))) and time.monotonic() < deadline:
            time.sleep(0.01)  # nobody is told when it has gone
        assert not any(map(_is_running, processes_of(loader)))


@pytest.mark.parametrize("workers", [1, 6])
def test_closing_does_not_wait_for_functions_that_do_not_return(workers: int) -> None:
    with leaves_nothing():
        loader = Dataset.range(100).map(waits, executor="inline").in_subprocess(workers).open()
        next(iter(loader))
        started = time.monotonic()
        loader.close()
        assert time.monotonic() - started < CLOSE_S + 1


@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_process_is_noticed_within_a_second(victim: int) -> None:
    with leaves_nothing(), endless(2).open() as loader:
        elements = iter(loader)
        next(elements)
        os.kill(processes_of(loader)[victim], signal.SIGKILL)
        started = time.monotonic()
        with pytest.raises(WorkerDiedError, match="killed by signal 9"):
            deque(elements, maxlen=0)
        assert time.monotonic() - started < 1


def test_a_loader_that_was_forked_is_refused_and_keeps_no_process_alive() -> None:
    with leaves_nothing(), endless().open() as loader:
        next(iter(loader))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of fork beside threads: what is tested here
            pid = os.fork()
        if pid == 0:
            try:
                next(iter(loader))
            except ForkedPipelineError:
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert len(next(iter(loader))) == 2  # it goes on here


def test_a_process_ends_though_a_fork_of_its_parent_lives_on() -> None:
    with leaves_nothing():
        with endless().open() as loader:
            next(iter(loader))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                pid = os.fork()
            if pid == 0:
                time.sleep(60)
                os._exit(0)
            processes = processes_of(loader)
        try:
            assert not any(map(_is_running, processes))
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


# -- whole programs


@contextmanager
def program(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    with subprocess.Popen(
        [sys.executable, str(PROGRAM), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        line = running.stdout.readline()
        try:
            yield running, [int(pid) for pid in line.split()]
        finally:
            running.kill()


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _assert_gone(pids: list[int], within_s: float) -> None:
    assert len(set(pids)) == 2
    deadline = time.monotonic() + within_s
    while any(map(_is_running, pids)) and time.monotonic() < deadline:
        time.sleep(0.01)  # nobody tells a process when the children of another have ended
    assert not any(map(_is_running, pids))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_when_the_program_is_ended_by_a_signal_its_processes_end_too(number: signal.Signals) -> None:
    with program() as (running, pids):
        time.sleep(0.1)
        running.send_signal(number)
        running.wait(5)
        _assert_gone(pids, within_s=5)
        assert running.stderr is not None
        complaints = running.stderr.read()
        assert ("KeyboardInterrupt" in complaints) == (number == signal.SIGINT)
        assert complaints.count("Traceback") == (number == signal.SIGINT)


def test_a_program_that_ends_with_its_loader_open_ends_soon_and_without_complaint() -> None:
    with program("leave") as (running, pids):
        assert running.wait(5) == 0
        _assert_gone(pids, within_s=2)
        assert running.stderr is not None
        assert running.stderr.read() == ""
