"""Programs that tests run, interrupt and leave: ``python programs.py NAME ARGUMENTS``.

Each prints "ready" when its loader is running.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

from pipelines import STAGES, same

from aiostream_data import Dataset

PROCESSES = "process map"


def _dataset(stage: str, shards: list[str]) -> Dataset[Any]:
    if stage == PROCESSES:
        return Dataset.range(10_000_000).map(same, executor="process", concurrency=2)
    return STAGES[stage](shards)


def _ready() -> None:
    print("ready", flush=True)  # noqa: T201 - read by the test


def train(dataset: Dataset[Any]) -> None:
    """Iterate in a plain loop, for ever."""
    with dataset.open() as loader:
        for number, _ in enumerate(loader):
            if number == 0:
                _ready()
            time.sleep(0.001)
        time.sleep(60)


def train_async(dataset: Dataset[Any]) -> None:
    """Iterate in an async loop, for ever."""

    async def main() -> None:
        async with dataset.open() as loader:
            number = 0
            async for _ in loader:
                if number == 0:
                    _ready()
                number += 1
                await asyncio.sleep(0.001)
            await asyncio.sleep(60)

    asyncio.run(main())


def leave_open(dataset: Dataset[Any]) -> None:
    """Return, and so end the program, with a loader open and referred to."""
    global kept
    kept = dataset.open()
    next(iter(kept))
    _ready()


def leave_iterator(dataset: Dataset[Any]) -> None:
    """Return with an iteration begun and referred to."""
    global kept
    kept = iter(dataset)
    next(kept)
    _ready()


def fail(dataset: Dataset[Any]) -> None:
    """End with an exception while the loader is open outside any block."""
    leave_open(dataset)
    raise SystemExit(7)


kept: Any = None

if __name__ == "__main__":
    program = {function.__name__: function for function in (train, train_async, leave_open, leave_iterator, fail)}
    program[sys.argv[1]](_dataset(sys.argv[2], sys.argv[3:]))
