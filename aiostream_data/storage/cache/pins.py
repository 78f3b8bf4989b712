"""Registry of objects that are being read and must not be evicted."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


class Pins:
    """Keys of the cached objects that are being read, with the number of current reads per key. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    @contextmanager
    def holding(self, key: str) -> Iterator[None]:
        """Protect the object ``key`` from eviction during the block."""
        with self._lock:
            self._counts[key] += 1
        try:
            yield
        finally:
            with self._lock:
                self._counts[key] -= 1
                if not self._counts[key]:
                    del self._counts[key]

    def keys(self) -> frozenset[str]:
        """Return the pinned keys."""
        with self._lock:
            return frozenset(self._counts)
