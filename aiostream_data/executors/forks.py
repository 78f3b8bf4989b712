"""Close links in a process that the user forks: only the parent may use them, and they must end with it.

A forked child has copies of all descriptors. While it holds them, a worker would not see that the parent
died, and the parent would not see that a worker did.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class NotForForks(Protocol):
    """Something that a forked child must let go of."""

    def let_go(self) -> None:
        """Close all descriptors of this process, and say nothing to the other end. Must take no lock."""


_open: weakref.WeakSet[NotForForks] = weakref.WeakSet()


def keep_from_forks(thing: NotForForks) -> None:
    """Have ``thing.let_go()`` called in every child that this process forks from now on."""
    _open.add(thing)


def _let_go_of_all() -> None:
    for thing in list(_open):
        thing.let_go()
    _open.clear()


if hasattr(os, "register_at_fork"):  # not on every platform
    os.register_at_fork(after_in_child=_let_go_of_all)
