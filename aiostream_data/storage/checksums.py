"""Record checksums of complete objects that stores report, and verify received bytes against these checksums.

Google Cloud Storage reports the checksum of the complete object with every response. S3 reports the checksum on
request, in responses to HEAD requests and to GET requests for a complete object. Reported checksums are recorded by URL
and version. A checksum is verified when its object has been read completely, in one piece or range by range from the
start.

For multipart uploads, S3 also reports composite checksums, which are checksums of the parts' checksums. Composite
checksums cannot be verified. S3 marks composite checksums in responses for complete objects, but not in responses for
ranges. So checksums in S3's responses to range requests are ignored.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import re
import zlib
from base64 import b64decode
from binascii import Error as NotBase64
from collections import OrderedDict
from collections.abc import Callable, Mapping, MutableMapping
from functools import cache
from typing import Any, Final, NamedTuple

from aiostream_data._native import crc32c, hardware_crc
from aiostream_data.errors import ChecksumError, PlanError
from aiostream_data.redaction import shown_option
from aiostream_data.rows.records import ShardRef
from aiostream_data.safe_url import safe_url
from aiostream_data.storage.counters import StorageCounters

MAX_KEPT: Final = 4096
"""Maximum number of objects whose checksums are stored. The oldest checksums are discarded first."""

ASK_S3: Final = {"x-amz-checksum-mode": "ENABLED"}
"""Request header that makes S3 report the checksum of an object. The request signature must cover this header."""

_CRC_NBYTES: Final = {"crc32": 4, "crc32c": 4, "crc64nvme": 8}
_NBYTES: Final = {**_CRC_NBYTES, "md5": 16, "sha1": 20, "sha256": 32}
_OF_S3: Final = {name: f"x-amz-checksum-{name}" for name in ("crc32c", "crc64nvme", "crc32", "sha1", "sha256")}
_OF_GCS: Final = ("crc32c", "md5")
_GCS_HASH: Final = re.compile(r"(?:^|,)\s*(crc32c|md5)=([A-Za-z0-9+/]+={0,2})\s*(?=,|$)")

INLINE_NBYTES: Final = {
    "crc32c": 1 << 20 if hardware_crc() else 128 << 10,
    "crc64nvme": 256 << 10,
    "crc32": 256 << 10,
}
"""Maximum size in bytes of an input that is hashed on the event loop, by algorithm. Larger inputs are hashed on a
worker thread."""

INLINE_OTHERS_NBYTES: Final = 64 << 10


class StoredChecksum(NamedTuple):
    """Checksum of a complete object, reported by its store.

    Attributes:
        algorithm: crc32c, crc32, crc64nvme, md5, sha1 or sha256.
        value: Bytes of the checksum, most significant byte first.
    """

    algorithm: str
    value: bytes

    @property
    def inline_nbytes(self) -> int:
        """Maximum number of bytes to hash on the event loop with this checksum algorithm."""
        return INLINE_NBYTES.get(self.algorithm, INLINE_OTHERS_NBYTES)


def told_by_s3(headers: Mapping[str, str]) -> StoredChecksum | None:
    """Return the checksum of the complete object from the headers of an S3 response, or None if it is missing or
    unusable.

    Args:
        headers: Headers of the response to a request without a range, with names in lower case.
    """
    if headers.get("x-amz-checksum-type", "").upper() == "COMPOSITE":
        return None
    return _first_known({algorithm: headers[name] for algorithm, name in _OF_S3.items() if name in headers})


def told_by_gcs(headers: Mapping[str, str]) -> StoredChecksum | None:
    """Return the checksum of the complete object from the headers of a Google Cloud Storage response, or None.

    If the server decompresses the object, return None: the reported checksum covers the compressed bytes.

    Args:
        headers: Headers of any response about the object, with names in lower case.
    """
    if headers.get("x-goog-stored-content-encoding", "identity") not in ("", "identity"):
        return None
    told = dict(_GCS_HASH.findall(headers.get("x-goog-hash", "")))
    return _first_known({algorithm: told[algorithm] for algorithm in _OF_GCS if algorithm in told})


def _first_known(told: Mapping[str, str]) -> StoredChecksum | None:
    """Return the first valid checksum whose algorithm is available. Skip composite checksums such as "...-3"."""
    for algorithm, text in told.items():
        try:
            value = b64decode(text, validate=True)
        except (NotBase64, ValueError):
            continue
        if len(value) == _NBYTES[algorithm] and (algorithm != "crc64nvme" or _crc64nvme() is not None):
            return StoredChecksum(algorithm, value)
    return None


@cache
def _crc64nvme() -> Callable[..., int] | None:
    """Return the CRC-64/NVME function of awscrt, or None if awscrt is not installed."""
    if importlib.util.find_spec("awscrt") is None:
        return None
    found: Callable[..., int] | None = getattr(importlib.import_module("awscrt.checksums"), "crc64nvme", None)
    return found


class _Sum:
    """Checksum that is computed incrementally from consecutive byte ranges."""

    def __init__(self, algorithm: str) -> None:
        self._nbytes = _CRC_NBYTES.get(algorithm, 0)
        self._value = 0
        self._crc: Callable[..., int] | None = None
        self._hash: Any = None
        if self._nbytes:
            self._crc = {"crc32c": crc32c, "crc32": zlib.crc32}.get(algorithm) or _crc64nvme()
        else:
            self._hash = hashlib.new(algorithm, usedforsecurity=False)

    def add(self, data: memoryview) -> None:
        if self._crc is not None:
            self._value = self._crc(data, self._value)
        else:
            self._hash.update(data)

    @property
    def value(self) -> bytes:
        return bytes(self._hash.digest()) if self._hash is not None else self._value.to_bytes(self._nbytes, "big")


class Checksums:
    """Reported checksums, keyed by URL and version. The event loop adds checksums; any thread may read them."""

    def __init__(self) -> None:
        self._told: OrderedDict[str, tuple[str, StoredChecksum]] = OrderedDict()

    def tell(self, url: str, version: str, told: StoredChecksum | None) -> None:
        """Store the checksum reported for a version of an object. Ignore None."""
        if told is None:
            return
        self._told[url] = (version, told)
        self._told.move_to_end(url)
        while len(self._told) > MAX_KEPT:
            self._told.popitem(last=False)

    def of(self, shard: ShardRef) -> StoredChecksum | None:
        """Return the reported checksum of a shard, or None. A shard without a version matches all versions."""
        version, told = self._told.get(shard.url, ("", None))
        return told if not shard.version or shard.version.strip('"') == version.strip('"') else None


def check_whole(shard: ShardRef, told: StoredChecksum, data: memoryview) -> None:
    """Verify all bytes of an object against its reported checksum.

    Raises:
        ChecksumError: The checksum of ``data`` differs from the reported checksum.
    """
    total = _Sum(told.algorithm)
    total.add(data)
    _compare(shard, told, total.value)


class RunningCheck:
    """Incremental checksum verification of an object that is read range by range from its start.

    Create and close an instance on the event loop. Any thread may call :meth:`take`, for one range at a time.
    """

    def __init__(self, shard: ShardRef, checksums: Checksums, counters: StorageCounters) -> None:
        self._shard = shard
        self._checksums = checksums
        self._counters = counters
        self._agrees: bool | None = None
        self._at: int | None = 0
        self._told: StoredChecksum | None = None
        self._sum: _Sum | None = None

    def take(self, start: int, data: memoryview) -> None:
        """Add the bytes that begin at ``start`` to the checksum.

        Verification stops if a range is skipped or if no checksum was reported before the first range. An object that
        was read in one piece is skipped, because its checksum was verified when it arrived.

        Raises:
            ChecksumError: The object is complete and its checksum differs from the reported checksum.
        """
        if start == 0 and len(data) != self._shard.nbytes:
            self._told = self._checksums.of(self._shard)
            self._sum = None if self._told is None else _Sum(self._told.algorithm)
        if start != self._at or self._told is None or self._sum is None:
            self._at = None
            return
        self._sum.add(data)
        self._at = start + len(data)
        if self._at == self._shard.nbytes:
            self._agrees = self._sum.value == self._told.value
            _compare(self._shard, self._told, self._sum.value)

    def close(self) -> None:
        """If the verification was completed, count the object as verified or mismatched."""
        self._counters.verified += self._agrees is True
        self._counters.mismatches += self._agrees is False


def _compare(shard: ShardRef, told: StoredChecksum, found: bytes) -> None:
    if found != told.value:
        raise ChecksumError(safe_url(shard.url), told.algorithm, told.value.hex(), found.hex())


def take_verify(options: MutableMapping[str, Any]) -> bool:
    """Remove the option ``verify`` from ``storage_options``.

    Return the option's value: True to verify checksums. The default is True.

    Raises:
        PlanError: ``verify`` is neither True nor False.
    """
    verify = options.pop("verify", True)
    if not isinstance(verify, bool):
        raise PlanError(f"verify must be True or False, got {shown_option(verify)}")
    return verify
