"""Store for URL schemes without a built-in store, based on fsspec file systems."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from aiostream_data.errors import MissingExtraError, NoMatchError, PlanError, ShortReadError
from aiostream_data.redaction import shown_option
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.base import RunBlocking, StoreOptions
from aiostream_data.storage.blocking_calls import run_detached
from aiostream_data.storage.object_size import as_object_nbytes
from aiostream_data.storage.patterns import hint_of
from aiostream_data.storage.translate import translate_error, translating
from aiostream_data.storage.urls import has_magic, safe_url, split_url

_PLAIN_OPTIONS: Final = ("connect_timeout", "first_byte_timeout", "read_timeout", "total_timeout", "verify")
"""Options of the s3://, gs:// and http:// stores. Most fsspec file systems would silently ignore these options."""


class FsspecStore:
    """Store that reads from one fsspec file system. The store creates the file system on first use.

    Asynchronous file systems run on the caller's event loop, never on fsspec's global loop. Synchronous file systems
    run on worker threads. Retries inside the file system stay enabled. A thread cannot be interrupted: after a call is
    cancelled, its thread runs until the call returns.

    Args:
        scheme: Name of the protocol in fsspec.
        options: Arguments for the constructor of the fsspec file system.
    """

    def __init__(self, scheme: str, options: StoreOptions, run_blocking: RunBlocking) -> None:
        self._scheme = scheme
        self._options = options
        self._run_blocking = run_blocking
        self._opened: Any = None
        self._opening = asyncio.Lock()

    async def info(self, url: str) -> ShardRef:
        with translating(url, translate_error):
            found = await self._call("info", split_url(url).path)
            if found.get("type") == "directory":
                raise IsADirectoryError
            return _shard(url, found)

    async def glob(self, pattern: str) -> list[ShardRef]:
        if not has_magic(pattern):
            return [await self.info(pattern)]
        path = split_url(pattern).path
        with translating(pattern, translate_error):
            found: Mapping[str, Mapping[str, Any]] = await self._call("glob", path, detail=True)
        # fsspec may add or remove a leading slash; use the spelling of the pattern.
        slash = "/" if path.startswith("/") else ""
        shards = [
            _shard(f"{self._scheme}://{slash}{name.lstrip('/')}", entry)
            for name, entry in found.items()
            if entry.get("type") != "directory"
        ]
        if not shards:
            raise NoMatchError(safe_url(pattern), f"no object matches{hint_of(pattern)}")
        return sorted(shards, key=lambda shard: shard.url)

    async def read_into(self, shard: ShardRef, start: int, buffer: memoryview) -> None:
        if not buffer:
            return
        stop = start + len(buffer)
        with translating(shard.url, translate_error):
            data = await self._call("cat_file", split_url(shard.url).path, start=start, end=stop)
        if len(data) != len(buffer):
            raise ShortReadError(
                safe_url(shard.url),
                f"cannot read bytes {start} to {stop}: the store returned {len(data)} of {len(buffer)} bytes; "
                "list or index the dataset again",
            )
        buffer[:] = data

    async def aclose(self) -> None:
        opened, self._opened = self._opened, None
        # Asynchronous fsspec file systems close their aiohttp session only in a finalizer, when the event loop may have
        # ended already.
        session = getattr(opened, "_session", None)
        if session is not None and asyncio.iscoroutinefunction(getattr(session, "close", None)):
            await session.close()

    async def _call(self, method: str, path: str, **kwargs: Any) -> Any:
        """Call a method of the file system with ``path`` converted to the file system's own format."""
        async with self._opening:
            if self._opened is None:
                self._opened = await run_detached(self._run_blocking, open_file_system, self._scheme, self._options)
        file_system = self._opened
        path = file_system._strip_protocol(f"{self._scheme}://{path}")
        if file_system.async_impl and file_system.asynchronous:
            return await getattr(file_system, f"_{method}")(path, **kwargs)
        return await run_detached(self._run_blocking, lambda: getattr(file_system, method)(path, **kwargs))


def open_file_system(scheme: str, options: StoreOptions) -> Any:
    """Return a new fsspec file system without a listing cache.

    Blocking: the function imports packages, and the file system may open connections.

    Raises:
        MissingExtraError: fsspec, or the package it needs for this scheme, is not installed.
        PlanError: The scheme is unknown, or an option does not apply to this scheme.
    """
    try:
        import fsspec
    except ImportError as error:
        raise MissingExtraError(f"{scheme}:// needs fsspec: pip install 'aiostream-data[fsspec]'") from error
    try:
        kind = fsspec.get_filesystem_class(scheme)
    except ImportError as error:
        raise MissingExtraError(f"{scheme}:// needs a package that is not installed: {error}") from error
    except ValueError as error:
        known = "use file, memory, http, https, s3, gs, hf, or a scheme of fsspec"
        raise PlanError(f"unsupported URL scheme {scheme}://; {known}") from error
    settings = {"skip_instance_cache": True, "use_listings_cache": False, **_understood(scheme, kind, options)}
    if kind.async_impl:
        settings["asynchronous"] = True
    return kind(**settings)


def _understood(scheme: str, kind: type, options: StoreOptions) -> dict[str, Any]:
    """Return the constructor options for a file system.

    Raises:
        PlanError: An option is for other stores, and this file system would silently ignore it.
    """
    settings = dict(options)
    reader = settings.pop("reader", "auto")
    if reader not in ("auto", "library"):
        raise PlanError(
            f"{scheme}:// does not support reader={shown_option(reader)}; remove it, or nest it under s3://, gs://, "
            "http:// or https://"
        )
    makers = [vars(base)["__init__"] for base in kind.__mro__ if "__init__" in vars(base) and base is not object]
    known = {name for make in makers for name in inspect.signature(make).parameters}
    for name in _PLAIN_OPTIONS:
        if name in settings and name not in known:
            raise PlanError(
                f"{scheme}:// ({kind.__name__} of fsspec) does not support the option {name}; remove it, or nest it "
                f"under the scheme of its store: storage_options={{'s3://': {{{name!r}: ...}}}}"
            )
    return settings


def _shard(url: str, entry: Mapping[str, Any]) -> ShardRef:
    size = entry.get("size")
    return ShardRef(url, as_object_nbytes(url, size) if size is not None else None, _version(entry))


def _version(entry: Mapping[str, Any]) -> str:
    """Return the object's version from a listing entry: ETag, generation or modification time, or "" if missing."""
    for name in ("ETag", "etag", "generation", "LastModified", "last_modified", "mtime", "created"):
        value = entry.get(name)
        if value:
            return value.isoformat() if isinstance(value, datetime) else str(value)
    return ""
