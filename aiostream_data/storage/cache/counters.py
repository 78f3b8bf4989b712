"""Counters of a shard cache."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Protocol


@dataclass(slots=True)
class CacheStats:
    """What a shard cache did in this process.

    Attributes:
        hits: Reads that needed no request.
        misses: Reads that did, for all or some of their bytes.
        unversioned: Reads of objects whose store tells no version, which passed the cache by.
        nbytes: Bytes that came out of the cache.
        kept_nbytes: Bytes that were put into it.
        evictions, evicted_nbytes: Pieces removed to make room, and the room that they took.
        passed: Pieces not kept, since there was no room to be had, or the disk had failed shortly before.
        damaged: Pieces whose checksum did not hold; they were removed and read from the store.
        failures: Times that the disk refused to be read or written.
    """

    hits: int = 0
    misses: int = 0
    unversioned: int = 0
    nbytes: int = 0
    kept_nbytes: int = 0
    evictions: int = 0
    evicted_nbytes: int = 0
    passed: int = 0
    damaged: int = 0
    failures: int = 0

    def as_dict(self) -> dict[str, int]:
        return asdict(self)


class TellsCacheStats(Protocol):
    """An object that keeps counters of a cache."""

    def stats(self) -> CacheStats: ...


class CacheCounters:
    """Counters that several threads write, and what was said once and is not said again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stats = CacheStats()
        self._said: set[str] = set()
        self._here = threading.local()

    def add(self, **amounts: int) -> None:
        """Add to the counters of these names."""
        with self._lock:
            for name, amount in amounts.items():
                setattr(self._stats, name, getattr(self._stats, name) + amount)
        heard: Counter[str] | None = getattr(self._here, "heard", None)
        if heard is not None:
            heard.update(amounts)

    @contextmanager
    def overheard(self) -> Iterator[Counter[str]]:
        """Lend what this thread counts inside of the block, whatever others count meanwhile."""
        self._here.heard = heard = Counter[str]()
        try:
            yield heard
        finally:
            self._here.heard = None

    def is_first(self, kind: str) -> bool:
        """Return True to the first who asks with this word, however often the cache was closed and opened since."""
        with self._lock:
            is_first = kind not in self._said
            self._said.add(kind)
            return is_first

    def stats(self) -> CacheStats:
        """Return a copy."""
        with self._lock:
            return replace(self._stats)
