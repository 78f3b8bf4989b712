"""Compute the headers of plain GET requests to S3.

For every bucket, the client of s3fs presigns one URL for a placeholder key (``s3_addresses.py``). The URL contains the
endpoint and addressing style that the library would use for the region, bucket name and custom endpoint. Each request
replaces the placeholder with its own key, and reads the current credentials.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from aiostream_data.errors import PlanError, StorageError, StoreBusyError
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.base import StoreOptions
from aiostream_data.storage.checksums import ASK_S3
from aiostream_data.storage.s3_addresses import (
    Addresses,
    ClientAddresses,
    FoundAddress,
    Remembered,
    RememberedAddresses,
    given_key,
    recall,
)
from aiostream_data.storage.s3_errors import translate_s3_answer
from aiostream_data.storage.urls import safe_url
from aiostream_data.storage.wire.client import Refused, RequestTarget
from aiostream_data.storage.wire.plain_read import WHOLE, PlainDialect
from aiostream_data.storage.wire.request import header_lines, request_of_lines
from aiostream_data.storage.wire.sigv4 import AwsKey, SharedSignature, Signer, quoted_path

_REGION: Final = re.compile(r"[a-z]{2}[a-z0-9-]{2,30}")
_TOLD_REGION: Final = re.compile(rb"<Region>([a-z0-9-]{1,40})</Region>")
_AMAZON: Final = re.compile(r"((?:.+\.)?)s3(?:[.-]([a-z0-9-]+))?\.amazonaws\.com((?:\.cn)?)")
_CODE: Final = re.compile(rb"<Code>([A-Za-z0-9._-]{1,80})</Code>")
_SENT: Final = {"RequestPayer": "x-amz-request-payer"}
"""Optional arguments of ``get_object`` that a plain GET supports, with the header for each argument."""

_PLAIN_CLIENT: Final = frozenset({"region_name", "endpoint_url", "use_ssl", "verify", "api_version"})
_PLAIN_CONFIG: Final = frozenset(
    {
        "max_pool_connections", "connect_timeout", "read_timeout", "retries", "response_checksum_validation",
        "request_checksum_calculation", "signature_version", "s3", "region_name", "user_agent", "user_agent_extra",
        "tcp_keepalive",
    }
)  # fmt: skip
_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class BucketAddress:
    """Address of a bucket, and the signer for its requests.

    Attributes:
        target: Server of the bucket, and the path before the object key.
        region: AWS region for which requests are signed.
        signer: Request signer for the region, or None for unsigned requests.
    """

    target: RequestTarget
    region: str
    signer: Signer | None


class S3Plain:
    """Builder of plain GET requests with the credentials and endpoint of one client.

    Args:
        addresses: Source of credentials and addresses.
        found: Arguments for every request; see :func:`is_plain`.
        regions: Regions of buckets outside the client's region, by bucket name. :meth:`bucket_in` adds entries.

    Attributes:
        lists: True if plain GET requests support the arguments of listings.
        describes: True if plain HEAD requests support the arguments of requests for the size of an object.

    Raises:
        PlanError: A plain GET does not support one of the arguments.
    """

    def __init__(self, addresses: Addresses, found: Remembered, regions: dict[str, str]) -> None:
        sent = found.sent
        self.lists, self.describes = found.lists_plain, found.describes_plain
        self._addresses = addresses
        self._regions = regions
        if others := sorted(set(sent) - set(_SENT)):
            raise PlanError(
                f"reader='plain' cannot send {', '.join(others)}; remove the option, or use reader='library'"
            )
        self._sent = {_SENT[name]: str(value) for name, value in sent.items()}
        self._buckets: dict[str, BucketAddress] = {}

    def known(self, name: str) -> BucketAddress | None:
        """Return the cached address of a bucket, or None before the first call of :meth:`bucket`."""
        return self._buckets.get(name)

    async def bucket(self, name: str) -> BucketAddress:
        """Return the address of a bucket without sending a request to the store."""
        found = self._buckets.get(name)
        if found is None:
            found = self._buckets[name] = await self._find(name)
        return found

    async def bucket_in(self, name: str, region: str) -> BucketAddress:
        """Return the address of a bucket in the region reported by the store. Cache the address for later requests."""
        found = self._buckets.get(name)
        if found is None or found.region != region:
            self._regions[name] = region
            found = self._buckets[name] = await self._find(name)
        return found

    async def headers(
        self, bucket: BucketAddress, target: RequestTarget, shard: ShardRef, range_headers: Mapping[str, str] | None
    ) -> dict[str, str]:
        """Return the signed headers of a GET request.

        Args:
            shard: The object to read. The version of the object becomes an If-Match condition.
            range_headers: Range headers from :func:`.plain_read.range_of`, or None to request the complete object and
                its checksum.
        """
        sent = self._sent if range_headers is not None else {**self._sent, **ASK_S3}
        headers = {**(range_headers or WHOLE), **sent}
        if shard.version:
            headers["if-match"] = shard.version
        return {**headers, **await self._signature(bucket, target.path, "", sent)}

    async def head_headers(
        self, bucket: BucketAddress, target: RequestTarget, *, asks_checksums: bool
    ) -> dict[str, str]:
        """Return the signed headers of a HEAD request.

        Args:
            asks_checksums: True to request the checksums of the object.
        """
        sent = {**self._sent, **ASK_S3} if asks_checksums else self._sent
        return {**WHOLE, **sent, **await self._signature(bucket, target.path, "", sent, method="HEAD")}

    async def listing_headers(self, bucket: BucketAddress, path: str, query: str) -> dict[str, str]:
        """Return the signed headers of a request for a page of a listing.

        Args:
            path: Percent-encoded path in the request line.
            query: Query in the request line; see :meth:`.Signer.headers`.
        """
        return {**WHOLE, **self._sent, **await self._signature(bucket, path, query, self._sent)}

    def requests(self, bucket: BucketAddress, key: AwsKey | None, *, asks_checksums: bool) -> ObjectRequests:
        """Return a builder of requests for complete objects of a bucket, which is valid for the current second.

        Args:
            key: Credentials from :meth:`key`.
            asks_checksums: True to request the checksums of the objects.
        """
        sent = {**self._sent, **ASK_S3} if asks_checksums else self._sent
        host = bucket.target.host_header
        shared = None if bucket.signer is None or key is None else bucket.signer.shared(key, host, sent)
        return ObjectRequests(bucket.target, {**WHOLE, **sent}, shared)

    async def key(self) -> AwsKey | None:
        """Return the current credentials; None for unsigned requests."""
        return await self._addresses.key()

    async def _signature(
        self, bucket: BucketAddress, path: str, query: str, sent: Mapping[str, str], *, method: str = "GET"
    ) -> Mapping[str, str]:
        key = await self.key()
        if bucket.signer is None or key is None:
            return {}
        return bucket.signer.headers(key, bucket.target.host_header, path, query, extra=sent, method=method)

    async def _find(self, name: str) -> BucketAddress:
        found = await self._addresses.find(name)
        parts = urlsplit(found.url)
        region = self._regions.get(name) or found.region
        host = host_in(parts.hostname or "", region)
        port = parts.port or _PORTS[parts.scheme]
        target = RequestTarget(host, port, parts.scheme == "https", parts.path[:-1])
        return BucketAddress(target, region, Signer(region) if found.is_signed else None)


class ObjectRequests:
    """Builder of requests for complete objects of one bucket.

    Args:
        target: Server of the bucket, and the path before the object key.
        headers: Headers of each request that are not signed.
        shared: Common part of the signatures, or None for unsigned requests.
    """

    __slots__ = ("_host", "_lines", "_shared", "target")

    def __init__(self, target: RequestTarget, headers: Mapping[str, str], shared: SharedSignature | None) -> None:
        self.target = target
        self._host = target.host_header
        self._shared = shared
        self._lines = header_lines({**headers, **(shared.headers if shared is not None else {})})
        if shared is not None:
            header_lines({"authorization": shared.authorization("/")})  # raises an error if the key is invalid

    def of(self, key: str, version: str) -> bytes:
        """Return the request for an object. The version becomes an If-Match condition, unless it is ""."""
        path = self.target.path + quoted_path(key)
        lines = self._lines + header_lines({"if-match": version}) if version else self._lines
        if self._shared is not None:
            lines += f"authorization: {self._shared.authorization(path)}\r\n"
        return request_of_lines("GET", self._host, path, lines)


def recalled(
    options: StoreOptions, regions: dict[str, str], open_client: Callable[[], Awaitable[Any]]
) -> S3Plain | None:
    """Return a builder of requests with the addresses that an earlier client of this process found, or None.

    Args:
        open_client: Opens a client, which is needed for other buckets.
    """
    found, key = recall(options), given_key(options)
    if found is None or key is None:
        return None

    async def ask(bucket: str) -> FoundAddress:
        return await ClientAddresses(await open_client(), found).find(bucket)

    return S3Plain(RememberedAddresses(key, found, ask), found, regions)


def host_in(host: str, region: str) -> str:
    """Insert the region into an Amazon S3 host name. Return other host names unchanged."""
    found = _AMAZON.fullmatch(host)
    if found is None or found[2] == "accelerate" or (region in ("us-east-1", "aws-global") and found[2] is None):
        return host
    return f"{found[1]}s3.{region}.amazonaws.com{found[3]}"


def target_of(bucket: BucketAddress, key: str) -> RequestTarget:
    """Return the server and path of an object in a bucket."""
    host, port, is_tls, path = bucket.target
    return RequestTarget(host, port, is_tls, path + quoted_path(key))


def is_plain(options: StoreOptions, sent: Mapping[str, Any]) -> bool:
    """Return True if plain GET requests support all ``storage_options`` and request arguments."""
    config = options.get("config_kwargs", {})
    return (
        set(options.get("client_kwargs", {})) <= _PLAIN_CLIENT
        and set(config) <= _PLAIN_CONFIG
        and config.get("signature_version", "s3v4") == "s3v4"
        and not {"use_accelerate_endpoint", "use_dualstack_endpoint"} & set(config.get("s3", {}))
        and sends_plain(sent)
        and not options.get("session")
    )


def sends_plain(sent: Mapping[str, Any]) -> bool:
    """Return True if plain GET requests support all additional arguments of a request."""
    return set(sent) <= set(_SENT)


def is_plain_bucket(name: str) -> bool:
    """Return True if plain GETs can read a bucket. S3 Express buckets need sessions, and ARNs are not bucket names."""
    return not name.endswith(("--x-s3", "--xa-s3")) and not name.startswith("arn:")


def code_of(answer: Refused) -> str:
    """Return the S3 error code in the body of a response, or ""."""
    found = _CODE.search(answer.detail)
    return "" if found is None else found[1].decode("ascii")


def region_of(answer: Refused) -> str:
    """Return the bucket region reported by a response, or "" if the region is missing or malformed."""
    told = answer.headers.get("x-amz-bucket-region", "")
    if not told and (found := _TOLD_REGION.search(answer.detail)) is not None:
        told = found[1].decode("ascii")
    return told if _REGION.fullmatch(told) else ""  # the region becomes part of a host name


def _refusal(url: str, answer: Refused) -> StorageError:
    if 200 <= answer.status < 300:
        return StoreBusyError(safe_url(url), "the store returned an error document instead of the object")
    request_id = answer.headers.get("x-amz-request-id", "")
    return translate_s3_answer(url, answer.status, code_of(answer), request_id, region_of(answer))


def _version_of(headers: Mapping[str, str]) -> str:
    return headers.get("etag", "")


def _hides_error(headers: Mapping[str, str]) -> bool:
    """Return True if a successful response contains an XML error document. Unlike an object, the error document has no
    ETag."""
    return "etag" not in headers and headers.get("content-type", "").partition(";")[0].endswith("/xml")


DIALECT: Final = PlainDialect(_version_of, _refusal, _hides_error, redirects=frozenset({301}))
