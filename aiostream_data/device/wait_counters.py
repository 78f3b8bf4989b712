"""Count waits of threads and measure their duration."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import monotonic
from typing import Self


@dataclass(slots=True)
class Waits:
    """Number and duration of waits for one resource.

    If several threads change the values, the threads must hold a lock.

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
        """Measure the duration of the ``with`` block as one wait, minus the time in which ``other`` also waits."""
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

        Only one ``with`` block at a time may measure a wait.
        """
        self.count += 1
        self.since = monotonic()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.seconds, self.since = self.so_far, None
