"""Stop the loaders that are still open when the interpreter exits."""

from __future__ import annotations

import atexit
import os
import weakref
from typing import Protocol


class Stoppable(Protocol):
    """Interface for engines that can be stopped.

    Attributes:
        pid: ID of the process in which the engine runs.
    """

    pid: int

    def stop_soon(self) -> None:
        """Ask the engine to stop, without waiting for it."""

    def stop(self) -> None:
        """Stop the engine and wait a limited time for it to end."""


_running: weakref.WeakSet[Stoppable] = weakref.WeakSet()


def stop_at_exit(running: Stoppable) -> None:
    """Register the engine ``running``, so that it is stopped when the interpreter exits.

    :func:`has_stopped` cancels the registration.
    """
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
