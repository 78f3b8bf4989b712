"""Threads and worker processes: results and errors arrive, workers that die are noticed, closing ends all."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from awkward_functions import RETURNED, awkward_on_seven
from leaks import leaves_nothing

from aiostream_data.errors import RecordError, WorkerDiedError
from aiostream_data.executors.base import Outcome
from aiostream_data.executors.process import ProcessExecutor
from aiostream_data.executors.thread import ThreadExecutor


def run_with(executor: ThreadExecutor, case: Callable[[ThreadExecutor], Awaitable[None]]) -> None:
    """Run ``case``, close the executor, and see that nothing is left."""

    async def main() -> None:
        try:
            await asyncio.wait_for(case(executor), 20)
        finally:
            assert executor.close(2.0)

    with leaves_nothing():
        asyncio.run(main(), debug=True)


def fails(outcome: Outcome) -> RecordError:
    assert isinstance(outcome.error, RecordError), outcome
    return outcome.error


# -- threads


def test_a_thread_gives_value_and_times() -> None:
    async def case(executor: ThreadExecutor) -> None:
        outcome = await executor.submit(divmod, 7, 2)
        assert (outcome.value, outcome.error) == ((3, 1), None)
        assert outcome.busy_s >= 0.0
        assert outcome.cpu_s >= 0.0

    run_with(ThreadExecutor(2, "test"), case)


def test_what_a_function_raises_is_a_value_even_when_it_is_a_signal() -> None:
    def fail() -> None:
        raise KeyboardInterrupt

    async def case(executor: ThreadExecutor) -> None:
        assert isinstance((await executor.submit(fail)).error, KeyboardInterrupt)
        assert (await executor.submit(abs, -1)).value == 1

    run_with(ThreadExecutor(1, "test"), case)


def test_no_more_threads_start_than_there_is_work_or_than_allowed() -> None:
    go, together = threading.Event(), threading.Barrier(4)

    async def case(executor: ThreadExecutor) -> None:
        await executor.submit(abs, 1)
        assert _threads_named("counted") == 1
        jobs = [executor.submit(together.wait) for _ in range(3)] + [executor.submit(go.wait) for _ in range(5)]
        assert _threads_named("counted") == 3
        together.wait()
        go.set()
        await asyncio.gather(*jobs)

    run_with(ThreadExecutor(3, "counted"), case)


def test_with_a_limit_a_thread_that_ends_a_call_starts_the_next_one_itself() -> None:
    first, second = threading.Event(), threading.Event()
    blocked = threading.Event()

    async def case(executor: ThreadExecutor) -> None:
        executor.at_once = 1
        jobs = [executor.submit(first.wait), executor.submit(second.set), executor.submit(blocked.wait)]
        assert _threads_named("limited") == 1
        first.set()
        assert second.wait(10)  # the loop has not run in between
        executor.at_once = 2
        more = executor.submit(blocked.set)
        await asyncio.gather(*jobs, more)
        assert executor.unfinished == 0

    run_with(ThreadExecutor(3, "limited"), case)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_call_submitted_as_the_first_starts_before_all_that_wait(threads: int) -> None:
    may_end = threading.Event()
    begun: list[str] = []

    async def case(executor: ThreadExecutor) -> None:
        executor.at_once = 1
        busy = executor.submit(may_end.wait, 20.0)
        calls = [executor.submit(begun.append, name) for name in "abc"]
        calls += [executor.submit_first(begun.append, name) for name in "xy"]
        may_end.set()
        await asyncio.gather(busy, *calls)
        assert begun == ["x", "y", "a", "b", "c"]

    run_with(ThreadExecutor(threads, "test"), case)


@pytest.mark.parametrize("started", [1, 2])
def test_calls_start_in_order_and_one_at_a_time_if_a_thread_pauses_after_it_delivers_an_outcome(started: int) -> None:
    may_end, has_arrived = threading.Event(), threading.Event()
    both_run, all_run = threading.Barrier(2), threading.Barrier(started)
    begun: list[str] = []

    def call(name: str) -> None:
        begun.append(name)
        with pytest.raises(threading.BrokenBarrierError):
            both_run.wait(0.1)

    async def case(executor: ThreadExecutor) -> None:
        loop = asyncio.get_running_loop()
        deliver = loop.call_soon_threadsafe

        def deliver_and_pause(*args: Any) -> asyncio.Handle:
            handle = deliver(*args)
            has_arrived.wait(20.0)
            return handle

        await asyncio.gather(*(executor.submit(all_run.wait, 20.0) for _ in range(started)))
        executor.at_once = 1
        busy, *calls = executor.submit(may_end.wait, 20.0), executor.submit(call, "a"), executor.submit(call, "b")
        loop.call_soon_threadsafe = deliver_and_pause  # type: ignore[assignment, method-assign]
        may_end.set()
        await busy
        loop.call_soon_threadsafe = deliver  # type: ignore[method-assign]
        has_arrived.set()
        assert [outcome.error for outcome in await asyncio.gather(*calls)] == [None, None]
        assert begun == ["a", "b"]

    run_with(ThreadExecutor(2, "test"), case)


def test_calls_that_were_cancelled_in_the_queue_do_not_run() -> None:
    go, ran = threading.Event(), threading.Event()

    async def case(executor: ThreadExecutor) -> None:
        executor.at_once = 1
        running, queued = executor.submit(go.wait), executor.submit(ran.set)
        queued.cancel()
        go.set()
        await running
        assert (await executor.submit(abs, -1)).value == 1
        assert not ran.is_set()

    run_with(ThreadExecutor(3, "limited"), case)


def _threads_named(name: str) -> int:
    return sum(thread.name.startswith(name) for thread in threading.enumerate())


def test_a_cancelled_job_that_has_not_begun_never_begins() -> None:
    go, begun = threading.Event(), threading.Event()

    async def case(executor: ThreadExecutor) -> None:
        first, second = executor.submit(go.wait), executor.submit(begun.set)
        second.cancel()
        go.set()
        await first
        await executor.submit(abs, 1)
        assert not begun.is_set()

    run_with(ThreadExecutor(1, "test"), case)


def test_closing_says_when_a_function_does_not_return() -> None:
    go = threading.Event()

    async def main() -> None:
        executor = ThreadExecutor(1, "test")
        executor.submit(go.wait)
        assert not executor.close(0.01)
        with pytest.raises(RuntimeError, match="closed"):
            executor.submit(abs, 1)
        go.set()
        assert executor.close(2.0)

    with leaves_nothing():
        asyncio.run(main())


# -- processes


def raise_value_error(text: str) -> None:
    raise ValueError(text)


def kill_me(signal_number: int) -> None:
    os.kill(os.getpid(), signal_number)
    time.sleep(60)


def exit_now(code: int) -> None:
    os._exit(code)


def own_pid() -> int:
    return os.getpid()


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("TwoArguments", "TwoArguments: 1 and 2"),
        ("KeywordOnly", "KeywordOnly: because"),
        ("UnpicklableAttribute", "UnpicklableAttribute: has a lock"),
        ("OwnBase", "OwnBase: own"),
        ("lock", "cannot pickle"),
    ],
)
def test_r02_an_awkward_exception_arrives_and_the_worker_goes_on(kind: str, said: str) -> None:
    async def case(executor: ThreadExecutor) -> None:
        before = (await executor.submit(own_pid)).value
        error = fails(await executor.submit(awkward_on_seven, kind, 7))
        assert said in str(error)
        assert "in awkward_on_seven" in error.worker_traceback or kind in RETURNED
        assert (await executor.submit(own_pid)).value == before

    run_with(ProcessExecutor(1, "test"), case)


def test_r02_a_result_that_does_not_unpickle_is_an_error_and_the_worker_goes_on() -> None:
    async def case(executor: ThreadExecutor) -> None:
        outcome = await executor.submit(awkward_on_seven, "RefusesToUnpickle", 7)
        assert "refuses to be unpickled" in str(outcome.error)
        assert (await executor.submit(abs, -3)).value == 3

    run_with(ProcessExecutor(1, "test"), case)


def test_r01_an_error_has_the_types_of_the_original_its_text_and_its_traceback() -> None:
    async def case(executor: ThreadExecutor) -> None:
        error = fails(await executor.submit(raise_value_error, "seven"))
        assert isinstance(error, ValueError)
        assert isinstance(error.__cause__, ValueError)
        assert error.type_name == "ValueError"
        assert str(error) == "ValueError: seven"
        assert "in raise_value_error" in error.worker_traceback

    run_with(ProcessExecutor(1, "test"), case)


def test_arguments_that_do_not_pickle_are_an_error_before_anything_is_sent() -> None:
    async def case(executor: ThreadExecutor) -> None:
        outcome = await executor.submit(abs, threading.Lock())
        assert isinstance(outcome.error, TypeError)

    run_with(ProcessExecutor(1, "test"), case)


@pytest.mark.parametrize(
    ("kill", "argument", "said"),
    [
        (kill_me, signal.SIGKILL, "signal 9, likely out of memory"),
        (kill_me, signal.SIGTERM, "signal 15"),
        (exit_now, 3, "exit code 3"),
    ],
)
def test_r03_a_worker_that_dies_is_noticed_and_replaced(kill: Callable[[int], None], argument: int, said: str) -> None:
    async def case(executor: ThreadExecutor) -> None:
        before = (await executor.submit(own_pid)).value
        died = time.monotonic()
        outcome = await executor.submit(kill, argument)
        assert time.monotonic() - died < 1.0
        assert isinstance(outcome.error, WorkerDiedError)
        assert said in str(outcome.error)
        after = (await executor.submit(own_pid)).value
        assert after != before

    run_with(ProcessExecutor(1, "test"), case)


def test_closing_ends_workers_in_the_middle_of_a_function() -> None:
    async def main() -> None:
        executor = ProcessExecutor(2, "test")
        await asyncio.gather(executor.submit(own_pid), executor.submit(own_pid))
        jobs = [executor.submit(time.sleep, 60) for _ in range(2)]
        assert executor.close(2.0)
        assert executor.close(2.0)
        for job in jobs:
            job.cancel()

    with leaves_nothing():
        asyncio.run(main(), debug=True)


def test_several_workers_work_at_once() -> None:
    async def case(executor: ThreadExecutor) -> None:
        outcomes = await asyncio.gather(*(executor.submit(own_pid) for _ in range(8)))
        pids = {outcome.value for outcome in outcomes}
        assert os.getpid() not in pids
        assert 1 <= len(pids) <= 2

    run_with(ProcessExecutor(2, "test"), case)
