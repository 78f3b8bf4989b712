"""Store for objects in this process's memory, under ``memory://``: for tests, examples and small data."""

from __future__ import annotations

import itertools
from typing import NamedTuple

from aiostream_data.errors import NoMatchError, ObjectChangedError, ObjectNotFoundError, ShortReadError
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.patterns import compile_pattern
from aiostream_data.storage.urls import has_magic, split_url


class _Object(NamedTuple):
    data: bytes
    version: str


_objects: dict[str, _Object] = {}
"""Stored objects, keyed by path without scheme. All stores of the process share these objects."""
_generations = itertools.count(1)


def put(url: str, data: bytes | bytearray | memoryview) -> None:
    """Store a copy of ``data`` under ``url`` (``memory://any/name``), replacing an existing object."""
    _objects[split_url(url).path] = _Object(bytes(data), str(next(_generations)))


def clear() -> None:
    """Remove all objects from memory."""
    _objects.clear()


class MemoryStore:
    """Store that reads objects stored by :func:`put`.

    A read never waits, so a cancellation cannot interrupt it.
    """

    async def info(self, url: str) -> ShardRef:
        data, version = _find(url)
        return ShardRef(url, len(data), version)

    async def glob(self, pattern: str) -> list[ShardRef]:
        if not has_magic(pattern):
            return [await self.info(pattern)]
        path = split_url(pattern).path
        prefix = pattern[: len(pattern) - len(path)]
        matches = compile_pattern(path).fullmatch
        # sorted() takes a snapshot of the names, because another thread may call put() during the listing.
        found = [await self.info(prefix + name) for name in sorted(_objects) if matches(name)]
        if not found:
            raise NoMatchError(pattern, "no object in memory matches")
        return found

    async def read_into(self, shard: ShardRef, start: int, buffer: memoryview) -> None:
        data, version = _find(shard.url)
        if shard.version and shard.version != version:
            raise ObjectChangedError(shard.url, "the object was replaced after it was listed")
        if start < 0 or start + len(buffer) > len(data):
            raise ShortReadError(
                shard.url,
                f"cannot read bytes {start} to {start + len(buffer)}: the object has only {len(data)} bytes; "
                "list or index the dataset again",
            )
        buffer[:] = memoryview(data)[start : start + len(buffer)]

    async def aclose(self) -> None:
        """Do nothing: the objects stay available to other stores."""


def _find(url: str) -> _Object:
    try:
        return _objects[split_url(url).path]
    except KeyError:
        raise ObjectNotFoundError(url, "no such object in this process's memory") from None
