"""Addresses of buckets, from the client of s3fs, or as an earlier client of this process found them.

Creating a client takes tens of milliseconds, much longer than reading the first objects. Its result depends only on the
options, the environment and the AWS configuration files. If the options contain the credentials, later stores with the
same options read without a client.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from aiostream_data.storage.base import StoreOptions
from aiostream_data.storage.wire.sigv4 import AwsKey

MOST_SETTINGS: Final = 32
"""Maximum number of different options whose addresses are remembered."""

MOST_BUCKETS: Final = 256
"""Maximum number of buckets that are remembered for each of them."""

_FILES: Final = {"AWS_CONFIG_FILE": "~/.aws/config", "AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials"}


class FoundAddress(NamedTuple):
    """Address of a bucket as a client found it.

    Attributes:
        url: URL of the placeholder key "k" in the bucket, without a query.
        region: Region of the client.
        is_signed: True if requests are signed.
    """

    url: str
    region: str
    is_signed: bool


class Addresses(Protocol):
    """Source of the credentials of requests and of the addresses of buckets."""

    async def key(self) -> AwsKey | None:
        """Return the current credentials; None for unsigned requests."""

    async def find(self, bucket: str) -> FoundAddress:
        """Return the address of a bucket without sending a request to the store."""


@dataclass
class Remembered:
    """What a client found for some options.

    Attributes:
        sent: Optional arguments of every request for an object.
        lists_plain: True if plain GET requests support the arguments of listings.
        describes_plain: True if plain HEAD requests support the arguments of requests for the size of an object.
        buckets: Addresses of buckets.
    """

    sent: Mapping[str, Any]
    lists_plain: bool
    describes_plain: bool
    buckets: dict[str, FoundAddress] = field(default_factory=dict)


class ClientAddresses:
    """Addresses and credentials of an aiobotocore client.

    The client renews credentials before they expire.

    Args:
        client: The client.
        remembered: Receives the addresses.
    """

    def __init__(self, client: Any, remembered: Remembered) -> None:
        self._client = client
        self._remembered = remembered

    async def key(self) -> AwsKey | None:
        credentials = self._client._request_signer._credentials
        if credentials is None:
            return None
        frozen = await credentials.get_frozen_credentials()
        return AwsKey(frozen.access_key, frozen.secret_key, frozen.token)

    async def find(self, bucket: str) -> FoundAddress:
        asked = {"Bucket": bucket, "Key": "k"}
        presigned = await self._client.generate_presigned_url("get_object", Params=asked, ExpiresIn=60)
        url, _, query = presigned.partition("?")
        is_signed = self._client._request_signer._credentials is not None and bool(query)
        found = FoundAddress(url, self._client.meta.region_name or "us-east-1", is_signed)
        if len(self._remembered.buckets) < MOST_BUCKETS:
            self._remembered.buckets[bucket] = found
        return found


class RememberedAddresses:
    """Addresses that an earlier client found, and the credentials of the options.

    Args:
        key: Credentials of the options.
        remembered: The addresses.
        ask: Function that opens a client and returns the address of an unknown bucket.
    """

    def __init__(self, key: AwsKey, remembered: Remembered, ask: Callable[[str], Awaitable[FoundAddress]]) -> None:
        self._key = key
        self._remembered = remembered
        self._ask = ask

    async def key(self) -> AwsKey | None:
        return self._key

    async def find(self, bucket: str) -> FoundAddress:
        return self._remembered.buckets.get(bucket) or await self._ask(bucket)


_remembered: OrderedDict[str, Remembered] = OrderedDict()  # by fingerprint; the oldest first


def remember(options: StoreOptions, found: Remembered) -> Remembered:
    """Remember what a client found, if the options contain the credentials. Return what is remembered."""
    fingerprint = _fingerprint(options)
    if fingerprint is None:
        return found
    found = _remembered.setdefault(fingerprint, found)
    while len(_remembered) > MOST_SETTINGS:
        _remembered.popitem(last=False)
    return found


def recall(options: StoreOptions) -> Remembered | None:
    """Return what an earlier client of this process found for the same options, or None."""
    fingerprint = _fingerprint(options) if _remembered else None
    return None if fingerprint is None else _remembered.get(fingerprint)


def given_key(options: StoreOptions) -> AwsKey | None:
    """Return the credentials that the options contain, or None if they have to be found."""
    key, secret, token = options.get("key"), options.get("secret"), options.get("token")
    if any(options.get(name) for name in ("anon", "session", "profile")) or not isinstance(token, str | None):
        return None
    return AwsKey(key, secret, token) if isinstance(key, str) and isinstance(secret, str) and key and secret else None


def _fingerprint(options: StoreOptions) -> str | None:
    """Return a hash of everything that the result of a client depends on, or None if it cannot be known."""
    if given_key(options) is None:
        return None
    environment = {name: value for name, value in os.environ.items() if name.startswith(("AWS_", "BOTO"))}
    files = [_changed_ns(os.environ.get(name, path)) for name, path in _FILES.items()]
    try:
        text = json.dumps([options, environment, files], sort_keys=True)
    except (TypeError, ValueError):  # an option is an object
        return None
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _changed_ns(path: str) -> int | None:
    try:
        return Path(path).expanduser().stat().st_mtime_ns
    except (OSError, RuntimeError):
        return None
