"""Objects in this process's memory, under ``memory://``: for tests, examples and small data."""

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
"""Path (without scheme) to content; shared by every store of the process, as a bucket would be."""
_generations = itertools.count(1)


def put(url: str, data: bytes | bytearray | memoryview) -> None:
    """Store a copy of ``data`` under ``url`` (``memory://any/name``), replacing what was there."""
    _objects[split_url(url).path] = _Object(bytes(data), str(next(_generations)))


def clear() -> None:
    """Remove every object."""
    _objects.clear()


class MemoryStore:
    """Reads what :func:`put` stored. Never waits, so a read cannot be cancelled halfway."""

    async def info(self, url: str) -> ShardRef:
        data, version = _find(url)
        return ShardRef(url, len(data), version)

    async def glob(self, pattern: str) -> list[ShardRef]:
        if not has_magic(pattern):
            return [await self.info(pattern)]
        path = split_url(pattern).path
        prefix = pattern[: len(pattern) - len(path)]
        matches = compile_pattern(path).fullmatch
        # sorted() takes a snapshot of the names: another thread may put while this one lists.
        found = [await self.info(prefix + name) for name in sorted(_objects) if matches(name)]
        if not found:
            raise NoMatchError(pattern, "no object in memory matches")
        return found

    async def read_into(self, shard: ShardRef, start: int, buffer: memoryview) -> None:
        data, version = _find(shard.url)
        if shard.version and shard.version != version:
            raise ObjectChangedError(shard.url, "the object was replaced since it was listed")
        if start < 0 or start + len(buffer) > len(data):
            raise ShortReadError(
                shard.url, f"bytes {start} to {start + len(buffer)} were asked for, the object has {len(data)}"
            )
        buffer[:] = memoryview(data)[start : start + len(buffer)]

    async def aclose(self) -> None:
        """Do nothing: the objects stay for the next store."""


def _find(url: str) -> _Object:
    try:
        return _objects[split_url(url).path]
    except KeyError:
        raise ObjectNotFoundError(url, "no such object in this process's memory") from None
