"""A loader that is left while a stage pauses before another attempt ends at once, however long the pause."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from leaks import leaves_nothing

from aiostream_data import Dataset, Retry
from aiostream_data.errors import LoaderClosedError

AGAIN = Retry(2, backoff_s=30.0)
NUMBERS = Dataset.range(1_000)
CLOSE_S = 2.0


def fails(mark: Path, value: Any) -> Any:
    mark.mkdir(exist_ok=True)  # at once: an interrupt between the steps of touch() would leave the file open
    raise ValueError(value)


async def fails_async(mark: Path, value: Any) -> Any:
    await asyncio.sleep(0)
    return fails(mark, value)


PAUSING: dict[str, Callable[[Path], Dataset[Any]]] = {
    "threads": lambda mark: NUMBERS.map(partial(fails, mark), on_error=AGAIN, concurrency=2),
    "one thread": lambda mark: NUMBERS.map(partial(fails, mark), on_error=AGAIN, executor="inline"),
    "processes": lambda mark: NUMBERS.map(partial(fails, mark), on_error=AGAIN, executor="process", concurrency=2),
    "coroutines": lambda mark: NUMBERS.map(partial(fails_async, mark), on_error=AGAIN),
    "filter": lambda mark: NUMBERS.filter(partial(fails, mark), on_error=AGAIN),
    "flat_map": lambda mark: NUMBERS.flat_map(partial(fails, mark), on_error=AGAIN),
    "a time limit": lambda mark: NUMBERS.map(partial(fails, mark), on_error=AGAIN, timeout=60.0),
    "in a process": lambda mark: NUMBERS.map(partial(fails, mark), on_error=AGAIN).in_subprocess(),
}


def wait_for(mark: Path) -> None:
    deadline = time.monotonic() + 30
    while not mark.exists():
        assert time.monotonic() < deadline, "the function was never called"
        time.sleep(0.01)  # another process cannot tell otherwise


@pytest.mark.parametrize("where", PAUSING)
def test_closing_does_not_wait_for_the_pause(where: str, tmp_path: Path) -> None:
    mark = tmp_path / "called"
    with leaves_nothing(), PAUSING[where](mark).open() as loader:
        wait_for(mark)
        started = time.monotonic()
        loader.close()
        assert time.monotonic() - started < CLOSE_S


@pytest.mark.parametrize("where", PAUSING)
def test_whoever_waits_for_the_pause_is_told_that_the_loader_was_closed(where: str, tmp_path: Path) -> None:
    mark = tmp_path / "called"
    with leaves_nothing():
        loader = PAUSING[where](mark).open()

        def close_then() -> None:
            wait_for(mark)
            loader.close()

        closer = threading.Thread(target=close_then)
        closer.start()
        with pytest.raises(LoaderClosedError):
            list(loader)
        closer.join()


def test_ctrl_c_ends_the_pause_of_what_is_stepped(tmp_path: Path) -> None:
    mark = tmp_path / "called"
    main = threading.get_ident()

    def interrupt_then() -> None:
        wait_for(mark)
        signal.pthread_kill(main, signal.SIGINT)

    interrupter = threading.Thread(target=interrupt_then)
    with leaves_nothing():
        interrupter.start()
        started = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            list(PAUSING["threads"](mark).debug())
        assert time.monotonic() - started < CLOSE_S
        interrupter.join()
