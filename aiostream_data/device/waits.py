"""Measure how often and for how long threads wait."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import monotonic
from typing import Self


@dataclass(slots=True)
class Waits:
    """Number and duration of waits for one resource.

    Only one thread may change the values, unless the callers hold a lock.

    Attributes:
        count: Number of waits that have begun.
        seconds: Total duration of finished waits.
        since: ``time.monotonic()`` at the start of the unfinished wait; None if no wait is in progress.
    """

    count: int = 0
    seconds: float = 0.0
    since: float | None = None

    def add(self, seconds: float) -> None:
        """Count one finished wait of ``seconds`` seconds."""
        self.count += 1
        self.seconds += seconds

    @property
    def so_far(self) -> float:
        """Total duration of waits in seconds, including an unfinished wait."""
        since = self.since
        return self.seconds + (0.0 if since is None else monotonic() - since)

    @contextmanager
    def beside(self, other: Waits) -> Iterator[None]:
        """Count the time of the ``with`` block as a wait, without the seconds in which ``other`` also waits."""
        began, before = monotonic(), other.so_far
        try:
            yield
        finally:
            self.add(max(0.0, monotonic() - began - (other.so_far - before)))

    def copy(self) -> Waits:
        """Return a copy with the current values."""
        return replace(self)

    def __enter__(self) -> Self:
        """Begin a wait that ends when the ``with`` block ends.

        Only one wait that was begun by a ``with`` block may be in progress.
        """
        self.count += 1
        self.since = monotonic()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.seconds, self.since = self.so_far, None
