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
    """Counters of one shard cache in this process.

    Attributes:
        hits: Reads served completely from the cache, without a request to the store.
        misses: Reads that requested some or all bytes from the store.
        unversioned: Reads that bypassed the cache because the store reports no version of the object.
        nbytes: Bytes read from the cache.
        kept_nbytes: Bytes written to the cache.
        evictions, evicted_nbytes: Number and size in bytes of the pieces removed to make room.
        passed: Pieces that were not stored, because the cache was full or a disk write had recently failed.
        damaged: Pieces with a wrong checksum. The cache removes damaged pieces, and the store serves the bytes.
        failures: Number of failed disk reads and writes.
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
    """An object whose method ``stats`` returns cache counters."""

    def stats(self) -> CacheStats: ...


class CacheCounters:
    """Thread-safe cache counters, with a record of the kinds of warnings that were already logged."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stats = CacheStats()
        self._said: set[str] = set()
        self._here = threading.local()

    def add(self, **amounts: int) -> None:
        """Add each amount to the counter with the name of the argument."""
        with self._lock:
            for name, amount in amounts.items():
                setattr(self._stats, name, getattr(self._stats, name) + amount)
        heard: Counter[str] | None = getattr(self._here, "heard", None)
        if heard is not None:
            heard.update(amounts)

    @contextmanager
    def overheard(self) -> Iterator[Counter[str]]:
        """Yield a ``Counter`` of the amounts that the current thread adds inside the block."""
        self._here.heard = heard = Counter[str]()
        try:
            yield heard
        finally:
            self._here.heard = None

    def is_first(self, kind: str) -> bool:
        """Return True on the first call with this kind of warning.

        Reopening the cache does not reset the recorded warnings.
        """
        with self._lock:
            is_first = kind not in self._said
            self._said.add(kind)
            return is_first

    def stats(self) -> CacheStats:
        """Return a copy of the counters."""
        with self._lock:
            return replace(self._stats)
