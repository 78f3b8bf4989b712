"""Store for objects on plain HTTP servers, read with range requests."""

from __future__ import annotations

import os
import re
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from aiostream_data.errors import (
    CredentialsError,
    MissingExtraError,
    ObjectNotFoundError,
    PlanError,
    StorageError,
    WrongAnswerError,
)
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.base import StoreOptions
from aiostream_data.storage.body import (
    check_range_answer,
    check_version,
    ends_there,
    fill_buffer,
    parse_content_range,
    range_header,
    read_at_most,
)
from aiostream_data.storage.checksums import take_verify
from aiostream_data.storage.redirects import redirect_guard
from aiostream_data.storage.retry_after import with_retry_after
from aiostream_data.storage.translate import shorten, translate_error, translate_status, translating
from aiostream_data.storage.urls import safe_url
from aiostream_data.storage.wire.burst import read_burst
from aiostream_data.storage.wire.client import DETAIL_NBYTES, Refused, RequestTarget
from aiostream_data.storage.wire.library_read import LibraryRead
from aiostream_data.storage.wire.object_get import ObjectGet
from aiostream_data.storage.wire.plain_read import PlainDialect, range_of
from aiostream_data.storage.wire.request import request_head
from aiostream_data.storage.wire.route import Route, take_route_options

if TYPE_CHECKING:
    import aiohttp

_KEEPALIVE_S = 60.0
_PORTS: Final = {"http": 80, "https": 443}
_QUOTED: Final = re.compile(r"/[!-~]*")
_REQUEST_IDS: Final = ("x-request-id", "x-amz-request-id", "x-guploader-uploadid", "x-ms-request-id")
"""Response headers that may contain the server's request id."""

_NO_HEAD_STATUSES = frozenset({400, 403, 405, 501})
"""Error statuses of a HEAD request after which a GET may succeed. For URLs signed for GET, servers answer HEAD with
403."""


class HttpStore:
    """Store for HTTP and HTTPS. Wildcards in URLs are not supported, because HTTP has no listing.

    Proxies and ``~/.netrc`` are taken from the environment. Options:

    - ``headers``: dict of request headers.
    - ``auth``: pair of user and password.
    - ``connect_timeout``, ``first_byte_timeout``, ``total_timeout``: time limits in seconds.
    - ``read_timeout``: longest pause between two received chunks, in seconds.
    - ``max_connections``: limit on concurrent requests.
    - ``reader``: ``"plain"`` sends GET requests with the built-in client, ``"library"`` uses aiohttp. ``"auto"`` uses
      the built-in client if it supports the request.
    - ``client_kwargs``: arguments for ``aiohttp.ClientSession``. If ``reader`` is ``"auto"``, ``client_kwargs`` selects
      aiohttp.
    """

    def __init__(self, options: StoreOptions) -> None:
        settings = dict(options)
        take_verify(settings)  # HTTP servers report no checksums
        reader, wire_options = take_route_options(settings)
        needs_library = bool(settings.get("client_kwargs")) or has_netrc()
        self._options: StoreOptions = settings
        self._headers = {name.lower(): value for name, value in headers_of(settings).items()}
        self._route = Route("library" if reader == "auto" and needs_library else reader, wire_options)
        self.counters = self._route.counters
        self._session: aiohttp.ClientSession | None = None

    async def info(self, url: str) -> ShardRef:
        target = target_of(url)
        if target is not None and self._route.leads_to(target):
            headers = {**self._headers, "accept-encoding": "identity"}
            told = await self._route.describe(target, headers, _DIALECT, url, _NO_HEAD_STATUSES)
            if told is not None and (nbytes := _length_told(told.headers)):
                return ShardRef(url, nbytes, _version_told(told.headers))
            if told is not None:
                with translating(url, translate_error):
                    return await self._info_by_range(url)
        return await self._info_by_library(url)

    async def _info_by_library(self, url: str) -> ShardRef:
        with translating(url, translate_error):
            self.counters.sent("HEAD")
            async with self._route.asking(url), self._request("HEAD", url, {}) as answer:
                nbytes = _length_told(answer.headers)
                if answer.status == 200 and nbytes:
                    return ShardRef(url, nbytes, version_of(answer.headers))
                if answer.status != 200 and answer.status not in _NO_HEAD_STATUSES:
                    raise await _refusal(url, answer)
            return await self._info_by_range(url)

    async def glob(self, pattern: str) -> list[ShardRef]:
        try:
            return [await self.info(pattern)]
        except ObjectNotFoundError as error:
            if "*" not in pattern:
                raise
            reason = f"{error.reason}; HTTP has no listings or wildcards: pass every URL, or an index file as index="
            raise ObjectNotFoundError(pattern, reason) from None

    async def read_into(self, shard: ShardRef, start: int, buffer: memoryview) -> None:
        if not buffer:
            return
        target = target_of(shard.url)
        if target is not None and self._route.leads_to(target):
            headers = self._plain_headers(shard, start, buffer)
            if await self._route.read(target, headers, _DIALECT, shard, start, buffer):
                return
        async with self._route.by_library(shard.url, len(buffer)) as reading:
            await self._read_by_library(shard, start, buffer, reading)

    async def read_objects(
        self, shards: Sequence[ShardRef], places: Sequence[memoryview]
    ) -> dict[int, Exception | None]:
        """Read small objects whole with one burst of plain GET requests. See :class:`.ReadsMany`."""
        if self._route.is_capped:
            return {}
        gets = {}
        for number, (shard, into) in enumerate(zip(shards, places, strict=True)):
            target = target_of(shard.url)
            if into and target is not None and self._route.leads_to(target):
                headers = self._plain_headers(shard, 0, into)
                request = request_head("GET", target.host_header, target.path, headers)
                gets[number] = ObjectGet(target, request, _DIALECT, shard, into)
        return await read_burst(self._route, gets)

    def _plain_headers(self, shard: ShardRef, start: int, buffer: memoryview) -> dict[str, str]:
        return {**self._headers, **range_of(start, buffer), **_condition(shard)}

    async def _read_by_library(self, shard: ShardRef, start: int, buffer: memoryview, reading: LibraryRead) -> None:
        headers = {"Range": range_header(start, len(buffer)), **_condition(shard)}
        with translating(shard.url, translate_error):
            async with self._request("GET", shard.url, headers) as answer:
                reading.began(version_of(answer.headers))
                if answer.status >= 300:
                    raise await _refusal(shard.url, answer)
                check_version(shard.url, shard.version, version_of(answer.headers))
                skip = check_range_answer(shard.url, answer.status, answer.headers, start, len(buffer), shard.nbytes)
                exact = answer.status == 206 or ends_there(shard, start, len(buffer))
                await fill_buffer(shard.url, answer.content, buffer, skip=skip, exact=exact, filled=reading.filled)
                self.counters.received_nbytes += len(buffer)

    async def aclose(self) -> None:
        self._route.close()
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _info_by_range(self, url: str) -> ShardRef:
        """Request the first byte of an object and return the object's size from the response.

        This method is used if HEAD reports no size or 0. Some servers report size 0 for content that they generate on
        request.

        Raises:
            WrongAnswerError: The ``Content-Range`` of the response is damaged, or contradicts its status.
        """
        self.counters.sent("GET")
        async with self._route.asking(url), self._request("GET", url, {"Range": "bytes=0-0"}) as answer:
            version = version_of(answer.headers)
            told = answer.headers.get("Content-Range", "")
            if answer.status == 416 and told.strip() in ("bytes */0", ""):  # the object is empty
                return ShardRef(url, 0, version)
            if answer.status not in (200, 206, 416):
                raise await _refusal(url, answer)
            if answer.status == 200:
                return ShardRef(url, _length_told(answer.headers), version)
            given = parse_content_range(told) if answer.status == 206 else None
            if given is None:  # damaged, so another answer may be sound
                reason = f"HTTP {answer.status} and Content-Range {told[:80]!r}"
                cure = "use a server that supports range requests"
                raise WrongAnswerError(safe_url(url), f"the server answered a range request with {reason}; {cure}")
            return ShardRef(url, given.total, version)

    @asynccontextmanager
    async def _request(
        self, method: str, url: str, headers: Mapping[str, str]
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request and yield the response.

        After the block, close the connection if the body was not read completely.
        """
        import yarl

        session = self._open_session()
        # Quoted URLs, in particular presigned ones, must be sent unchanged.
        target = yarl.URL(url, encoded=url.isascii() and " " not in url)
        # aiohttp's own TLS context has the trusted certificates from the time of its import; use the current ones.
        verifies = target.scheme == "https" and not self._options.get("client_kwargs")
        context = self._route.client.tls() if verifies else True
        async with session.request(method, target, headers=headers, ssl=context) as answer:
            try:
                yield answer
            finally:
                if not answer.content.at_eof():
                    answer.close()

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = open_session(self._options)
        return self._session


def open_session(options: StoreOptions) -> aiohttp.ClientSession:
    """Return an aiohttp session configured for large bodies. The caller closes it.

    Raises:
        MissingExtraError: aiohttp is not installed.
    """
    try:
        import aiohttp
    except ImportError as error:
        raise MissingExtraError("reading over HTTP needs aiohttp: pip install 'aiostream-data[http]'") from error
    given = dict(options.get("client_kwargs") or {})
    settings: dict[str, Any] = {
        "headers": {"Accept-Encoding": "identity", **headers_of(options)},
        "timeout": aiohttp.ClientTimeout(
            total=None,  # a total limit would abort long transfers that make progress
            sock_connect=options.get("connect_timeout", 10.0),
            sock_read=options.get("read_timeout", 30.0),
        ),
        "connector": aiohttp.TCPConnector(limit=options.get("max_connections", 64), keepalive_timeout=_KEEPALIVE_S),
        "read_bufsize": 1 << 20,
        "auto_decompress": False,  # ranges refer to the stored bytes
        "trust_env": True,
    }
    settings = {**settings, **given}
    settings["headers"] = _with_secrets(settings)
    settings["trace_configs"] = [redirect_guard(), *(given.get("trace_configs") or ())]
    return aiohttp.ClientSession(**settings)


def _with_secrets(settings: dict[str, Any]) -> dict[str, str]:
    """Remove ``auth`` and ``cookies`` from the session settings.

    Return the session's headers, to which ``auth`` and ``cookies`` are added.

    aiohttp would send ``auth`` and ``cookies`` to the target of every redirect. The redirect guard removes headers that
    contain secrets.
    """
    headers = dict(settings["headers"] or {})
    named = {name.lower() for name in headers}
    if "authorization" not in named and (auth := settings.pop("auth", None)) is not None:
        headers["Authorization"] = auth.encode()
    if "cookie" not in named and (cookies := settings.pop("cookies", None)):
        pairs = cookies.items() if isinstance(cookies, Mapping) else cookies
        headers["Cookie"] = "; ".join(f"{name}={getattr(value, 'coded_value', value)}" for name, value in pairs)
    return headers


def headers_of(options: StoreOptions) -> dict[str, str]:
    """Return the request headers from the user's options ``headers`` and ``auth``.

    Raises:
        PlanError: ``headers`` is not a dict of strings, or ``auth`` is not a pair.
    """
    given = options.get("headers") or {}
    if not isinstance(given, Mapping):
        raise PlanError(f"headers must be a dict of strings by name, got {type(given).__name__}")
    headers = dict(given)
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise PlanError(f"names and values of headers must be strings, got {type(value).__name__} for {name!r}")
    if auth := options.get("auth"):
        if isinstance(auth, (str, bytes)) or not isinstance(auth, Sequence) or len(auth) < 2:
            raise PlanError(f"auth must be a pair of user and password, got {type(auth).__name__}")
        headers["Authorization"] = "Basic " + b64encode(f"{auth[0]}:{auth[1]}".encode()).decode()
    return headers


@lru_cache(maxsize=1024)
def target_of(url: str) -> RequestTarget | None:
    """Return the server and path to request for a URL, or None if only a full HTTP client can handle the URL.

    Percent-encoded URLs, in particular presigned URLs, are sent unchanged.
    """
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError:
        return None
    if not url.isascii() or parts.username is not None or parts.hostname is None or parts.scheme not in _PORTS:
        return None
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return RequestTarget(parts.hostname, port, parts.scheme == "https", path) if _QUOTED.fullmatch(path) else None


def has_netrc() -> bool:
    """Return True if a ``.netrc`` file exists. The file may contain passwords for HTTP servers."""
    return os.path.exists(os.environ.get("NETRC") or os.path.expanduser("~/.netrc"))


def _condition(shard: ShardRef) -> dict[str, str]:
    # If-Match compares strong ETags only; weak ETags and dates never match.
    return {"if-match": shard.version} if shard.version.startswith('"') else {}


def version_of(headers: Mapping[str, str]) -> str:
    """Return the object's version: the ETag header, else the Last-Modified header, else ""."""
    return headers.get("ETag", "") or headers.get("Last-Modified", "")


def _version_told(headers: Mapping[str, str]) -> str:
    return headers.get("etag", "") or headers.get("last-modified", "")


def _length_told(headers: Mapping[str, str]) -> int | None:
    length = headers.get("content-length", "")
    return int(length) if length.isdecimal() and len(length) < 20 else None


def _refused(url: str, answer: Refused) -> StorageError:
    return _error_of(url, answer.status, answer.headers, answer.detail)


_DIALECT: Final = PlainDialect(_version_told, _refused)


async def _refusal(url: str, answer: aiohttp.ClientResponse) -> StorageError:
    detail = b"" if answer.method == "HEAD" else await read_at_most(answer.content, DETAIL_NBYTES)
    error = _error_of(url, answer.status, answer.headers, detail, answer.reason or "")
    return with_retry_after(error, answer.headers)


def _error_of(url: str, status: int, headers: Mapping[str, str], detail: bytes, reason: str = "") -> StorageError:
    request_id = next((headers[name] for name in _REQUEST_IDS if name in headers), "")
    if status in (400, 401, 403) and b"expired" in detail.lower():  # stores answer expired signed URLs like this
        told = f"HTTP {status}" + (f", request id {shorten(request_id)}" if request_id else "")
        return CredentialsError(
            safe_url(url), f"the credentials, or the signature of the URL, have expired ({told}); renew them"
        )
    return translate_status(url, status, detail=reason, request_id=request_id)
