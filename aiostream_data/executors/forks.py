"""Close the links to worker processes in forked children of this process, because only the parent may use the links.

A forked child process inherits copies of all file descriptors. An open copy of a link prevents a worker from detecting
that the parent ended, and the parent from detecting that a worker ended.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class NotForForks(Protocol):
    """An object whose file descriptors a forked child process must close."""

    def let_go(self) -> None:
        """Close all descriptors of this object in this process, without notifying the other end.

        The method must not take a lock.
        """


_open: weakref.WeakSet[NotForForks] = weakref.WeakSet()


def keep_from_forks(thing: NotForForks) -> None:
    """Register ``thing``, so that every forked child process calls ``thing.let_go()`` at its start."""
    _open.add(thing)


def _let_go_of_all() -> None:
    for thing in list(_open):
        thing.let_go()
    _open.clear()


if hasattr(os, "register_at_fork"):  # not on every platform
    os.register_at_fork(after_in_child=_let_go_of_all)
