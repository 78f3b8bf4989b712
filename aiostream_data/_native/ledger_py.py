"""Count bytes of a memory budget: the pure-Python version of ``ledger.pyx``.

Unlike the native version, these finalizers lose an interrupt (Ctrl-C) that comes while they run.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import final


def finish(function: Callable[[], object], *_: object) -> None:
    """Call ``function()``, from a finalizer. The native version also protects the call from signal handlers.

    If a signal handler raises an exception during the call, such as KeyboardInterrupt, the native version calls the
    function again. It raises the exception in the main thread after the finalizer. So the function must allow a second
    call. In other threads, which run no signal handlers, an exception of the function propagates.

    Args:
        _: Ignored, so that a ``functools.partial`` of ``finish`` can be the callback of a weak reference.
    """
    function()


class Ledger:
    """Bytes in use by memory category.

    Args:
        flowing: Categories that the counter ``flowing`` includes.

    Attributes:
        used, peak: Number of bytes currently counted, and the maximum of this number so far.
        flowing: Number of bytes currently counted in the categories ``flowing``.
        gathering: Number of incomplete records that pass alone.
        passing: Number of all records that pass alone, including complete ones that are still held.
        is_awaited: True while :meth:`look_again` has to be called after each release.
    """

    def __init__(self, flowing: Iterable[str] = ()) -> None:
        self.used = 0
        self.peak = 0
        self.flowing = 0
        self.gathering = 0
        self.passing = 0
        self.is_awaited = False
        self._flowing = frozenset(flowing)
        self._categories: dict[str, tuple[int, int]] = {}
        # Re-entrant, because a garbage collection inside the locked region may end another charge.
        self._lock = threading.RLock()
        _ledgers.add(self)

    def look_again(self) -> None:
        """Do nothing. Subclasses override this method to notify waiters.

        While ``is_awaited`` is True, the ledger calls this method after each release, in the thread of the release. The
        ledger can call it twice for one release.
        """

    @property
    def holders(self) -> dict[str, tuple[int, int]]:
        """The current and the peak number of bytes for each memory category that has ever been used."""
        return {name: counts for name, counts in self._categories.items() if counts[1]}

    def held_by(self, holder: str) -> int:
        """Return the number of bytes currently counted in a memory category."""
        return self._categories.get(holder, (0, 0))[0]

    def _count(self, holder: str, change: int) -> None:
        with self._lock:
            self.used += change
            self.peak = max(self.peak, self.used)
            used, peak = self._categories.get(holder, (0, 0))
            used += change
            self._categories[holder] = (used, max(peak, used))
            if holder in self._flowing:
                self.flowing += change
        if change < 0 and self.is_awaited:
            finish(self.look_again)

    def _count_alone(self, gathering: int = 0, held: int = 0) -> None:
        with self._lock:
            self.gathering += gathering
            self.passing += held
        if self.is_awaited and (gathering < 0 or held < 0):
            finish(self.look_again)


@final
class Charge:
    """Bytes counted in a ledger until this object is deleted or :meth:`end` is called."""

    __slots__ = ("_holder", "ledger", "nbytes")

    def __init__(self, ledger: Ledger, nbytes: int, holder: str) -> None:
        self.ledger = ledger
        self._holder = holder
        self.nbytes = 0
        self.resize(nbytes)

    def resize(self, nbytes: int) -> None:
        """Change the number of bytes counted by this charge."""
        change, self.nbytes = nbytes - self.nbytes, nbytes
        if change:
            self.ledger._count(self._holder, change)

    def end(self) -> None:
        """Release the bytes. The method is idempotent and can be called from any thread."""
        self.resize(0)

    def __del__(self) -> None:
        if self.nbytes:
            self.end()


@final
class Alone:
    """Permit to collect one record that is larger than its share of the memory limit.

    The permit ends when the last chunk that uses the permit as its lease is deleted.
    """

    __slots__ = ("_is_gathered", "ledger")

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._is_gathered = False
        ledger._count_alone(gathering=1, held=1)

    def gathered(self) -> None:
        """Mark the large record as completely received. Callable from any thread."""
        if not self._is_gathered:
            self._is_gathered = True
            self.ledger._count_alone(gathering=-1)

    def __del__(self) -> None:
        self.gathered()
        self.ledger._count_alone(held=-1)


_ledgers: weakref.WeakSet[Ledger] = weakref.WeakSet()


def _renew_locks() -> None:
    """Replace the locks in a forked child process, where a lock held by a thread of the parent is never released."""
    for ledger in list(_ledgers):
        ledger._lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)
