"""Which objects are being read now, and must not be evicted."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


class Pins:
    """Keys of objects, each as often as it is in use. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    @contextmanager
    def holding(self, key: str) -> Iterator[None]:
        """Hold a key during the block."""
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
        """Return the keys that are held now."""
        with self._lock:
            return frozenset(self._counts)
