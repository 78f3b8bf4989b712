"""The one interface through which every byte is read: a store lists objects and fills buffers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeAlias

from aiostream_data.rows.records import ShardRef

RunBlocking: TypeAlias = Callable[..., Awaitable[Any]]
"""``await run_blocking(function, *args)`` runs a blocking call on a worker thread of the engine."""

StoreOptions: TypeAlias = Mapping[str, Any]
"""fsspec's ``storage_options``: passed on to s3fs, gcsfs, aiohttp or the fsspec file system."""


class Store(Protocol):
    """Read access to one kind of object store. Used from one event loop; closed by its owner.

    Every method raises a :class:`~aiostream_data.errors.StorageError` naming the URL, within the
    store's time-outs, and nothing else. Cancelling a call leaves the store usable.
    """

    async def info(self, url: str) -> ShardRef:
        """Return size and version of the object.

        Raises:
            ObjectNotFoundError, AccessDeniedError, CredentialsError, StoreUnreachableError,
            StoreTimeoutError.
        """

    async def glob(self, pattern: str) -> list[ShardRef]:
        """Return the objects matching ``pattern`` (``*``, ``?``, ``[..]``, ``**``), sorted by URL.

        A pattern without wildcards is one object. Sizes and versions are filled in where listing
        gives them.

        Raises:
            NoMatchError: Nothing matches.
        """

    async def read_into(self, shard: ShardRef, start: int, buffer: memoryview) -> None:
        """Fill ``buffer`` with the bytes of ``shard`` from offset ``start`` on.

        The buffer is the caller's; it is written only until the call returns, raises or was
        cancelled. Transient failures are retried inside, the body included.

        Raises:
            ShortReadError: The object ends before the buffer is full.
        """

    async def aclose(self) -> None:
        """Close sessions and sockets. Idempotent."""
