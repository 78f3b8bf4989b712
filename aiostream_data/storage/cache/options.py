"""User options of a shard cache, and the open cache that all loaders of a process share."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from aiostream_data.arguments import local_path
from aiostream_data.errors import PlanError
from aiostream_data.metrics.sizes import as_nbytes, as_size
from aiostream_data.storage.cache.counters import CacheCounters, CacheStats

if TYPE_CHECKING:
    from aiostream_data.storage.cache.base import PieceStore

LEAST_LIMIT: Final = 16 << 20
"""Smallest allowed limit in bytes: a smaller cache could hold only a few pieces."""


@dataclass(frozen=True, eq=False)
class ShardCache:
    """Cache of remote shards on local disk or in memory, for later epochs and other processes.

    Pass the cache to ``dataset.open(shard_cache=...)``. Several loaders can share one cache. Any number of processes
    and hosts can share the cache folder. Cache keys contain the URL, version and size of an object, so a replaced
    object is read again from its store.

    Args:
        path: Cache folder, created if missing. Other files in the folder stay unchanged. If None, data is cached in the
            memory of this process until this :class:`ShardCache` is deleted. A memory cache does not count toward the
            memory limit of the loaders. Worker processes and pickled copies start with an empty memory cache.
        limit: Maximum size of the cache, as a number of bytes or a string such as "200GB". The limit applies to all
            processes that share the folder. The limit is required for a memory cache. The default for a disk cache is a
            quarter of the file system. Objects that were not used for a long time are evicted first.
        trust: Also cache objects whose store reports no version. Such objects must never be replaced.
        local: Also cache local files, for example from a slow network file system.

    Raises:
        PlanError: The limit is not a number of bytes, is too small, or is missing for a memory cache.
    """

    path: str | os.PathLike[str] | None = None
    limit: int | str | None = field(default=None, kw_only=True)
    trust: bool = field(default=False, kw_only=True)
    local: bool = field(default=False, kw_only=True)
    _shared: Shared = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.path is not None:
            local_path("the path of a shard cache", self.path, "a folder or None")
        if self.path is None and self.limit is None:
            raise PlanError("a shard cache in memory needs a limit, such as limit='4GB'")
        nbytes = None if self.limit is None else as_nbytes(self.limit, "the limit of a shard cache")
        if nbytes is not None and nbytes < LEAST_LIMIT:
            raise PlanError(f"the limit of a shard cache must be at least {as_size(LEAST_LIMIT)}, got {self.limit!r}")
        path = None if self.path is None else os.path.abspath(os.path.expanduser(os.fspath(self.path)))
        object.__setattr__(self, "_shared", Shared(path, nbytes))

    @classmethod
    def of(cls, value: ShardCache | str | os.PathLike[str] | None) -> ShardCache | None:
        """Convert the argument ``shard_cache`` to a :class:`ShardCache`. A path is converted to a cache in this folder.

        Raises:
            PlanError: The value is neither a path nor a ``ShardCache``.
        """
        if value is None or isinstance(value, ShardCache):
            return value
        if not isinstance(value, (str, os.PathLike)):
            raise PlanError(f"shard_cache must be a ShardCache or the path of a folder, got {value!r}")
        return cls(value)

    def stats(self) -> CacheStats:
        """Return the counters of the cache in this process. Thread-safe."""
        return self._shared.counters.stats()

    def held_nbytes(self) -> tuple[int, int] | None:
        """Return the current and peak size of a memory cache in bytes, or None for a disk cache. Thread-safe."""
        return None if self.path is not None else self._shared.held_nbytes()

    def worst_nbytes(self) -> int:
        """Return the maximum number of bytes that the cache keeps in the memory of each process."""
        return 0 if self.path is not None else self._shared.limit or LEAST_LIMIT

    def lease(self) -> CacheLease:
        """Return a lease: an object with which one store opens and closes the cache."""
        return CacheLease(self._shared)

    def counters(self) -> CacheCounters:
        """Return the counters shared by all stores that use this cache."""
        return self._shared.counters

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (self.path, self.limit, self.trust, self.local))


def _rebuild(path: str | os.PathLike[str] | None, limit: int | str | None, trust: bool, local: bool) -> ShardCache:
    return ShardCache(path, limit=limit, trust=trust, local=local)


class Shared:
    """The open cache that all loaders of a process share.

    The first loader opens the cache, and the last loader closes it.
    """

    def __init__(self, path: str | None, limit: int | None) -> None:
        self.counters = CacheCounters()
        self._path = path
        self.limit = limit
        self._lock = threading.Lock()
        self._pieces: PieceStore | None = None
        self._users = 0
        self._pid = os.getpid()

    def acquire(self) -> PieceStore:
        """Register one more user of the cache and return the open cache. Blocking.

        Raises:
            ShardCacheError: The cache folder cannot be used.
        """
        with self._lock:
            if self._pid != os.getpid():  # after a fork: the open cache and its file names belong to the parent
                self._pieces, self._users, self._pid = None, 0, os.getpid()
            if self._pieces is None:
                self._pieces = self._opened()
            self._users += 1
            return self._pieces

    def release(self) -> None:
        """Unregister a user.

        When the last user is unregistered, a disk cache is closed, but a memory cache keeps its data.
        """
        with self._lock:
            self._users -= 1
            if self._users == 0 and self._pieces is not None and self._path is not None:
                self._pieces.close()
                self._pieces = None

    def held_nbytes(self) -> tuple[int, int]:
        """Return the current and peak size of the memory cache in bytes."""
        pieces: Any = self._pieces
        return (0, 0) if pieces is None else (pieces.nbytes, pieces.peak_nbytes)

    def _opened(self) -> PieceStore:
        if self._path is None:
            from aiostream_data.storage.cache.memory import PieceMemory

            return PieceMemory(self.limit or LEAST_LIMIT, self.counters)
        from aiostream_data.storage.cache.folder import PieceFolder

        return PieceFolder(self._path, self.limit, self.counters)


class CacheLease:
    """Registration of one store as a user of a shared cache. Thread-safe."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._lock = threading.Lock()
        self._pieces: PieceStore | None = None

    def open(self) -> PieceStore:
        """Return the open cache. The first call registers this user of the cache, and can block.

        Raises:
            ShardCacheError: The cache folder cannot be used.
        """
        with self._lock:
            if self._pieces is None:
                self._pieces = self._shared.acquire()
            return self._pieces

    def close(self) -> None:
        """Unregister the user.

        Idempotent. The last user of a disk cache removes its claim file (reserved bytes) and closes the folder.
        """
        with self._lock:
            if self._pieces is not None:
                self._pieces = None
                self._shared.release()
