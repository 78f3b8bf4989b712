"""Many ranks at the cost of one start of Python: ``python forked_ranks.py PROGRAM WORLD REQUEST``.

PROGRAM is a module with a function ``main`` from a request to an answer, both JSON. Every rank runs it as a process of
its own, forked when everything is imported and nothing is open, and finds out from its environment which one it is.
Prints as JSON the exit code, the answer (null if there is none) and the errors of each rank.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

from aiostream_data import Dataset

AT_A_TIME = 4
"""Processes. No rank waits for another one."""

Main = Callable[[dict[str, Any]], dict[str, Any]]


def run_all(main: Main, world: int, request: dict[str, Any], folder: Path) -> list[tuple[int, Any, str]]:
    """Run every rank and return the exit code, answer and errors of each."""
    codes: dict[int, int] = {}
    running: dict[int, int] = {}
    for rank in range(world):
        if len(running) == AT_A_TIME:
            _wait_for_one(running, codes)
        pid = os.fork()
        if pid == 0:
            _run_and_exit(main, rank, world, request, folder)
        running[pid] = rank
    while running:
        _wait_for_one(running, codes)
    return [(codes[rank], *_left_by(rank, folder)) for rank in range(world)]


def warm_up() -> None:
    """Let be imported what opening a data set imports: it takes most of the time of a small run."""
    with Dataset.from_text(__file__).shuffle(2).batch(2).open() as loader:
        next(iter(loader))


def _wait_for_one(running: dict[int, int], codes: dict[int, int]) -> None:
    pid, status = os.wait()
    codes[running.pop(pid)] = os.waitstatus_to_exitcode(status)


def _run_and_exit(main: Main, rank: int, world: int, request: dict[str, Any], folder: Path) -> NoReturn:
    code = 1
    try:
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(world))
        errors = os.open(folder / f"{rank}.errors", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        os.dup2(errors, 2)
        (folder / f"{rank}.answer").write_text(json.dumps(main(request)))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _left_by(rank: int, folder: Path) -> tuple[Any, str]:
    answer, errors = folder / f"{rank}.answer", folder / f"{rank}.errors"
    return json.loads(answer.read_text()) if answer.exists() else None, errors.read_text() if errors.exists() else ""


if __name__ == "__main__":
    warm_up()
    with TemporaryDirectory() as temporary:
        program: Main = importlib.import_module(sys.argv[1]).main
        json.dump(run_all(program, int(sys.argv[2]), json.loads(sys.argv[3]), Path(temporary)), sys.stdout)
