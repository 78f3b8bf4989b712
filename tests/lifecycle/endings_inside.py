"""Ways in which a loader ends while its process goes on, each at a moment that is given.

An ending opens the data set, consumes until its moment, calls ``moment.reached()`` and ends. It raises only
what should not have happened.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn
from unittest import mock

from aiostream_data import Dataset, Loader
from aiostream_data._engine.flow.stage_io import Outlet
from aiostream_data.errors import ForkedPipelineError, LoaderClosedError, WorkerDiedError
from aiostream_data.plan.operators import ToDevice
from aiostream_data.rows.records import Chunk

AFTERWARDS_S = 0.05
"""How long is consumed on after something was killed or stopped from outside."""


class Moment:
    """When an ending happens: so many seconds after the data set begins to be opened.

    Args:
        options: For opening it.
    """

    def __init__(self, after_s: float, rng: random.Random, **options: Any) -> None:
        self.after_s = after_s
        self.options = options
        self.rng = rng
        self.began_at = time.perf_counter()
        self.reached_at: float | None = None

    @property
    def passed(self) -> bool:
        return time.perf_counter() >= self.began_at + self.after_s

    @property
    def left_s(self) -> float:
        return max(0.0, self.began_at + self.after_s - time.perf_counter())

    def reached(self) -> None:
        """Note that it has come; the first time counts."""
        self.reached_at = self.reached_at or time.perf_counter()


Ending = Callable[[Dataset[Any], Moment], None]

_kept: list[Loader[Any]] = []
"""A loader that has ended, and is not let go of until the next one has."""


class InjectedError(Exception):
    """What a stage or a function fails with here."""


def _consume(elements: Iterable[Any], moment: Moment) -> None:
    if moment.after_s:
        for _ in elements:
            if moment.passed:
                break
    moment.reached()


def the_end_of_the_stream(dataset: Dataset[Any], moment: Moment) -> None:
    """Take all there is, and keep the loader."""
    _kept.clear()
    short = dataset if ends_on_device(dataset) else dataset.take(moment.rng.randrange(200))
    _kept.append(short.open(**moment.options))
    for _ in _kept[0]:
        pass
    moment.reached()


def a_break(dataset: Dataset[Any], moment: Moment) -> None:
    with dataset.open(**moment.options) as loader:
        _consume(loader, moment)


def an_exception_in_the_loop_body(dataset: Dataset[Any], moment: Moment) -> None:
    with suppress(KeyError), dataset.open(**moment.options) as loader:
        _consume(loader, moment)
        raise KeyError("training step")


def collecting_an_iterator_of_a_loader(dataset: Dataset[Any], moment: Moment) -> None:
    with dataset.open(**moment.options) as loader:
        iterator = iter(loader)
        _consume(iterator, moment)
        del iterator
        gc.collect()


def collecting_the_iterator(dataset: Dataset[Any], moment: Moment) -> None:
    iterator = iter(dataset)
    _consume(iterator, moment)
    del iterator
    gc.collect()


def collecting_the_loader_in_a_cycle(dataset: Dataset[Any], moment: Moment) -> None:
    cycle: list[Any] = [dataset.open(**moment.options)]
    cycle.append(cycle)
    _consume(cycle[0], moment)
    del cycle
    gc.collect()


def cancelling_the_consumers_task(dataset: Dataset[Any], moment: Moment) -> None:
    _cancelled(dataset, moment)


def cancelling_twice(dataset: Dataset[Any], moment: Moment) -> None:
    """Cancel once more while the loader is being closed."""
    _cancelled(dataset, moment, again_after_s=moment.rng.random() * 0.005)


def _cancelled(dataset: Dataset[Any], moment: Moment, again_after_s: float | None = None) -> None:
    """Cancel the task that consumes at the moment, and once more so many seconds later."""

    async def consume() -> None:
        async with dataset.open(**moment.options) as loader:
            async for _ in loader:
                pass

    async def main() -> None:
        task = asyncio.create_task(consume())
        await asyncio.sleep(moment.left_s)
        moment.reached()
        task.cancel()
        if again_after_s is not None:
            await asyncio.sleep(again_after_s)
            task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert again_after_s is not None or asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def leaving_an_async_iteration_over_the_data_set(dataset: Dataset[Any], moment: Moment) -> None:
    async def main() -> None:
        async for _ in dataset:
            if moment.passed:
                break
        moment.reached()

    asyncio.run(main())


def closing_the_consumers_event_loop(dataset: Dataset[Any], moment: Moment) -> None:
    loop = asyncio.new_event_loop()

    async def begin() -> Loader[Any]:
        loader = await dataset.open(**moment.options).__aenter__()
        if moment.after_s:
            async for _ in loader:
                if moment.passed:
                    break
        return loader

    loader = loop.run_until_complete(begin())
    moment.reached()
    loop.close()
    del loader
    gc.collect()


def closing_from_another_thread(dataset: Dataset[Any], moment: Moment) -> None:
    loader = dataset.open(**moment.options)
    with _later(moment, loader.close), suppress(LoaderClosedError):
        for _ in loader:
            pass


def closing_from_two_threads_at_once(dataset: Dataset[Any], moment: Moment) -> None:
    loader = dataset.open(**moment.options)
    with _later(moment, loader.close):
        with suppress(LoaderClosedError):
            _consume(loader, moment)
        asyncio.run(loader.aclose())


def a_failure_in_a_stage(dataset: Dataset[Any], moment: Moment) -> None:
    """Let whichever stage hands on a chunk next fail at it."""
    passed = Outlet._pass

    async def fail_then(outlet: Outlet, chunk: Chunk | None, *more: Any) -> None:
        if moment.passed and moment.reached_at is None:
            moment.reached()
            raise InjectedError
        await passed(outlet, chunk, *more)

    with (
        mock.patch.object(Outlet, "_pass", fail_then),
        suppress(InjectedError),
        dataset.open(**moment.options) as loader,
    ):
        for _ in loader:
            pass


def a_failure_of_the_users_function(dataset: Dataset[Any], moment: Moment) -> None:
    def function(*element: Any) -> Any:
        if moment.passed:
            moment.reached()
            raise InjectedError
        return element

    if ends_on_device(dataset):  # where no function can follow
        a_failure_in_a_stage(dataset, moment)
        return
    with suppress(InjectedError), dataset.map(function).open() as loader:
        for _ in loader:
            pass


def killing_a_worker_process(dataset: Dataset[Any], moment: Moment) -> None:
    """Kill one of the children, if there are any; the stream goes on, or says that a worker died."""

    def kill() -> None:
        children = _worker_processes()
        if children:
            with suppress(ProcessLookupError):
                os.kill(moment.rng.choice(children), signal.SIGKILL)

    with suppress(WorkerDiedError), dataset.open(**moment.options) as loader, _later(moment, kill):
        for _ in loader:
            if time.perf_counter() > moment.began_at + moment.after_s + AFTERWARDS_S:
                break
        moment.reached_at = time.perf_counter()  # the worker may have had to be replaced before the last element came


def an_interrupt(dataset: Dataset[Any], moment: Moment) -> None:
    """Let Ctrl-C come while this thread waits, takes elements, or closes."""
    with suppress(KeyboardInterrupt), _interrupted(moment), dataset.open(**moment.options) as loader:
        for _ in loader:
            if time.perf_counter() > moment.began_at + moment.after_s + AFTERWARDS_S:
                break  # it came where Python swallows it: in a finaliser


def an_interrupt_of_an_async_loop(dataset: Dataset[Any], moment: Moment) -> None:
    async def main() -> None:
        with _interrupted(moment):  # here, as asyncio itself loses a socket when interrupted while it makes a loop
            async with dataset.open(**moment.options) as loader:
                async for _ in loader:
                    if time.perf_counter() > moment.began_at + moment.after_s + AFTERWARDS_S:
                        break

    with suppress(KeyboardInterrupt):
        asyncio.run(main())


def forking(dataset: Dataset[Any], moment: Moment) -> None:
    """Let a fork end while the loader is open, which then is left."""
    with dataset.open(**moment.options) as loader:
        _consume(loader, moment)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of fork beside threads: what is tested here
            pid = os.fork()
        if pid == 0:
            _end_fork(loader)
        _, status = os.waitpid(pid, 0)  # a hang here is one of the ending
        assert os.waitstatus_to_exitcode(status) == 0


def _end_fork(loader: Loader[Any]) -> NoReturn:
    code = 1
    try:
        next(iter(loader))
    except ForkedPipelineError:
        loader.close()
        code = 0
    finally:
        os._exit(code)


def leaving_what_is_stepped(dataset: Dataset[Any], moment: Moment) -> None:
    iterator = iter(dataset.debug())
    _consume(iterator, moment)
    del iterator
    gc.collect()


def a_failure_of_what_is_stepped(dataset: Dataset[Any], moment: Moment) -> None:
    def function(*element: Any) -> Any:
        if moment.passed:
            moment.reached()
            raise InjectedError
        return element

    failing = dataset if ends_on_device(dataset) else dataset.map(function)
    with suppress(InjectedError), failing.debug() as loader:
        _consume(loader, moment)


def an_interrupt_of_what_is_stepped(dataset: Dataset[Any], moment: Moment) -> None:
    with suppress(KeyboardInterrupt), _interrupted(moment), dataset.debug() as loader:
        for _ in loader:
            if time.perf_counter() > moment.began_at + moment.after_s + AFTERWARDS_S:
                break


INSIDE: dict[str, Ending] = {
    ending.__name__.replace("_", " "): ending
    for ending in (
        the_end_of_the_stream,
        a_break,
        an_exception_in_the_loop_body,
        collecting_an_iterator_of_a_loader,
        collecting_the_iterator,
        collecting_the_loader_in_a_cycle,
        cancelling_the_consumers_task,
        cancelling_twice,
        leaving_an_async_iteration_over_the_data_set,
        closing_the_consumers_event_loop,
        closing_from_another_thread,
        closing_from_two_threads_at_once,
        a_failure_in_a_stage,
        a_failure_of_the_users_function,
        killing_a_worker_process,
        an_interrupt,
        an_interrupt_of_an_async_loop,
        forking,
        leaving_what_is_stepped,
        a_failure_of_what_is_stepped,
        an_interrupt_of_what_is_stepped,
    )
}
"""By name."""


def ends_on_device(dataset: Dataset[Any]) -> bool:
    """Return whether nothing can follow."""
    return isinstance(dataset.plan, ToDevice)


@contextmanager
def _later(moment: Moment, act: Callable[[], None]) -> Iterator[None]:
    """Call ``act`` on another thread at the moment, and let that thread end before the block is left."""

    def act_then() -> None:
        moment.reached()
        act()

    timer = threading.Timer(moment.left_s, act_then)
    timer.start()
    try:
        yield
    finally:
        timer.join()


@contextmanager
def _interrupted(moment: Moment) -> Iterator[None]:
    """Send this process SIGINT at the moment."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        moment.reached()
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, max(1e-6, moment.left_s))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _worker_processes() -> list[int]:
    """Return the children of this process, but for what multiprocessing keeps for as long as a process lives."""
    found: list[int] = []
    for task in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            found += [int(pid) for pid in task.read_text().split()]
    return [pid for pid in found if b"resource_tracker" not in _command(pid)]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b"resource_tracker"  # ended meanwhile: none to kill
