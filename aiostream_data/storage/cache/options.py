"""What users say of a shard cache, and what the loaders of this process share of it."""

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
"""A cache of less could hold no more than some ranges."""


@dataclass(frozen=True, eq=False)
class ShardCache:
    """Keeps what loaders read of remote shards, on local disk or in memory, for the next pass and for other processes.

    Give it to ``dataset.open(shard_cache=...)``, the same one as often as you like. The folder may be shared by any
    number of processes and hosts. What is in it is known by URL, version and size of the object, so that an object that
    was replaced is read anew.

    Args:
        path: A folder, made when it is not there; whatever else is in it is left alone. None keeps everything in the
            memory of this process, beside the loaders' memory limit, for as long as this object lives; worker processes
            and pickled copies begin with an empty one.
        limit: Bytes ("200GB") for all of it, that is, for all processes that share the folder. Required in memory;
            on disk a quarter of the file system when not given. What was used long ago is the first to go.
        trust: Also keep objects whose store tells no version: such an object must never be replaced under its URL.
        local: Also keep local files; for folders that are slow, as on a network.

    Raises:
        PlanError: The limit is no number of bytes, or too small to be of use.
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
        """Return what the argument ``shard_cache`` stands for; a path is a cache there.

        Raises:
            PlanError: It is neither a path nor a cache.
        """
        if value is None or isinstance(value, ShardCache):
            return value
        if not isinstance(value, (str, os.PathLike)):
            raise PlanError(f"shard_cache is a ShardCache or the path of a folder, got {value!r}")
        return cls(value)

    def stats(self) -> CacheStats:
        """Return what it did in this process so far. From any thread."""
        return self._shared.counters.stats()

    def held_nbytes(self) -> tuple[int, int] | None:
        """Return the bytes that it holds in memory now, and held at most; None for one on disk. From any thread."""
        return None if self.path is not None else self._shared.held_nbytes()

    def worst_nbytes(self) -> int:
        """Return the most bytes of memory that it holds in each process that uses it."""
        return 0 if self.path is not None else self._shared.limit or LEAST_LIMIT

    def lease(self) -> CacheLease:
        """Return the use of it by one store, which opens and closes it."""
        return CacheLease(self._shared)

    def counters(self) -> CacheCounters:
        """Return where its users count."""
        return self._shared.counters

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (self.path, self.limit, self.trust, self.local))


def _rebuild(path: str | os.PathLike[str] | None, limit: int | str | None, trust: bool, local: bool) -> ShardCache:
    return ShardCache(path, limit=limit, trust=trust, local=local)


class Shared:
    """The open cache that all loaders of a process use: opened by the first of them, closed by the last one."""

    def __init__(self, path: str | None, limit: int | None) -> None:
        self.counters = CacheCounters()
        self._path = path
        self.limit = limit
        self._lock = threading.Lock()
        self._pieces: PieceStore | None = None
        self._users = 0
        self._pid = os.getpid()

    def acquire(self) -> PieceStore:
        """Return the open cache to one more user. Blocking.

        Raises:
            ShardCacheError: The folder cannot be used.
        """
        with self._lock:
            if self._pid != os.getpid():  # a fork: what is open is the parent's, and so are the names of its files
                self._pieces, self._users, self._pid = None, 0, os.getpid()
            if self._pieces is None:
                self._pieces = self._opened()
            self._users += 1
            return self._pieces

    def release(self) -> None:
        """Record that a user has ended."""
        with self._lock:
            self._users -= 1
            if self._users == 0 and self._pieces is not None and self._path is not None:
                self._pieces.close()
                self._pieces = None

    def held_nbytes(self) -> tuple[int, int]:
        """Return the bytes that are held now, and were at most, in memory."""
        pieces: Any = self._pieces
        return (0, 0) if pieces is None else (pieces.nbytes, pieces.peak_nbytes)

    def _opened(self) -> PieceStore:
        if self._path is None:
            from aiostream_data.storage.cache.memory import PieceMemory

            return PieceMemory(self.limit or LEAST_LIMIT, self.counters)
        from aiostream_data.storage.cache.folder import PieceFolder

        return PieceFolder(self._path, self.limit, self.counters)


class CacheLease:
    """One user's hold on a cache. Thread-safe."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._lock = threading.Lock()
        self._pieces: PieceStore | None = None

    def open(self) -> PieceStore:
        """Return the open cache. Blocks when it was not open; any number of calls are one hold.

        Raises:
            ShardCacheError: The folder cannot be used.
        """
        with self._lock:
            if self._pieces is None:
                self._pieces = self._shared.acquire()
            return self._pieces

    def close(self) -> None:
        """End the hold. Idempotent; the last one of a folder removes a file and closes it."""
        with self._lock:
            if self._pieces is not None:
                self._pieces = None
                self._shared.release()
