"""What all loaders of this process share, by name: made when it is first asked for, and lost in a forked child."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class OfProcess(Generic[T]):
    """Lives as long as the process. Safe from any thread.

    Args:
        make: Makes what a name stands for.
        most: How many are remembered; those that were used last.
    """

    def __init__(self, make: Callable[[], T], most: int) -> None:
        self._make = make
        self._most = most
        self._known: OrderedDict[str, T] = OrderedDict()
        self._lock = threading.Lock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._begin_anew)

    def named(self, name: str) -> T:
        """Return what the name stands for."""
        with self._lock:
            found = self._known.get(name)
            if found is not None:
                self._known.move_to_end(name)
                return found
            found = self._known[name] = self._make()
            while len(self._known) > self._most:
                self._known.popitem(last=False)
        return found

    def _begin_anew(self) -> None:
        # In a forked child: what is on its way is the parent's, and so may be whoever holds the lock.
        self._lock = threading.Lock()
        self._known.clear()
