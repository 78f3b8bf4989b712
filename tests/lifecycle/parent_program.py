"""A program with worker processes in a given condition, to be killed: ``python parent_program.py CONDITION``.

Prints the process ids of its workers when they are in it.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from aiostream_data import Dataset
from aiostream_data.executors.process import ProcessExecutor


def idle(path: str) -> None:
    Path(path).touch()


def asleep(path: str) -> None:
    Path(path).touch()
    time.sleep(600)


def holding_the_lock(path: str) -> None:
    """Run a regular expression that takes ages, and lets no other Python thread run meanwhile."""
    Path(path).touch()
    re.match(r"(a+)+$", "a" * 60 + "b")


def sending(path: str) -> Any:
    Path(path).touch()
    return np.ones(200 << 20, np.uint8)


def deaf(path: str) -> None:
    """Ignore what can be ignored of signals."""
    import signal

    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    asleep(path)


def forked(path: str) -> None:
    asleep(path)


FUNCTIONS = (idle, asleep, holding_the_lock, sending, deaf, forked)
CONDITIONS = {function.__name__: function for function in FUNCTIONS}


def _fork() -> int:
    """Leave a copy of this process that holds whatever a fork is not kept from."""
    pid = os.fork()
    if pid == 0:
        os.close(1)
        time.sleep(600)
    return pid


async def workers(condition: str, folder: str) -> None:
    executor = ProcessExecutor(2, "test")
    marks = [os.path.join(folder, f"{number}") for number in range(2)]
    await asyncio.gather(*(executor.submit(os.getpid) for _ in range(4)))
    calls = [executor.submit(CONDITIONS[condition], mark) for mark in marks]
    while not all(map(os.path.exists, marks)):
        await asyncio.sleep(0.01)
    left_behind = _fork() if condition == "forked" else None
    print(*executor.pids, flush=True)  # noqa: T201 - read by the test
    if left_behind is not None:
        print(left_behind, flush=True)  # noqa: T201 - read by the test
    await asyncio.gather(*calls)
    await asyncio.sleep(600)


def double(number: int) -> int:
    return 2 * number


def epoch() -> None:
    print(sum(Dataset.range(1000).map(double, executor="process", concurrency=2)))  # noqa: T201 - read by the test


if __name__ == "__main__":
    if sys.argv[1] == "epoch":
        epoch()
    else:
        asyncio.run(workers(*sys.argv[1:]))
