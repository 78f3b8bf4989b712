"""R04: a forked child gets an error or works, soon, and never hangs."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from fork_program import HANG_S, LETS_GO, REFUSED
from leaks import leaves_nothing
from pipelines import STAGES

from aiostream_data import Dataset, Loader
from aiostream_data._native import ledger_py
from aiostream_data.errors import ForkedPipelineError

CHILD_S = 5.0
"""The child answers in well under a second; the rest is for a busy machine. A hang lasts for ever."""


def _in_forked_child(function: Callable[[], None]) -> int:
    """Run ``function`` in a fork of this process and return the exit code: 0 when it returned."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of fork beside threads: what is tested here
        pid = os.fork()
    if pid == 0:
        code = 1
        try:
            function()
            code = 0
        finally:
            os._exit(code)
    deadline = time.monotonic() + CHILD_S
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)  # only the kernel knows when another process ends
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise AssertionError(f"the child still hangs after {CHILD_S} s")


def _refused(action: Callable[[], Any]) -> None:
    with pytest.raises(ForkedPipelineError, match="Open the dataset in the child"):
        action()


@pytest.mark.parametrize("stage", ["the whole chain", "slow generator", "coroutine map", "range"])
def test_r04_a_loader_used_in_a_forked_child_is_refused_there_and_goes_on_in_the_parent(
    stage: str, shards: list[str]
) -> None:
    with leaves_nothing(), STAGES[stage](shards).open() as loader:
        iterator = iter(loader)
        next(iterator)

        def use_it() -> None:
            _refused(lambda: iter(loader))
            _refused(lambda: loader.__enter__())
            _refused(lambda: list(iterator))
            loader.close()  # lets go, without waiting for threads that do not exist here

        assert _in_forked_child(use_it) == 0
        next(iterator)


FORKED = {
    "the whole chain": list(LETS_GO),
    "coroutine map": ["close", "__exit__"],
    "random mixture": ["aclose", "nothing"],
    "process map": ["close", "nothing"],
    "in two processes": ["__aexit__", "nothing"],
}
"""Stages, and how the child ends their loader; everything else that a loader offers is tried before and after."""


@pytest.mark.parametrize(("stage", "how"), [*((stage, "open") for stage in FORKED), ("the whole chain", "debug")])
def test_r04_all_that_a_loader_offers_is_refused_at_once_in_a_child_which_ends_without_a_complaint(
    stage: str, how: str, shards: list[str]
) -> None:
    program = str(Path(__file__).with_name("fork_program.py"))
    arguments = [stage, how, ",".join(FORKED[stage]), *shards]
    command = [sys.executable, "-X", "faulthandler", "-W", "error", program, *arguments]
    limit_s = 3 * HANG_S
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def test_r04_nothing_that_a_loader_offers_is_left_out_here() -> None:
    offered = {name for name in vars(Loader) if not name.startswith("_")}
    offered |= {"__iter__", "__aiter__", "__anext__", "__enter__", "__aenter__", "__exit__", "__aexit__"}
    assert offered <= {*REFUSED, *LETS_GO}


@pytest.mark.parametrize("stage", ["the whole chain", "generator", "interleave"])
def test_r04_a_forked_child_that_opens_the_data_set_anew_works(stage: str, shards: list[str]) -> None:
    dataset = STAGES[stage](shards).take(40) if stage != "the whole chain" else STAGES[stage](shards)

    def open_anew() -> None:
        with dataset.open() as fresh:
            assert next(iter(fresh)) is not None

    with leaves_nothing(), dataset.open() as loader:
        next(iter(loader))
        assert _in_forked_child(open_anew) == 0


def test_r04_dropping_the_parents_loader_in_a_child_does_not_hang_whatever_the_parent_was_doing(
    shards: list[str],
) -> None:
    held: list[Loader[Any]] = []

    def drop_it() -> None:
        held.clear()

    with leaves_nothing():
        for _ in range(8):
            held.append(STAGES["the whole chain"](shards).open())
            next(iter(held[0]))
            assert _in_forked_child(drop_it) == 0
            held.pop().close()


def test_r04_a_ledger_whose_lock_is_held_at_the_fork_does_not_hang_the_child() -> None:
    counts = ledger_py.Ledger()  # the native one has no lock
    held, release = threading.Event(), threading.Event()

    def hold_the_lock() -> None:
        with counts._lock:
            held.set()
            release.wait()

    with leaves_nothing():
        thread = threading.Thread(target=hold_the_lock)
        thread.start()
        held.wait()
        try:
            assert _in_forked_child(lambda: ledger_py.Charge(counts, 1, "rows").end()) == 0
        finally:
            release.set()
            thread.join()


def test_r04_a_budget_counts_on_in_a_child() -> None:
    with leaves_nothing(), Dataset.range(100).open() as loader:
        budget = loader._engine.resources.budget
        assert _in_forked_child(lambda: budget.charge(1).end()) == 0


def _work_as_a_forked_worker(dataset: Dataset[int], inherited: Loader[int], answers: Connection) -> None:
    try:
        next(iter(inherited))
    except ForkedPipelineError:
        with dataset.open() as fresh:
            answers.send(sum(fresh))
    answers.close()


def test_r04_forked_workers_of_multiprocessing_open_the_data_set_anew() -> None:
    dataset = Dataset.range(100).map(abs).shuffle(10, seed=1)
    fork = multiprocessing.get_context("fork")
    with leaves_nothing(), dataset.open() as loader:
        next(iter(loader))
        pipes = [fork.Pipe(duplex=False) for _ in range(2)]
        workers = [fork.Process(target=_work_as_a_forked_worker, args=(dataset, loader, theirs)) for _, theirs in pipes]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            for worker in workers:
                worker.start()
        for ours, theirs in pipes:
            assert ours.poll(CHILD_S), "a worker hangs"
            assert ours.recv() == sum(range(100))
            ours.close()
            theirs.close()
        for worker in workers:
            worker.join(CHILD_S)
            assert worker.exitcode == 0
            worker.close()
