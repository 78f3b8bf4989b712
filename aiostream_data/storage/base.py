"""Store interface: list objects and read byte ranges into buffers. Loaders read all data through this interface."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias, TypeGuard, TypeVar

from aiostream_data.rows.records import ShardRef

T = TypeVar("T")

RunBlocking: TypeAlias = Callable[..., Awaitable[Any]]
"""``await run_blocking(function, *args)`` runs a blocking call on a worker thread of the engine."""

ReadCached: TypeAlias = Callable[[int, memoryview], bool]
"""``read(start, buffer)`` fills a buffer with bytes of one file from the page cache, on any thread. It returns False if
bytes are missing there, without waiting for them."""

StoreOptions: TypeAlias = Mapping[str, Any]
"""The argument ``storage_options``, passed to s3fs, gcsfs, aiohttp or another fsspec file system."""


MOST_PIECES: Final = 1000
"""Maximum number of buffers for one read of consecutive bytes. Systems accept 1,024."""


class Store(Protocol):
    """Read access to one kind of object store. Use each instance from one event loop. The owner of a store closes the
    store.

    On failure, every method raises only a :class:`~aiostream_data.errors.StorageError`, which names the URL. A call
    that fails raises its error within the time-outs of the store. After a call is cancelled, the store can still be
    used.
    """

    async def info(self, url: str) -> ShardRef:
        """Return the size and version of an object in the store.

        Raises:
            ObjectNotFoundError: The object does not exist.
            AccessDeniedError, CredentialsError: The store refused access.
            StoreUnreachableError, StoreTimeoutError: The store did not answer.
        """

    async def glob(self, pattern: str) -> Sequence[ShardRef]:
        """Return the objects matching ``pattern`` (``*``, ``?``, ``[..]``, ``**``), sorted by URL.

        A pattern without wildcards matches the object with this URL. Sizes and versions are set if the listing includes
        them. On local disks, S3 and GCS, a pattern such as ``root/*/`` matches folders, with the size 0.

        Raises:
            NoMatchError: No object matches the pattern.
        """

    async def read_into(self, shard: ShardRef, start: int, buffer: memoryview) -> None:
        """Fill ``buffer`` with the bytes of ``shard``, starting at offset ``start``.

        The caller owns the buffer. After the call has returned, raised or been cancelled, the store does not write to
        the buffer. Transient failures are retried, including failures while the body is transferred.

        Raises:
            ShortReadError: The object ends before the buffer is full.
        """

    async def aclose(self) -> None:
        """Close sessions and sockets. Idempotent."""


class ReadsMany(Protocol):
    """A store that reads many small objects with less work than one call for each."""

    async def read_objects(
        self, shards: Sequence[ShardRef], places: Sequence[memoryview]
    ) -> dict[int, Exception | None]:
        """Read objects whole, each into its own buffer. Return outcomes by the number of the object.

        The outcome is None for an object that was read, and :data:`.late_reads.LATE` for an object whose read was
        cancelled because it was late. The caller reads objects without an outcome with :meth:`Store.read_into`, which
        retries and explains failures. The rules of :meth:`Store.read_into` for ownership and cancellation apply.

        Args:
            shards: Objects of known size.
            places: Buffer of each object, as long as the object; contiguous bytes.
        """


class ReadsPieces(Protocol):
    """A store of files, in which a reader can find the places of records before it reads them."""

    async def scan_cached(self, shard: ShardRef, scan: Callable[[int], T]) -> T | None:
        """Call ``scan(descriptor)`` on a worker thread.

        Return None if the file cannot be opened or has changed; :meth:`Store.read_into` raises the error.
        """

    def cached_reader(self, shard: ShardRef) -> ReadCached | None:
        """Return a reader of one file, or None if its bytes do not come from the page cache.

        The reader also returns False if the read fails; :meth:`Store.read_into` raises the error.
        """

    async def read_pieces(self, shard: ShardRef, start: int, places: Sequence[memoryview]) -> bool:
        """Fill ``places`` with consecutive bytes from offset ``start`` on.

        Return False if this fails; :meth:`Store.read_into` raises the error. The rules of :meth:`Store.read_into` for
        ownership and cancellation apply.

        Args:
            places: Buffers for contiguous bytes, of at least one byte in total; at most ``MOST_PIECES``.
        """


class FindsMany(Protocol):
    """A store that finds the sizes of many objects with less work than one call for each."""

    async def infos(self, urls: Sequence[str]) -> list[ShardRef | None]:
        """Return the size and version of each object, or None if they cannot be found.

        The caller calls :meth:`Store.info` for these objects, which retries and explains failures.
        """


def reads_many(store: object) -> TypeGuard[ReadsMany]:
    """Return True if a store is a :class:`ReadsMany`, in less time than ``isinstance()`` of a protocol."""
    return hasattr(store, "read_objects")


def reads_pieces(store: object) -> TypeGuard[ReadsPieces]:
    """Return True if a store is a :class:`ReadsPieces`, in less time than ``isinstance()``."""
    return hasattr(store, "read_pieces")


def finds_many(store: object) -> TypeGuard[FindsMany]:
    """Return True if a store is a :class:`FindsMany`, in less time than ``isinstance()``."""
    return hasattr(store, "infos")
