"""Close links in forked children of this process, because links must end with the parent.

A forked child inherits copies of all descriptors. While the child holds them, a worker cannot detect that the parent
ended, nor the parent that a worker ended.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class NotForForks(Protocol):
    """An object whose descriptors a forked child must close."""

    def let_go(self) -> None:
        """Close all descriptors in this process without notifying the other end. Must not take a lock."""


_open: weakref.WeakSet[NotForForks] = weakref.WeakSet()


def keep_from_forks(thing: NotForForks) -> None:
    """Register ``thing`` so that every forked child calls ``thing.let_go()``."""
    _open.add(thing)


def _let_go_of_all() -> None:
    for thing in list(_open):
        thing.let_go()
    _open.clear()


if hasattr(os, "register_at_fork"):  # not on every platform
    os.register_at_fork(after_in_child=_let_go_of_all)
