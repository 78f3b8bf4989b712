"""Worker processes: functions go there once, results come back uncopied, time limits end calls, death is noticed."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest
from leaks import leaves_nothing
from numpy.typing import NDArray

from aiostream_data.errors import RecordError, RecordTimeoutError, WorkerDiedError
from aiostream_data.executors.process import ProcessExecutor
from aiostream_data.executors.serving import MAX_FUNCTIONS
from aiostream_data.executors.thread import ThreadExecutor

MIB = 1 << 20


def run_with(executor: ThreadExecutor, case: Callable[[Any], Awaitable[None]], ends: bool = True) -> None:
    """Run ``case``, close the executor, and see that nothing is left."""

    async def main() -> None:
        try:
            await asyncio.wait_for(case(executor), 30)
        finally:
            assert executor.close(2.0) == ends

    with leaves_nothing():
        asyncio.run(main(), debug=True)


async def value(executor: ThreadExecutor, function: Callable[..., Any], *args: Any) -> Any:
    outcome = await executor.submit(function, *args)
    assert outcome.error is None, outcome
    return outcome.value


def own_pid() -> int:
    return os.getpid()


# -- functions


class CountsItsLoads:
    """A function that knows how often it was unpickled in its process."""

    loads = 0

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        type(self).loads += 1

    def __init__(self) -> None:
        self.payload = bytes(MIB)

    def __call__(self) -> tuple[int, int]:
        return os.getpid(), type(self).loads


def test_a_function_goes_to_every_worker_once() -> None:
    async def case(executor: ProcessExecutor) -> None:
        function = CountsItsLoads()
        outcomes = await asyncio.gather(*(executor.submit(function) for _ in range(50)))
        assert {loads for _, loads in (outcome.value for outcome in outcomes)} == {1}

    run_with(ProcessExecutor(2, "test"), case)


def test_more_functions_than_a_worker_keeps_all_give_their_own_results() -> None:
    def adding(number: int) -> Callable[[int], int]:
        return lambda other: number + other

    async def case(executor: ProcessExecutor) -> None:
        functions = [adding(number) for number in range(MAX_FUNCTIONS + 10)]
        for _ in range(2):
            assert [await value(executor, function, 1000) for function in functions] == [
                1000 + number for number in range(len(functions))
            ]

    run_with(ProcessExecutor(1, "test"), case)


class RefusesOnce:
    def __setstate__(self, state: dict[str, Any]) -> None:
        if not os.path.exists(state["path"]):
            with open(state["path"], "w"):
                raise ValueError("not the first time")

    def __init__(self, path: str) -> None:
        self.path = path

    def __call__(self) -> int:
        return 5


def test_a_function_that_could_not_be_unpickled_is_sent_again(tmp_path: Any) -> None:
    async def case(executor: ProcessExecutor) -> None:
        function = RefusesOnce(str(tmp_path / "seen"))
        outcome = await executor.submit(function)
        assert isinstance(outcome.error, RecordError)
        assert isinstance(outcome.error, ValueError)
        assert await value(executor, function) == 5

    run_with(ProcessExecutor(1, "test"), case)


# -- memory


def ones(nbytes: int) -> NDArray[np.uint8]:
    return np.ones(nbytes, np.uint8)


def test_results_are_views_of_shared_memory_that_can_be_written_and_outlive_the_executor() -> None:
    kept: list[NDArray[np.uint8]] = []

    async def case(executor: ProcessExecutor) -> None:
        kept.append(await value(executor, ones, 3 * MIB))

    executor = ProcessExecutor(1, "test")
    with leaves_nothing():
        asyncio.run(case(executor))
        assert executor.close(2.0)
        array = kept.pop()
        assert not array.flags.owndata
        array[7] = 3
        assert int(array.sum()) == 3 * MIB + 2
        del array


def test_a_consumer_that_keeps_every_result_never_stops_a_worker() -> None:
    async def case(executor: ProcessExecutor) -> None:
        outcomes = [await executor.submit(ones, MIB) for _ in range(40)]
        assert {int(outcome.value[-1]) for outcome in outcomes} == {1}

    run_with(ProcessExecutor(1, "test", max_nbytes=2 * MIB), case)


_kept_in_the_worker: list[Any] = []


def keep(array: Any) -> int:
    _kept_in_the_worker.append(array)
    return len(_kept_in_the_worker)


def test_a_function_that_keeps_its_arguments_never_stops_its_parent() -> None:
    async def case(executor: ProcessExecutor) -> None:
        for number in range(20):
            assert await value(executor, keep, ones(MIB)) == number + 1

    run_with(ProcessExecutor(1, "test", max_nbytes=2 * MIB), case)


# -- errors on the way


class NeverUnpickles:
    def __reduce__(self) -> tuple[Any, ...]:
        return (_refuse, ())


def _refuse() -> None:
    raise KeyboardInterrupt("refuses to be unpickled")


def give_never_unpickles() -> Any:
    return NeverUnpickles()


@pytest.mark.parametrize(
    ("function", "args", "said"),
    [
        (abs, (NeverUnpickles(),), "refuses to be unpickled .while the arguments were unpickled"),
        (give_never_unpickles, (), "refuses to be unpickled"),
        (threading.Lock, (), "cannot pickle .*while the result was pickled"),
        (abs, (threading.Lock(),), "cannot pickle"),
    ],
)
def test_what_does_not_travel_is_a_record_error_and_the_worker_goes_on(function: Any, args: Any, said: str) -> None:
    async def case(executor: ProcessExecutor) -> None:
        before = await value(executor, own_pid)
        error = (await executor.submit(function, *args)).error
        assert isinstance(error, RecordError)
        with pytest.raises(RecordError, match=said):
            raise error
        assert "Traceback" in error.worker_traceback
        assert await value(executor, own_pid) == before

    run_with(ProcessExecutor(1, "test"), case)


def test_a_record_error_of_the_originals_type_can_be_sent_on() -> None:
    import pickle

    async def case(executor: ProcessExecutor) -> None:
        error = (await executor.submit(int, "no number")).error
        assert error is not None
        again = pickle.loads(pickle.dumps(error))
        assert isinstance(again, RecordError)
        assert isinstance(again, ValueError)
        assert (str(again), again.type_name) == (str(error), "ValueError")
        assert again.__notes__ == error.__notes__

    run_with(ProcessExecutor(1, "test"), case)


# -- death


def crash() -> None:
    ctypes.string_at(0)


def leave_a_fork_behind_and_die() -> None:
    if os.fork() == 0:
        time.sleep(1.5)
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("deaths", [1, 2])
def test_a_worker_that_is_killed_while_it_starts_is_replaced_once(deaths: int, monkeypatch: pytest.MonkeyPatch) -> None:
    executor = ProcessExecutor(1, "test")
    start = executor._start_worker
    started: list[Any] = []

    def start_and_kill(me: int) -> Any:
        worker = start(me)
        if len(started) < deaths:
            worker.child.kill()
        started.append(worker)
        return worker

    monkeypatch.setattr(executor, "_start_worker", start_and_kill)

    async def case(executor: ThreadExecutor) -> None:
        outcome = await executor.submit(abs, -3)
        if deaths == 1:
            assert outcome.value == 3
        else:
            assert isinstance(outcome.error, WorkerDiedError)
        assert len(started) == 2
        assert await value(executor, abs, -4) == 4

    run_with(executor, case)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (crash, "killed by signal 11, a crash in native code"),
        (leave_a_fork_behind_and_die, "killed by signal 9, likely out of memory"),
    ],
)
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_r03_a_worker_that_dies_is_noticed_within_a_second(function: Any, said: str) -> None:
    async def case(executor: ProcessExecutor) -> None:
        before = await value(executor, own_pid)
        started = time.monotonic()
        outcome = await executor.submit(function)
        assert time.monotonic() - started < 1.0
        assert isinstance(outcome.error, WorkerDiedError)
        assert said in str(outcome.error)
        assert await value(executor, own_pid) != before

    run_with(ProcessExecutor(1, "test"), case)


def test_r03_a_worker_that_is_killed_while_it_is_idle_costs_one_call() -> None:
    async def case(executor: ProcessExecutor) -> None:
        pid = await value(executor, own_pid)
        os.kill(pid, signal.SIGKILL)
        outcome = await executor.submit(own_pid)
        assert isinstance(outcome.error, WorkerDiedError)
        assert await value(executor, own_pid) != pid

    run_with(ProcessExecutor(1, "test"), case)


# -- time limits


def test_a_call_over_its_time_ends_with_its_worker_and_another_takes_its_place() -> None:
    async def case(executor: ProcessExecutor) -> None:
        before = (await executor.submit_within(20.0, own_pid)).value
        started = time.monotonic()
        outcome = await executor.submit_within(0.1, time.sleep, 60)
        assert time.monotonic() - started < 2.0
        assert isinstance(outcome.error, RecordTimeoutError)
        assert isinstance(outcome.error, TimeoutError)
        assert "longer than 0.1 s" in str(outcome.error)
        assert (await executor.submit_within(20.0, own_pid)).value not in (None, before)

    run_with(ProcessExecutor(1, "test"), case)


class PreparesSlowly:
    """Is ready after longer than a call may take."""

    ready = False

    def prepare_worker(self) -> None:
        if not type(self).ready:
            time.sleep(0.4)
            type(self).ready = True

    def __call__(self) -> bool:
        return type(self).ready


@pytest.mark.parametrize("make", [ProcessExecutor, ThreadExecutor])
def test_what_a_worker_prepares_is_not_counted(make: Callable[..., ThreadExecutor]) -> None:
    async def case(executor: ThreadExecutor) -> None:
        assert (await executor.submit_within(0.2, PreparesSlowly())).value is True

    PreparesSlowly.ready = False
    run_with(make(1, "test"), case)


class NeverPrepares:
    def prepare_worker(self) -> None:
        raise ValueError("cannot prepare")

    def __call__(self) -> None: ...


@pytest.mark.parametrize("make", [ProcessExecutor, ThreadExecutor])
def test_what_fails_to_prepare_is_the_error_of_every_call(make: Callable[..., ThreadExecutor]) -> None:
    async def case(executor: ThreadExecutor) -> None:
        for _ in range(2):
            error = (await executor.submit_within(5.0, NeverPrepares())).error
            assert isinstance(error, ValueError)

    run_with(make(1, "test"), case)


def test_a_thread_over_its_time_is_left_behind_and_another_takes_its_place() -> None:
    go = threading.Event()

    async def case(executor: ThreadExecutor) -> None:
        outcome = await executor.submit_within(0.05, go.wait)
        assert isinstance(outcome.error, RecordTimeoutError)
        assert "its thread keeps running" in str(outcome.error)
        assert await value(executor, abs, -4) == 4
        assert not executor.close(0.0)
        go.set()

    with leaves_nothing():
        executor = ThreadExecutor(1, "test")
        asyncio.run(case(executor))
        for thread in threading.enumerate():
            if thread is not threading.current_thread():
                thread.join(2)
        assert executor.ended


def test_calls_within_their_time_are_unharmed_by_the_limit() -> None:
    async def case(executor: ThreadExecutor) -> None:
        outcomes = await asyncio.gather(*(executor.submit_within(20.0, abs, -number) for number in range(200)))
        assert [outcome.value for outcome in outcomes] == list(range(200))
        assert sum(thread.name.startswith("limited") for thread in threading.enumerate()) == 3

    run_with(ThreadExecutor(3, "limited"), case)


# -- insight


def wait_for(path: str) -> None:
    while not os.path.exists(path):
        time.sleep(0.01)


def test_the_stacks_of_workers_tell_what_they_are_doing(tmp_path: Any) -> None:
    async def case(executor: ProcessExecutor) -> None:
        await value(executor, own_pid)
        call = executor.submit(wait_for, str(tmp_path / "go"))
        text = ""
        while "in wait_for" not in text:
            text = await asyncio.to_thread(executor.stacks, 5.0)
        assert f"process {executor.pids[0]}" in text
        (tmp_path / "go").touch()
        assert (await call).error is None

    run_with(ProcessExecutor(1, "test"), case)


def hold_the_interpreter() -> None:
    ctypes.PyDLL(None).sleep(30)


def test_a_worker_that_holds_the_interpreters_lock_is_said_to_and_ended_all_the_same() -> None:
    async def case(executor: ProcessExecutor) -> None:
        await value(executor, own_pid)
        call = executor.submit_within(1.0, hold_the_interpreter)
        text = ""
        while "its native code holds the interpreter's lock" not in text:
            text = await asyncio.to_thread(executor.stacks, 0.2)
        assert isinstance((await call).error, RecordTimeoutError)

    run_with(ProcessExecutor(1, "test"), case)
