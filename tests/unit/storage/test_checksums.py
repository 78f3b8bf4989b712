"""What stores say of checksums is understood, and bytes are held against it."""

from __future__ import annotations

import hashlib
import zlib
from base64 import b64encode
from itertools import pairwise

import pytest

from aiostream_data._native import crc32c
from aiostream_data.errors import ChecksumError, PlanError, WrongAnswerError
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage import checksums
from aiostream_data.storage.checksums import (
    Checksums,
    RunningCheck,
    StoredChecksum,
    check_whole,
    take_verify,
    told_by_gcs,
    told_by_s3,
)
from aiostream_data.storage.counters import StorageCounters
from aiostream_data.storage.retry import is_transient

CONTENT = bytes(range(256)) * 40
SHARD = ShardRef("s3://bucket/key", len(CONTENT), '"v1"')
VALUES = {
    "crc32c": crc32c(CONTENT).to_bytes(4, "big"),
    "crc32": zlib.crc32(CONTENT).to_bytes(4, "big"),
    "md5": hashlib.md5(CONTENT, usedforsecurity=False).digest(),
    "sha1": hashlib.sha1(CONTENT, usedforsecurity=False).digest(),
    "sha256": hashlib.sha256(CONTENT).digest(),
}


def text(value: bytes) -> str:
    return b64encode(value).decode()


def of_s3(*algorithms: str, **others: str) -> StoredChecksum | None:
    headers = {f"x-amz-checksum-{algorithm}": text(VALUES[algorithm]) for algorithm in algorithms}
    return told_by_s3(headers | {name.replace("_", "-"): value for name, value in others.items()})


@pytest.mark.parametrize("algorithm", ["crc32c", "crc32", "sha1", "sha256"])
def test_each_checksum_of_s3_is_understood_and_found_right(algorithm: str) -> None:
    told = of_s3(algorithm)
    assert told == StoredChecksum(algorithm, VALUES[algorithm])
    check_whole(SHARD, told, memoryview(CONTENT))


def test_of_several_checksums_the_quickest_is_taken() -> None:
    told = of_s3("sha256", "crc32c", "crc32")
    assert told is not None
    assert told.algorithm == "crc32c"


def test_a_checksum_of_checksums_says_nothing_of_the_bytes() -> None:
    composite = text(VALUES["crc32"])
    assert told_by_s3({"x-amz-checksum-crc32": f"{composite}-3"}) is None
    assert told_by_s3({"x-amz-checksum-crc32": composite, "x-amz-checksum-type": "COMPOSITE"}) is None
    assert told_by_s3({"x-amz-checksum-crc32": composite, "x-amz-checksum-type": "FULL_OBJECT"}) is not None


@pytest.mark.parametrize("told", ["", "no base64!", "AAAA", "ä", text(b"12345")])
def test_what_is_no_checksum_is_passed_over(told: str) -> None:
    assert told_by_s3({"x-amz-checksum-crc32": told}) is None
    assert told_by_gcs({"x-goog-hash": f"crc32c={told}"}) is None


def test_a_checksum_that_nothing_here_computes_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksums, "_crc64nvme", lambda: None)
    headers = {"x-amz-checksum-crc64nvme": text(bytes(8))}
    assert told_by_s3(headers) is None
    assert told_by_s3({**headers, "x-amz-checksum-sha1": text(VALUES["sha1"])}) is not None


def test_a_library_that_computes_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksums, "_crc64nvme", lambda: lambda data, before: before + sum(data))
    told = told_by_s3({"x-amz-checksum-crc64nvme": text(sum(CONTENT).to_bytes(8, "big"))})
    assert told is not None
    assert told.algorithm == "crc64nvme"
    check_whole(SHARD, told, memoryview(CONTENT))


@pytest.mark.parametrize("separator", [",", ", "])
@pytest.mark.parametrize("names", [("crc32c", "md5"), ("md5", "crc32c"), ("md5",)])
def test_each_hash_of_google_is_understood_in_any_order(names: tuple[str, ...], separator: str) -> None:
    told = told_by_gcs({"x-goog-hash": separator.join(f"{name}={text(VALUES[name])}" for name in names)})
    assert told is not None
    assert told.algorithm == ("crc32c" if "crc32c" in names else "md5")
    check_whole(SHARD, told, memoryview(CONTENT))


def test_the_hash_of_an_object_that_the_server_decompresses_is_of_other_bytes() -> None:
    headers = {"x-goog-hash": f"crc32c={text(VALUES['crc32c'])}"}
    assert told_by_gcs({**headers, "x-goog-stored-content-encoding": "gzip"}) is None
    assert told_by_gcs({**headers, "x-goog-stored-content-encoding": "identity"}) is not None


def test_wrong_bytes_are_an_error_that_names_url_expected_and_found() -> None:
    wrong = bytes([1, *CONTENT[1:]])
    with pytest.raises(ChecksumError) as caught:
        check_whole(SHARD, StoredChecksum("crc32c", VALUES["crc32c"]), memoryview(wrong))
    error = caught.value
    assert (error.algorithm, error.expected) == ("crc32c", VALUES["crc32c"].hex())
    assert error.found == f"{crc32c(wrong):08x}"
    assert all(part in str(error) for part in (SHARD.url, error.expected, error.found))
    assert isinstance(error, WrongAnswerError)
    assert is_transient(error)


def told(algorithm: str = "crc32c", version: str = '"v1"', value: bytes | None = None) -> Checksums:
    known = Checksums()
    known.tell(SHARD.url, version, StoredChecksum(algorithm, VALUES[algorithm] if value is None else value))
    return known


def taken(check: RunningCheck, *cuts: int, content: bytes = CONTENT) -> None:
    for start, stop in pairwise((0, *cuts, len(content))):
        check.take(start, memoryview(content)[start:stop])


@pytest.mark.parametrize("algorithm", sorted(VALUES))
def test_ranges_one_after_another_are_checked_as_one(algorithm: str) -> None:
    counters = StorageCounters()
    check = RunningCheck(SHARD, told(algorithm), counters)
    taken(check, 1, 1_000, 1_001)
    check.close()
    assert (counters.verified, counters.mismatches) == (1, 0)


@pytest.mark.parametrize("algorithm", sorted(VALUES))
def test_a_wrong_byte_in_any_range_is_found_with_the_last_one(algorithm: str) -> None:
    wrong = CONTENT[:50] + b"?" + CONTENT[51:]
    counters = StorageCounters()
    check = RunningCheck(SHARD, told(algorithm), counters)
    check.take(0, memoryview(wrong)[:1_000])
    with pytest.raises(ChecksumError):
        check.take(1_000, memoryview(wrong)[1_000:])
    check.close()
    assert (counters.verified, counters.mismatches) == (0, 1)


@pytest.mark.parametrize(
    "known", [Checksums(), told(version='"v2"')], ids=["nothing was told", "another version was told"]
)
def test_nothing_is_checked_where_nothing_is_known(known: Checksums) -> None:
    counters = StorageCounters()
    check = RunningCheck(SHARD, known, counters)
    taken(check, 100, content=bytes(len(CONTENT)))
    check.close()
    assert (counters.verified, counters.mismatches) == (0, 0)


def test_nothing_is_checked_where_bytes_were_left_out_or_the_beginning_was() -> None:
    counters = StorageCounters()
    for starts in ((100,), (0, 200)):
        check = RunningCheck(SHARD, told(), counters)
        for start in starts:
            check.take(start, memoryview(CONTENT)[start : start + 100])
        check.take(300, memoryview(CONTENT)[300:])
        check.close()
    assert (counters.verified, counters.mismatches) == (0, 0)


def test_versions_are_compared_without_their_quotes_and_no_version_is_any() -> None:
    assert told(version="v1").of(SHARD) is not None
    assert told(version="v2").of(ShardRef(SHARD.url, len(CONTENT))) is not None
    assert told(version="v2").of(SHARD) is None


def test_what_was_told_first_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksums, "MAX_KEPT", 2)
    known = Checksums()
    for number in range(3):
        known.tell(f"s3://b/{number}", "", StoredChecksum("crc32", bytes(4)))
    known.tell("s3://b/9", "", None)
    assert [known.of(ShardRef(f"s3://b/{number}")) is not None for number in range(3)] == [False, True, True]


def test_verify_is_true_or_false() -> None:
    options = {"anon": True, "verify": False}
    assert take_verify(options) is False
    assert options == {"anon": True}
    assert take_verify({}) is True
    with pytest.raises(PlanError, match="verify"):
        take_verify({"verify": "/etc/ssl"})
