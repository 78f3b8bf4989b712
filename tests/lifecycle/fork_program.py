"""A program that forks while a loader is open; its child tries all that the loader offers, and ends as programs do.

``python fork_program.py STAGE HOW ENDINGS SHARD...``, where HOW is "open" or "debug". ENDINGS are names, with commas
between them, of ways in which a child ends the loader: for each there is another child. It prints what was neither
refused nor let go of at once, and nothing else.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from pipelines import EVERY_STAGE

from aiostream_data import Loader
from aiostream_data.errors import ForkedPipelineError

ANSWER_S = 1.0
"""Within which everything in the child has to be answered."""

HANG_S = 20.0
"""After which a child that hangs says where, and ends."""


async def _enter(loader: Loader[Any]) -> None:
    async with loader:
        pass


async def _take(loader: Loader[Any]) -> None:
    await anext(loader)


async def _iterate(loader: Loader[Any]) -> None:
    async for _ in loader:
        pass


REFUSED: dict[str, Callable[[Loader[Any]], Any]] = {
    "__iter__": iter,
    "__aiter__": aiter,
    "__anext__": lambda loader: asyncio.run(_take(loader)),
    "__enter__": lambda loader: loader.__enter__(),
    "__aenter__": lambda loader: asyncio.run(_enter(loader)),
    "async for": lambda loader: asyncio.run(_iterate(loader)),
    "wait_ready": Loader.wait_ready,
    "state_dict": Loader.state_dict,
    "stats": Loader.stats,
    "report": Loader.report,
    "dump": Loader.dump,
    "debug": Loader.debug,
    "last_ids": lambda loader: loader.last_ids,
    "origins": Loader.origins,
    "stream_hash": lambda loader: loader.stream_hash,
    "skip": lambda loader: loader.skip(1),
    "block": lambda loader: loader.block(["file:///none"]),
    "replay": lambda loader: loader.replay(0, 1),
    "set_weights": lambda loader: loader.set_weights([0.5, 0.5]),
}
"""By the name of what the child does: all that a loader offers, but for ending it."""

LETS_GO: dict[str, Callable[[Loader[Any]], Any]] = {
    "close": Loader.close,
    "aclose": lambda loader: asyncio.run(loader.aclose()),
    "__exit__": lambda loader: loader.__exit__(None, None, None),
    "__aexit__": lambda loader: asyncio.run(loader.__aexit__(None, None, None)),
    "nothing": lambda loader: None,
}
"""How the child ends it."""


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


def try_all(loader: Loader[Any], uses: dict[str, Callable[[Loader[Any]], Any]]) -> None:
    for name, use in uses.items():
        started = time.perf_counter()
        try:
            use(loader)
            say(f"{name} was not refused")
        except ForkedPipelineError:
            pass
        except Exception as error:
            say(f"{name}: {type(error).__name__}: {error}")
        check_time(name, started)


def check_time(name: str, started: float) -> None:
    took_s = time.perf_counter() - started
    if took_s > ANSWER_S:
        say(f"{name} took {took_s:.1f} s")


def child(loader: Loader[Any], iterator: Iterator[Any], ending: str) -> None:
    faulthandler.dump_traceback_later(HANG_S, exit=True)
    try_all(loader, {**REFUSED, "__next__": lambda _: next(iterator)})
    started = time.perf_counter()
    LETS_GO[ending](loader)
    check_time(ending, started)
    if ending != "nothing":
        try_all(loader, REFUSED)


def main(stage: str, how: str, endings: list[str], shards: list[str]) -> None:
    dataset = EVERY_STAGE[stage](shards)
    for number, ending in enumerate(endings):
        with dataset.debug() if how == "debug" else dataset.open() as loader:
            iterator = iter(loader)
            for _ in islice(iterator, number):
                pass
            pid = os.fork()
            if pid == 0:
                child(loader, iterator, ending)
                sys.exit(0)  # as programs do: destructors run, and complain
            if os.waitpid(pid, 0)[1] != 0:
                say(f"the child that did {ending} did not end well")
            next(iterator)  # goes on here


if __name__ == "__main__":
    warnings.simplefilter("ignore", DeprecationWarning)  # of fork beside threads: what is tested here
    main(sys.argv[1], sys.argv[2], sys.argv[3].split(","), sys.argv[4:])
