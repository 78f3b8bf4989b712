"""What stores say of the checksum of a whole object, and whether the bytes that came agree with it.

How this works. Google Cloud Storage says with every answer what the whole object's checksum is; S3 with an answer to
a request for the whole object, if asked, and when it describes one. What was said is kept by URL and version. Whoever
has all bytes of an object, at once or range by range from its beginning on, then holds them against it.

S3 also has checksums of checksums, for objects that were uploaded in parts. They say nothing of the bytes, are marked
as such in answers for whole objects, and not marked in answers for ranges. So what S3 says with a range is not used.
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
"""Objects of which it is remembered what their store said; those that were told last."""

ASK_S3: Final = {"x-amz-checksum-mode": "ENABLED"}
"""Header by which S3 is asked to say the checksum of an object. Has to be signed."""

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
"""So many bytes are summed in less time than it takes to hand them to a thread, or in little more; by algorithm."""

INLINE_OTHERS_NBYTES: Final = 64 << 10


class StoredChecksum(NamedTuple):
    """What a store says that an object's bytes sum up to.

    Attributes:
        algorithm: crc32c, crc32, crc64nvme, md5, sha1 or sha256.
        value: Its result, most significant byte first.
    """

    algorithm: str
    value: bytes

    @property
    def inline_nbytes(self) -> int:
        """Bytes that may be summed where nothing may take long."""
        return INLINE_NBYTES.get(self.algorithm, INLINE_OTHERS_NBYTES)


def told_by_s3(headers: Mapping[str, str]) -> StoredChecksum | None:
    """Return what S3 says of a whole object in the headers of an answer; None where it says nothing of use.

    Args:
        headers: Of the answer to a request without a range, names in lower case.
    """
    if headers.get("x-amz-checksum-type", "").upper() == "COMPOSITE":
        return None
    return _first_known({algorithm: headers[name] for algorithm, name in _OF_S3.items() if name in headers})


def told_by_gcs(headers: Mapping[str, str]) -> StoredChecksum | None:
    """Return what Google Cloud Storage says of a whole object in the headers of any answer, names in lower case.

    None for an object that is stored compressed, and which the server decompresses: its checksum is of other bytes.
    """
    if headers.get("x-goog-stored-content-encoding", "identity") not in ("", "identity"):
        return None
    told = dict(_GCS_HASH.findall(headers.get("x-goog-hash", "")))
    return _first_known({algorithm: told[algorithm] for algorithm in _OF_GCS if algorithm in told})


def _first_known(told: Mapping[str, str]) -> StoredChecksum | None:
    """Return the first that can be computed here. What is no checksum of bytes, as "...-3", is passed over."""
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
    """Return awscrt's function, None where that is not installed: nothing else at hand has it."""
    if importlib.util.find_spec("awscrt") is None:
        return None
    found: Callable[..., int] | None = getattr(importlib.import_module("awscrt.checksums"), "crc64nvme", None)
    return found


class _Sum:
    """A checksum of bytes that come one after another."""

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
    """What stores said, by URL and version. Written on the event loop, read on any thread."""

    def __init__(self) -> None:
        self._told: OrderedDict[str, tuple[str, StoredChecksum]] = OrderedDict()

    def tell(self, url: str, version: str, told: StoredChecksum | None) -> None:
        """Keep what a store said of a version of an object."""
        if told is None:
            return
        self._told[url] = (version, told)
        self._told.move_to_end(url)
        while len(self._told) > MAX_KEPT:
            self._told.popitem(last=False)

    def of(self, shard: ShardRef) -> StoredChecksum | None:
        """Return what was said of an object; of its last version, where the shard names none."""
        version, told = self._told.get(shard.url, ("", None))
        return told if not shard.version or shard.version.strip('"') == version.strip('"') else None


def check_whole(shard: ShardRef, told: StoredChecksum, data: memoryview) -> None:
    """Hold all bytes of an object against what its store said.

    Raises:
        ChecksumError: They are others.
    """
    total = _Sum(told.algorithm)
    total.add(data)
    _compare(shard, told, total.value)


class RunningCheck:
    """Checks an object whose bytes are taken range by range from its beginning on, where its store said what they are.

    One range after another, on any thread; made, and closed, on the event loop.
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
        """Take in the bytes that begin at ``start``.

        Nothing is checked where bytes were left out, or where nothing was told before the first range was taken; and
        an object in one piece is not, since that was when it came.

        Raises:
            ChecksumError: With these the object is whole, and its bytes are others.
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
        """Count what came of it."""
        self._counters.verified += self._agrees is True
        self._counters.mismatches += self._agrees is False


def _compare(shard: ShardRef, told: StoredChecksum, found: bytes) -> None:
    if found != told.value:
        raise ChecksumError(safe_url(shard.url), told.algorithm, told.value.hex(), found.hex())


def take_verify(options: MutableMapping[str, Any]) -> bool:
    """Take ``verify`` out of ``storage_options``: whether checksums are asked for and held against; True by default.

    Raises:
        PlanError: It is neither True nor False.
    """
    verify = options.pop("verify", True)
    if not isinstance(verify, bool):
        raise PlanError(f"verify must be True or False, got {shown_option(verify)}")
    return verify
