"""How often, and for how long, somebody waited for something."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import monotonic
from typing import Self


@dataclass(slots=True)
class Waits:
    """Waits of one kind. Written by one thread, or under a lock.

    Attributes:
        count: Those that have begun.
        seconds: What those took that are over.
        since: ``time.monotonic()`` when the one began that is not over; None where there is none.
    """

    count: int = 0
    seconds: float = 0.0
    since: float | None = None

    def add(self, seconds: float) -> None:
        """Note a wait that is over."""
        self.count += 1
        self.seconds += seconds

    @property
    def so_far(self) -> float:
        """Seconds, those of a wait that is not over included."""
        since = self.since
        return self.seconds + (0.0 if since is None else monotonic() - since)

    @contextmanager
    def beside(self, other: Waits) -> Iterator[None]:
        """Begin a wait that ends with the block; seconds in which ``other`` waits, too, do not count."""
        began, before = monotonic(), other.so_far
        try:
            yield
        finally:
            self.add(max(0.0, monotonic() - began - (other.so_far - before)))

    def copy(self) -> Waits:
        """Return the same, as it is now."""
        return replace(self)

    def __enter__(self) -> Self:
        """Begin a wait that ends with the block; one at a time."""
        self.count += 1
        self.since = monotonic()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.seconds, self.since = self.so_far, None
