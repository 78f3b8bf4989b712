"""Functions that say which process they run in, or have a signal stop it; imported by worker processes."""

from __future__ import annotations

import os
import signal
from pathlib import Path


def process_ids(number: int) -> tuple[int, int]:
    """Return the parent of this process, and this process."""
    return os.getppid(), os.getpid()


def stops_at_5(number: int) -> int:
    if number == 5:
        os.kill(os.getpid(), signal.SIGSTOP)
    return int(number)


class StopsOnceWhenLearned:
    """A function whose first unpickling stops the process. The folder remembers that it did."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, number: int) -> int:
        return int(number)

    def __reduce__(self) -> tuple[object, ...]:
        return _learned, (self._folder,)


def _learned(folder: Path) -> StopsOnceWhenLearned:
    try:
        (folder / "stopped").mkdir()
    except FileExistsError:
        return StopsOnceWhenLearned(folder)
    os.kill(os.getpid(), signal.SIGSTOP)
    return StopsOnceWhenLearned(folder)
