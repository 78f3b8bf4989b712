"""Store for S3 and compatible services. s3fs finds the credentials and endpoint. This module sends requests and checks
responses.

Only the aiobotocore client of s3fs is used. The read methods of s3fs are not used: they hide error codes, add their own
retries, and copy every body. Before reading a complete object, s3fs also sends a HEAD request.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from aiostream_data.endpoints import endpoint_of
from aiostream_data.errors import MissingExtraError, NoMatchError
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.aws_logs import redact_logs
from aiostream_data.storage.base import RunBlocking, StoreOptions
from aiostream_data.storage.blocking_calls import parse_body, run_detached
from aiostream_data.storage.body import check_range_answer, check_version, ends_there, fill_buffer, range_header
from aiostream_data.storage.botocore_models import session_of
from aiostream_data.storage.checksums import Checksums, take_verify, told_by_s3
from aiostream_data.storage.key_search import KeySearch, Page, PageRequest
from aiostream_data.storage.patterns import hint_of
from aiostream_data.storage.redirects import guard_client
from aiostream_data.storage.renewal import Renewal
from aiostream_data.storage.s3_addresses import ClientAddresses, Remembered, remember
from aiostream_data.storage.s3_errors import (
    WrongRegion,
    request_id_of,
    response_status,
    translate_listing_error,
    translate_s3_answer,
    translate_s3_error,
)
from aiostream_data.storage.s3_head import ask_for_object
from aiostream_data.storage.s3_listing import check_listings_of, page_of
from aiostream_data.storage.s3_page import parse_page
from aiostream_data.storage.s3_page_requests import fetch_page
from aiostream_data.storage.s3_plain import (
    DIALECT,
    BucketAddress,
    ObjectRequests,
    S3Plain,
    is_plain,
    is_plain_bucket,
    recalled,
    sends_plain,
    target_of,
)
from aiostream_data.storage.translate import bucket_alone, translating
from aiostream_data.storage.urls import has_magic, path_of, safe_url, shown_bucket, split_bucket, split_url
from aiostream_data.storage.wire.burst import read_signed
from aiostream_data.storage.wire.library_read import LibraryRead
from aiostream_data.storage.wire.object_get import ObjectGet
from aiostream_data.storage.wire.plain_read import range_of
from aiostream_data.storage.wire.route import Route, take_route_options
from aiostream_data.storage.wire.sigv4 import AwsKey
from aiostream_data.storage.wire.tls import client_context

_CONFIG = {
    "max_pool_connections": 64,  # the default of 10 limits the throughput
    "connect_timeout": 10,
    "read_timeout": 30,
    "retries": {"total_max_attempts": 1},  # RetryingStore retries requests and bodies
    "response_checksum_validation": "when_required",  # useless for ranges, and it hides the raw body
}

_PIECE_NBYTES = 256 << 10

_TABLES = frozenset({"client_kwargs", "config_kwargs", "s3_additional_kwargs"})

_OPERATIONS = ("get_object", "head_object", "list_objects_v2")

_SILENT_REFUSALS = frozenset({400, 403})
"""HTTP statuses of HEAD responses that do not reveal the cause of an error, such as expired credentials."""


class _S3Body:
    """Adapter that reads the body of a botocore response in chunks, as the chunks arrive."""

    def __init__(self, body: Any) -> None:
        self._body = body

    async def readany(self) -> bytes:
        chunk: bytes = await self._body.read(_PIECE_NBYTES)
        return chunk


class S3Store:
    """Store for objects under ``s3://bucket/key``. Keys are used byte for byte: ``%`` sequences are not decoded.

    All options of ``s3fs.S3FileSystem`` are accepted: ``anon``, ``endpoint_url``, ``key``, ``secret``, ``token``,
    ``profile``, ``client_kwargs``, ``config_kwargs``, ``requester_pays``, ``s3_additional_kwargs`` and others. If plain
    GET requests do not support an option, such as a customer-provided encryption key, the library sends the requests.
    The environment variables of boto are respected. Further options:

    - ``connect_timeout``, ``first_byte_timeout``, ``total_timeout``: time limits in seconds.
    - ``read_timeout``: longest pause between two received chunks, in seconds.
    - ``max_connections``: limit on concurrent requests.
    - ``verify``: whether to request checksums and verify complete objects.
    - ``reader``: ``"plain"`` sends GET requests with the built-in client, ``"library"`` uses aiobotocore. ``"auto"``
      uses plain GET requests unless a proxy or an option requires the library.
    """

    def __init__(self, options: StoreOptions, run_blocking: RunBlocking) -> None:
        settings = {name: value for name, value in options.items() if name not in _TABLES or value is not None}
        self.checksums = Checksums() if take_verify(settings) else None
        if (pool := settings.get("config_kwargs", {}).get("max_pool_connections")) is not None:
            settings.setdefault("max_connections", pool)  # botocore's name for max_connections
        reader, wire_options = take_route_options(settings)
        if (limit := settings.pop("max_connections", None)) is not None:
            settings["config_kwargs"] = {"max_pool_connections": limit, **settings.get("config_kwargs", {})}
        self._options: StoreOptions = settings
        self._route = Route(reader, wire_options, endpoint_of("s3", settings), self._make_tls)
        self.counters = self._route.counters
        self._dialect_of_whole = DIALECT._replace(heard=self._hear)
        self._regions: dict[str, str] = {}
        self._plain = None if self._route.reader == "library" else recalled(settings, self._regions, self._open)
        self._renewal = Renewal(self._renew)
        self._retired: list[Any] = []
        self._run_blocking = run_blocking
        self._client: Any = None
        self._added: dict[str, dict[str, Any]] = {}
        self._opening = asyncio.Lock()
        self._search = KeySearch()

    async def info(self, url: str) -> ShardRef:
        return await self._renewal.trying(lambda: self._info(url))

    async def _info(self, url: str) -> ShardRef:
        bucket, key = split_bucket(split_url(url).path)
        if not key:
            raise bucket_alone(url)
        hear = None if self.checksums is None else self._hear
        with translating(url, translate_s3_error):
            plain = await self._plain_requests()
            found = None if plain is None else await ask_for_object(self._route, plain, url, bucket, key, hear)
        return found or await self._info_by_library(url, bucket, key)

    async def _plain_requests(self) -> S3Plain | None:
        """Return the builder of plain requests, or None if the library must send all requests."""
        if self._client is None and self._plain is None:
            await self._open()
        return self._plain

    async def _info_by_library(self, url: str, bucket: str, key: str) -> ShardRef:
        with translating(url, translate_s3_error):
            client = await self._open()
        asks = {} if self.checksums is None else {"ChecksumMode": "ENABLED"}
        self.counters.sent("HEAD")
        async with self._route.asking(url):
            with translating(url, translate_s3_error):
                try:
                    answer = await client.head_object(**self._asked("head_object", Bucket=bucket, Key=key, **asks))
                except client.exceptions.ClientError as error:
                    reason = await self._with_reason(client, url, error)
                    raise reason from (None if reason is error else error)
        version = str(answer.get("ETag", ""))
        if self.checksums is not None:
            self.checksums.tell(url, version, told_by_s3(answer["ResponseMetadata"]["HTTPHeaders"]))
        nbytes = answer.get("ContentLength")
        return ShardRef(url, None if nbytes is None else int(nbytes), version)

    async def glob(self, pattern: str) -> Sequence[ShardRef]:
        return await self._renewal.trying(lambda: self._glob(pattern))

    async def _glob(self, pattern: str) -> Sequence[ShardRef]:
        if not has_magic(pattern):
            return [await self.info(pattern)]
        bucket, key_pattern = split_bucket(split_url(pattern).path)
        with translating(pattern, translate_listing_error):
            found = await self._search.find(pattern, key_pattern, partial(self._list_page, pattern, bucket))
        if not found:
            reason = f"no object in bucket {shown_bucket(pattern)!r} matches{hint_of(pattern)}"
            raise NoMatchError(safe_url(pattern), reason)
        return found.table.behind(f"s3://{bucket}/")

    async def read_into(self, shard: ShardRef, start: int, buffer: memoryview) -> None:
        if buffer:
            await self._renewal.trying(lambda: self._read_into(shard, start, buffer))

    async def read_objects(
        self, shards: Sequence[ShardRef], places: Sequence[memoryview]
    ) -> dict[int, Exception | None]:
        """Read small objects whole with one burst of plain GET requests. See :class:`.ReadsMany`.

        Before the first ordinary read of a bucket, no object is read.
        """
        plain = self._plain
        if plain is None:
            return {}
        return await read_signed(self._route, plain.key, partial(self._gets, plain, shards, places))

    def _gets(
        self, plain: S3Plain, shards: Sequence[ShardRef], places: Sequence[memoryview], key: AwsKey | None
    ) -> dict[int, ObjectGet]:
        """Return the requests for complete objects, by number, without those that the library must send."""
        gets: dict[int, ObjectGet] = {}
        buckets: dict[str, ObjectRequests | None] = {}
        asks_checksums = self.checksums is not None
        dialect = self._dialect_of_whole if asks_checksums else DIALECT
        for number, (shard, into) in enumerate(zip(shards, places, strict=True)):
            name, key_of_object = split_bucket(path_of(shard.url))
            if name not in buckets:
                buckets[name] = self._requests_to(plain, name, key, asks_checksums=asks_checksums)
            requests = buckets[name]
            if into and requests is not None:
                request = requests.of(key_of_object, shard.version)
                gets[number] = ObjectGet(requests.target, request, dialect, shard, into)
        return gets

    def _requests_to(
        self, plain: S3Plain, name: str, key: AwsKey | None, *, asks_checksums: bool
    ) -> ObjectRequests | None:
        bucket = plain.known(name)
        if bucket is None or not is_plain_bucket(name) or not self._route.leads_to(bucket.target):
            return None
        return plain.requests(bucket, key, asks_checksums=asks_checksums)

    async def _read_into(self, shard: ShardRef, start: int, buffer: memoryview) -> None:
        if not await self._read_plain(shard, start, buffer):
            async with self._route.by_library(shard.url, len(buffer)) as reading:
                await self._read_by_library(shard, start, buffer, reading)

    async def _read_plain(self, shard: ShardRef, start: int, buffer: memoryview) -> bool:
        """Read a range with the built-in HTTP client. Return False if aiobotocore has to send the request."""
        name, key = split_bucket(split_url(shard.url).path)
        with translating(shard.url, translate_s3_error):
            plain = await self._plain_requests()
            if plain is None or not is_plain_bucket(name):
                return False
            bucket = plain.known(name) or await plain.bucket(name)
            try:
                return await self._read_from(plain, bucket, key, shard, start, buffer)
            except WrongRegion as error:
                if error.region in ("", bucket.region):
                    raise
                bucket = await plain.bucket_in(name, error.region)
            return await self._read_from(plain, bucket, key, shard, start, buffer)

    async def _read_from(
        self, plain: S3Plain, bucket: BucketAddress, key: str, shard: ShardRef, start: int, buffer: memoryview
    ) -> bool:
        target = target_of(bucket, key)
        if not self._route.leads_to(target):
            return False
        is_whole = start == 0 and len(buffer) == shard.nbytes and self.checksums is not None
        headers = await plain.headers(bucket, target, shard, None if is_whole else range_of(start, buffer))
        dialect = self._dialect_of_whole if is_whole else DIALECT
        return await self._route.read(target, headers, dialect, shard, start, buffer)

    def _hear(self, url: str, version: str, headers: Mapping[str, str]) -> None:
        if self.checksums is not None:
            self.checksums.tell(url, version, told_by_s3(headers))

    async def _read_by_library(self, shard: ShardRef, start: int, buffer: memoryview, reading: LibraryRead) -> None:
        bucket, key = split_bucket(split_url(shard.url).path)
        condition = {"IfMatch": shard.version} if shard.version else {}
        with translating(shard.url, translate_s3_error):
            client = await self._open()
            asked = self._asked(
                "get_object", Bucket=bucket, Key=key, Range=range_header(start, len(buffer)), **condition
            )
            answer = await client.get_object(**asked)
            version = str(answer.get("ETag", ""))
            reading.began(version)
            body = answer["Body"]
            try:
                metadata = answer["ResponseMetadata"]
                status: int = metadata["HTTPStatusCode"]
                headers: Mapping[str, str] = metadata["HTTPHeaders"]
                check_version(shard.url, shard.version, version)
                skip = check_range_answer(shard.url, status, headers, start, len(buffer), shard.nbytes)
                exact = status == 206 or ends_there(shard, start, len(buffer))
                await fill_buffer(shard.url, _S3Body(body), buffer, skip=skip, exact=exact, filled=reading.filled)
                self.counters.received_nbytes += len(buffer)
            finally:
                body.close()  # no effect on a body read to its end: its connection is back in the pool

    async def aclose(self) -> None:
        self._route.close()
        clients = [*self._retired, *([] if self._client is None else [self._client])]
        self._client, self._retired = None, []
        for client in clients:
            await client.close()

    async def _open(self) -> Any:
        async with self._opening:
            if self._client is None:
                file_system = await run_detached(self._run_blocking, make_file_system, self._options)
                client = await file_system.set_session()
                guard_client(client)
                check_listings_of(client)
                self._added = {name: file_system._get_s3_method_kwargs(getattr(client, name)) for name in _OPERATIONS}
                self._client, sent = client, self._added["get_object"]
                if self._route.reader == "plain" or is_plain(self._options, sent):
                    found = Remembered(
                        sent,
                        lists_plain=sends_plain(self._added["list_objects_v2"]),
                        describes_plain=sends_plain(self._added["head_object"]),
                    )
                    if is_plain(self._options, sent):
                        found = remember(self._options, found)
                    self._plain = S3Plain(ClientAddresses(client, found), found, self._regions)
        return self._client

    def _asked(self, operation: str, **asked: Any) -> dict[str, Any]:
        """Return the arguments of a request, including arguments from the user's options."""
        return {**self._added.get(operation, {}), **asked}

    async def _renew(self) -> None:
        """Replace the client: the next request opens a new client with new credentials.

        Requests in progress may still use the old client, which is closed with the store.
        """
        self.counters.credentials_renewed += 1
        async with self._opening:
            if self._client is not None:
                self._retired.append(self._client)
            self._client = self._plain = None

    def _make_tls(self) -> ssl.SSLContext:
        verify = self._options.get("client_kwargs", {}).get("verify")
        return client_context(verify=verify if verify is not None else os.environ.get("AWS_CA_BUNDLE"))

    async def _with_reason(self, client: Any, url: str, error: Exception) -> Exception:
        """Send another request to find out why a HEAD failed, because responses to HEAD contain no error code."""
        bucket, key = split_bucket(split_url(url).path)
        status = response_status(error)
        if status == 404 and await self._bucket_is_missing(client, bucket):
            return translate_s3_answer(url, 404, "NoSuchBucket", request_id_of(error))
        if status in _SILENT_REFUSALS:
            return await self._refusal_of_get(client, bucket, key) or error
        return error

    async def _refusal_of_get(self, client: Any, bucket: str, key: str) -> Exception | None:
        """Request one byte and return the error of a refused request.

        Return None if the object is readable or empty.
        """
        self.counters.sent("GET")
        try:
            answer = await client.get_object(**self._asked("get_object", Bucket=bucket, Key=key, Range="bytes=0-0"))
        except client.exceptions.ClientError as error:
            return error if response_status(error) in _SILENT_REFUSALS else None
        answer["Body"].close()
        return None

    async def _bucket_is_missing(self, client: Any, bucket: str) -> bool:
        self.counters.sent("HEAD")
        try:
            await client.head_bucket(Bucket=bucket)
        except client.exceptions.ClientError as error:
            return response_status(error) == 404
        return False

    async def _list_page(self, pattern: str, bucket: str, asked: PageRequest) -> Page:
        if self._plain is None:
            await self._open()
        if self._plain is not None and self._plain.lists:
            body = await fetch_page(self._route, self._plain, bucket, asked, pattern)
            if body is not None:
                return await parse_body(self._run_blocking, parse_page, pattern, body)
        return await self._list_by_library(pattern, bucket, asked)

    async def _list_by_library(self, pattern: str, bucket: str, asked: PageRequest) -> Page:
        client = await self._open()
        request = self._asked("list_objects_v2", Bucket=bucket, Prefix=asked.prefix, MaxKeys=asked.most)
        if asked.folded:
            request["Delimiter"] = "/"
        if asked.token:
            request["ContinuationToken"] = asked.token
        self.counters.sent("LIST")
        async with self._route.listing(f"s3://{bucket}/{asked.prefix}"):
            with translating(pattern, translate_listing_error):
                return page_of(pattern, await client.list_objects_v2(**request))


def make_file_system(options: StoreOptions) -> Any:
    """Return an ``s3fs.S3FileSystem`` for the caller's loop. Blocking: the function imports the AWS client.

    Raises:
        MissingExtraError: s3fs is not installed.
    """
    try:
        import s3fs
    except ImportError as error:
        raise MissingExtraError("s3:// needs s3fs: pip install 'aiostream-data[s3]'") from error
    redact_logs()
    settings = dict(options)
    timeouts = {name: settings.pop(name) for name in ("connect_timeout", "read_timeout") if name in settings}
    settings["config_kwargs"] = {**_CONFIG, **timeouts, **settings.get("config_kwargs", {})}
    file_system = s3fs.S3FileSystem(**settings, asynchronous=True, skip_instance_cache=True)
    if file_system.session is None:
        file_system.session = session_of(file_system.kwargs)
    return file_system
