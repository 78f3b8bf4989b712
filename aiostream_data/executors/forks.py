"""Close the links to worker processes in forked children of this process. Only the parent may use the links.

A forked child process inherits copies of all file descriptors. If a child kept a copy of a link open, the worker and
the parent could not detect when the other process ends.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class NotForForks(Protocol):
    """An object with file descriptors that a forked child process must close."""

    def let_go(self) -> None:
        """Close all descriptors of this object in this process, without notifying the other end.

        The method must not take a lock.
        """


_open: weakref.WeakSet[NotForForks] = weakref.WeakSet()


def keep_from_forks(thing: NotForForks) -> None:
    """Register an object. Every forked child process calls the object's ``let_go`` method when the child starts."""
    _open.add(thing)


def _let_go_of_all() -> None:
    for thing in list(_open):
        thing.let_go()
    _open.clear()


if hasattr(os, "register_at_fork"):  # not on every platform
    os.register_at_fork(after_in_child=_let_go_of_all)
