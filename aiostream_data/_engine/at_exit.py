"""Stop the loaders that are still open when the interpreter exits."""

from __future__ import annotations

import atexit
import os
import weakref
from typing import Protocol


class Stoppable(Protocol):
    """What is running until it is stopped.

    Attributes:
        pid: Process that it runs in.
    """

    pid: int

    def stop_soon(self) -> None:
        """Ask everything to stop, without waiting."""

    def stop(self) -> None:
        """Stop, and wait for that a bounded time."""


_running: weakref.WeakSet[Stoppable] = weakref.WeakSet()


def stop_at_exit(running: Stoppable) -> None:
    """Have ``running`` stopped when the interpreter exits, unless :func:`has_stopped` is called before."""
    _running.add(running)


def has_stopped(running: Stoppable) -> None:
    """Mark ``running`` as stopped."""
    _running.discard(running)


def _stop_all() -> None:
    here = [running for running in list(_running) if running.pid == os.getpid()]
    for running in here:
        running.stop_soon()
    for running in here:
        running.stop()


atexit.register(_stop_all)
