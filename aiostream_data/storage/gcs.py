"""Store for Google Cloud Storage. gcsfs finds the credentials and endpoint. This module sends requests and checks
responses.

Only the session, headers and URLs of gcsfs are used. The read methods of gcsfs are not used, because they add retries
that take half a minute and hide most HTTP error statuses.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from aiostream_data.endpoints import endpoint_of
from aiostream_data.errors import (
    CredentialsError,
    MissingExtraError,
    NoMatchError,
    ObjectNotFoundError,
    PlanError,
    StorageError,
)
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.base import RunBlocking, StoreOptions
from aiostream_data.storage.blocking_calls import parse_body, run_detached
from aiostream_data.storage.body import (
    check_range_answer,
    check_version,
    ends_there,
    fill_buffer,
    range_header,
    read_at_most,
)
from aiostream_data.storage.checksums import Checksums, take_verify, told_by_gcs
from aiostream_data.storage.deadline import left_s
from aiostream_data.storage.gcs_errors import HOW_TO_SIGN_IN, translate_gcs_error
from aiostream_data.storage.gcs_listing import entry_of, parse_json, parse_page
from aiostream_data.storage.gcs_plain import GcsPlain
from aiostream_data.storage.key_search import KeySearch, Page, PageRequest
from aiostream_data.storage.patterns import hint_of
from aiostream_data.storage.redirects import redirect_guard
from aiostream_data.storage.renewal import Renewal
from aiostream_data.storage.retry_after import with_retry_after
from aiostream_data.storage.token_request import TokenRequest
from aiostream_data.storage.translate import bucket_alone, shorten, translate_status, translating
from aiostream_data.storage.urls import has_magic, safe_url, shown_bucket, split_bucket, split_url
from aiostream_data.storage.wire.burst import read_signed
from aiostream_data.storage.wire.client import Refused
from aiostream_data.storage.wire.library_read import LibraryRead
from aiostream_data.storage.wire.object_get import ObjectGet
from aiostream_data.storage.wire.plain_read import PlainDialect, range_of
from aiostream_data.storage.wire.request import request_head
from aiostream_data.storage.wire.route import Route, take_route_options

if TYPE_CHECKING:
    import aiohttp

_PAGE_LIMIT_NBYTES = 64 << 20
_DETAIL_NBYTES = 16 << 10
_FIELDS = "name,size,generation"
_METHODS = frozenset({"google_default", "cache", "cloud", "token", "anon"})
"""Values of ``token`` that name a credential method of gcsfs. All other strings are file names or access tokens."""


class GcsStore:
    """Store for objects under ``gs://bucket/name``.

    Object names are used byte for byte: ``%`` sequences are not decoded.

    All options of ``gcsfs.GCSFileSystem`` are accepted: ``token`` (``"anon"`` for public buckets), ``project``,
    ``endpoint_url``, ``requester_pays``, ``session_kwargs`` and others. Without a token, Google's default credentials
    are used. The environment variable ``STORAGE_EMULATOR_HOST`` selects another endpoint. Further options:

    - ``connect_timeout``, ``first_byte_timeout``, ``total_timeout``: time limits in seconds.
    - ``read_timeout``: longest pause between two received chunks, in seconds.
    - ``max_connections``: limit on concurrent requests.
    - ``verify``: whether to verify the checksums of complete objects.
    - ``reader``: ``"plain"`` sends GET requests with the built-in client, ``"library"`` uses the session of gcsfs.
      ``"auto"`` uses plain GET requests unless a proxy or an option requires the library.
    """

    def __init__(self, options: StoreOptions, run_blocking: RunBlocking) -> None:
        settings = dict(options)
        self.checksums = Checksums() if take_verify(settings) else None
        reader, wire_options = take_route_options(settings)
        settings.pop("max_connections", None)
        self._options: StoreOptions = settings
        needs_library = reader == "auto" and bool(settings.get("session_kwargs"))
        endpoint = endpoint_of("gs", settings)
        self._route = Route("library" if needs_library else reader, wire_options, endpoint)
        self.counters = self._route.counters
        self._plain: GcsPlain | None = None
        self._renewal = Renewal(self._renew)
        self._run_blocking = run_blocking
        self._file_system: Any = None
        self._opening = asyncio.Lock()
        self._search = KeySearch()

    async def info(self, url: str) -> ShardRef:
        return await self._renewal.trying(lambda: self._info(url))

    async def _info(self, url: str) -> ShardRef:
        bucket, key = split_bucket(split_url(url).path)
        if not key:
            raise bucket_alone(url)
        with translating(url, translate_gcs_error):
            self.counters.sent("HEAD")
            async with self._route.asking(url):
                text = await self._get_text(url, _object_path(bucket, key), {"fields": _FIELDS})
                entry = parse_json(url, text)
        found = entry_of(url, entry)
        return ShardRef(url, found.nbytes, found.version)

    async def glob(self, pattern: str) -> Sequence[ShardRef]:
        return await self._renewal.trying(lambda: self._glob(pattern))

    async def _glob(self, pattern: str) -> Sequence[ShardRef]:
        if not has_magic(pattern):
            return [await self.info(pattern)]
        bucket, key_pattern = split_bucket(split_url(pattern).path)
        with translating(pattern, translate_gcs_error):
            found = await self._search.find(pattern, key_pattern, partial(self._list_page, pattern, bucket))
        if not found:
            reason = f"no object in bucket {shown_bucket(pattern)!r} matches{hint_of(pattern)}"
            raise NoMatchError(safe_url(pattern), reason)
        return found.table.behind(f"gs://{bucket}/")

    async def read_into(self, shard: ShardRef, start: int, buffer: memoryview) -> None:
        if buffer:
            await self._renewal.trying(lambda: self._read_into(shard, start, buffer))

    async def read_objects(
        self, shards: Sequence[ShardRef], places: Sequence[memoryview]
    ) -> dict[int, Exception | None]:
        """Read small objects whole with one burst of plain GET requests. See :class:`.ReadsMany`.

        Before the first ordinary read, no object is read.
        """
        plain = self._plain
        if plain is None:
            return {}
        return await read_signed(self._route, plain.headers, partial(self._gets, plain, shards, places))

    def _gets(
        self, plain: GcsPlain, shards: Sequence[ShardRef], places: Sequence[memoryview], signed: Mapping[str, str]
    ) -> dict[int, ObjectGet]:
        """Return the requests for complete objects, by number, without those that the library must send."""
        gets, dialect = {}, self._dialect()
        for number, (shard, into) in enumerate(zip(shards, places, strict=True)):
            target = plain.target(*_asked_for(shard))
            if into and self._route.leads_to(target):
                request = request_head("GET", target.host_header, target.path, {**range_of(0, into), **signed})
                gets[number] = ObjectGet(target, request, dialect, shard, into)
        return gets

    async def _read_into(self, shard: ShardRef, start: int, buffer: memoryview) -> None:
        path, params = _asked_for(shard)
        with translating(shard.url, translate_gcs_error):
            if await self._read_plain(shard, path, params, start, buffer):
                return
        async with self._route.by_library(shard.url, len(buffer)) as reading:
            await self._read_by_library(shard, path, params, start, buffer, reading)

    async def _read_by_library(
        self,
        shard: ShardRef,
        path: str,
        params: Mapping[str, str],
        start: int,
        buffer: memoryview,
        reading: LibraryRead,
    ) -> None:
        headers = {"Range": range_header(start, len(buffer))}
        with translating(shard.url, translate_gcs_error):
            async with self._get(shard.url, path, params, headers) as answer:
                version = answer.headers.get("X-Goog-Generation", "")
                reading.began(version)
                check_version(shard.url, shard.version, version)
                skip = check_range_answer(shard.url, answer.status, answer.headers, start, len(buffer), shard.nbytes)
                self._hear(shard.url, version, _lower(answer.headers))
                exact = answer.status == 206 or ends_there(shard, start, len(buffer))
                await fill_buffer(shard.url, answer.content, buffer, skip=skip, exact=exact, filled=reading.filled)
                self.counters.received_nbytes += len(buffer)

    async def _read_plain(
        self, shard: ShardRef, path: str, params: Mapping[str, str], start: int, buffer: memoryview
    ) -> bool:
        """Read a range with the built-in HTTP client. Return False if gcsfs has to send the request."""
        await self._open()
        assert self._plain is not None
        target = self._plain.target(path, params)
        if not self._route.leads_to(target):
            return False
        headers = {**range_of(start, buffer), **await self._plain.headers()}
        return await self._route.read(target, headers, self._dialect(), shard, start, buffer)

    def _dialect(self) -> PlainDialect:
        is_anonymous = self._file_system.credentials.credentials is None

        def refusal(url: str, answer: Refused) -> StorageError:
            detail = _message_of(answer.detail)
            request_id = answer.headers.get("x-guploader-uploadid", "")
            return _refusal(url, answer.status, detail, request_id, is_anonymous=is_anonymous, is_listing=False)

        return PlainDialect(lambda headers: headers.get("x-goog-generation", ""), refusal, heard=self._hear)

    def _hear(self, url: str, version: str, headers: Mapping[str, str]) -> None:
        if self.checksums is not None:
            self.checksums.tell(url, version, told_by_gcs(headers))

    async def aclose(self) -> None:
        self._route.close()
        file_system, self._file_system = self._file_system, None
        if file_system is not None:
            await file_system.session.close()

    async def _open(self) -> Any:
        async with self._opening:
            if self._file_system is None:
                file_system = await run_detached(self._run_blocking, make_file_system, self._options)
                await file_system._set_session()
                self._file_system = file_system
                self._plain = GcsPlain(file_system, partial(self._refresh, file_system))
        return self._file_system

    async def _renew(self) -> None:
        self.counters.credentials_renewed += 1
        if self._plain is not None:
            self._plain.distrust()

    async def _refresh(self, file_system: Any) -> None:
        """Refresh the access token on a worker thread, because google-auth blocks its thread."""
        credentials = file_system.credentials.credentials
        await run_detached(self._run_blocking, credentials.refresh, TokenRequest(left_s()))

    async def _list_page(self, pattern: str, bucket: str, asked: PageRequest) -> Page:
        fields = f"nextPageToken,prefixes,items({_FIELDS})"
        params = {"prefix": asked.prefix, "fields": fields, "maxResults": str(asked.most)}
        if asked.folded:
            params["delimiter"] = "/"
        if asked.token:
            params["pageToken"] = asked.token
        self.counters.sent("LIST")
        async with self._route.listing(f"gs://{bucket}/{asked.prefix}"):
            text = await self._get_text(pattern, f"b/{quote(bucket, safe='')}/o", params)
        return await parse_body(self._run_blocking, parse_page, pattern, text)

    async def _get_text(self, url: str, path: str, params: Mapping[str, str]) -> bytes:
        async with self._get(url, f"storage/v1/{path}", params, {}) as answer:
            return await read_at_most(answer.content, _PAGE_LIMIT_NBYTES)

    @asynccontextmanager
    async def _get(
        self, url: str, path: str, params: Mapping[str, str], headers: Mapping[str, str]
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a GET request and yield the successful response, which stays open until the block ends.

        Raises:
            StorageError: The server answered with an error status.
        """
        import yarl

        file_system = await self._open()
        assert self._plain is not None
        signed = {**headers, **await self._plain.headers()}
        target = yarl.URL(f"{file_system._location}/{path}", encoded=True)
        # aiohttp's own TLS context has the trusted certificates from the time of its import; use the current ones.
        verifies = target.scheme == "https" and not self._options.get("session_kwargs")
        request = file_system.session.get(
            target,
            params=file_system._get_params(params),
            headers={**signed, "Accept-Encoding": "identity"},
            ssl=self._route.client.tls() if verifies else True,
        )
        async with request as answer:
            try:
                if answer.status >= 300:
                    detail = _message_of(await read_at_most(answer.content, _DETAIL_NBYTES))
                    is_anonymous = file_system.credentials.credentials is None
                    request_id = answer.headers.get("X-GUploader-UploadID", "")
                    is_listing = path.endswith("/o")
                    error = _refusal(
                        url, answer.status, detail, request_id, is_anonymous=is_anonymous, is_listing=is_listing
                    )
                    raise with_retry_after(error, answer.headers)
                yield answer
            finally:
                if not answer.content.at_eof():
                    answer.close()


def _asked_for(shard: ShardRef) -> tuple[str, dict[str, str]]:
    """Return the path and the query parameters of a request for the content of an object."""
    bucket, key = split_bucket(split_url(shard.url).path)
    condition = {"ifGenerationMatch": shard.version} if shard.version else {}
    return f"download/storage/v1/{_object_path(bucket, key)}", {"alt": "media", **condition}


def make_file_system(options: StoreOptions) -> Any:
    """Return a ``gcsfs.GCSFileSystem`` for the caller's loop. Blocking: gcsfs may request credentials over the network.

    Raises:
        MissingExtraError: gcsfs is not installed.
    """
    settings: dict[str, Any] = dict(options)
    emulator = os.environ.get("STORAGE_EMULATOR_HOST")
    if emulator and "endpoint_url" not in settings:
        settings["endpoint_url"] = emulator if "://" in emulator else f"http://{emulator}"
    if settings.get("endpoint_url"):
        settings.setdefault("token", "anon")
        # Otherwise gcsfs requests the bucket layout from emulators over gRPC and waits a minute for the answer.
        os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    try:
        import aiohttp
        from gcsfs.core import GCSFileSystem
    except ImportError as error:
        raise MissingExtraError("gs:// needs gcsfs: pip install 'aiostream-data[gcs]'") from error
    settings["token"] = credentials_of(settings.get("token"))
    timeout = aiohttp.ClientTimeout(
        total=None, sock_connect=settings.pop("connect_timeout", 10.0), sock_read=settings.pop("read_timeout", 30.0)
    )
    given = settings.pop("session_kwargs", None) or {}
    session = {
        "timeout": timeout,
        "read_bufsize": 1 << 20,
        "auto_decompress": False,
        "trust_env": True,
        **given,
        "trace_configs": [redirect_guard(), *(given.get("trace_configs") or ())],
    }
    settings = {"access": "read_only", **settings, "session_kwargs": session}
    return GCSFileSystem(**settings, asynchronous=True, skip_instance_cache=True)


def credentials_of(token: Any) -> Any:
    """Convert an access token passed as text to credentials. Return any other value of ``token`` unchanged.

    Without this conversion, gcsfs would send the token in a URL to query its expiry, and error messages would contain
    this URL.

    Raises:
        PlanError: ``token`` is the name of a missing file.
    """
    if not isinstance(token, str) or token in _METHODS or os.path.exists(token):
        return token
    if token.endswith(".json"):
        raise PlanError("token must be an access token or the path of a key file, got the path of a missing file")
    from google.oauth2.credentials import Credentials

    return Credentials(token)  # type: ignore[no-untyped-call]


def _object_path(bucket: str, key: str) -> str:
    return f"b/{quote(bucket, safe='')}/o/{quote(key, safe='')}"


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    """Return HTTP headers with names in lower case. Join the values of repeated headers with ", "."""
    joined: dict[str, str] = {}
    for name, value in headers.items():
        key = name.lower()
        joined[key] = f"{joined[key]}, {value}" if key in joined else value
    return joined


def _refusal(
    url: str, status: int, detail: str, request_id: str, *, is_anonymous: bool, is_listing: bool
) -> StorageError:
    """Return the error to raise for an error response of Google's JSON API."""
    bucket = shown_bucket(url)
    told = f"HTTP {status}" + (f", request id {shorten(request_id)}" if request_id else "")
    if status == 404 and (is_listing or "bucket does not exist" in detail):
        missing = ObjectNotFoundError(safe_url(url), f"bucket {bucket!r} does not exist ({told})")
        missing.is_bucket = True
        return missing
    if status in (401, 403) and is_anonymous:
        return CredentialsError(
            safe_url(url), f"the bucket is not public, and no Google credentials were found ({told}): {HOW_TO_SIGN_IN}"
        )
    error = translate_status(url, status, detail=detail, request_id=request_id)
    if isinstance(error, CredentialsError):
        error.is_expired = True  # credentials were sent, but Google no longer accepts them
    return error


def _message_of(body: bytes) -> str:
    try:
        error = json.loads(body)["error"]
        return str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, KeyError, TypeError, RecursionError):
        return body.decode("utf-8", "replace")
