"""Process-wide registry of shared objects by name. Objects are created on first use. A forked child process starts with
an empty registry."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class OfProcess(Generic[T]):
    """Registry of objects by name, with least-recently-used eviction. Thread-safe.

    Args:
        make: Function that creates the object for a new name.
        most: Maximum number of objects to keep.
    """

    def __init__(self, make: Callable[[], T], most: int) -> None:
        self._make = make
        self._most = most
        self._known: OrderedDict[str, T] = OrderedDict()
        self._lock = threading.Lock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._begin_anew)

    def named(self, name: str) -> T:
        """Return the object registered under a name. Create the object if it does not exist."""
        with self._lock:
            found = self._known.get(name)
            if found is not None:
                self._known.move_to_end(name)
                return found
            found = self._known[name] = self._make()
            while len(self._known) > self._most:
                self._known.popitem(last=False)
        return found

    def all(self) -> dict[str, T]:
        """Return all objects by name, the least recently used first."""
        with self._lock:
            return dict(self._known)

    def _begin_anew(self) -> None:
        # Runs in a forked child: a thread of the parent may hold the lock, and its requests belong to the parent.
        self._lock = threading.Lock()
        self._known.clear()
