"""URLs are split, and made safe to print."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiostream_data.errors import PlanError
from aiostream_data.storage.urls import has_magic, safe_url, split_bucket, split_url


@pytest.mark.parametrize(
    ("url", "scheme", "path"),
    [
        ("data/x.bin", "file", "data/x.bin"),
        ("/data/x.bin", "file", "/data/x.bin"),
        ("file:///data/x.bin", "file", "/data/x.bin"),
        ("memory://name", "memory", "name"),
        ("s3://bucket/a key%20+?.bin", "s3", "bucket/a key%20+?.bin"),
        ("s3a://bucket/key", "s3", "bucket/key"),
        ("S3://Bucket/Key", "s3", "Bucket/Key"),
        ("gcs://bucket/key", "gs", "bucket/key"),
        ("https://host/path?q=1", "https", "host/path?q=1"),
        ("hf://datasets/x", "hf", "datasets/x"),
        ("odd:name", "file", "odd:name"),
    ],
)
def test_a_url_is_split_into_scheme_and_path(url: str, scheme: str, path: str) -> None:
    assert split_url(url) == (scheme, path)


def test_a_path_object_is_a_local_file(tmp_path: Path) -> None:
    assert split_url(tmp_path / "x") == ("file", str(tmp_path / "x"))


def test_the_home_directory_is_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    assert split_url("~/x") == ("file", "/home/someone/x")
    assert split_url("file://~/x") == ("file", "/home/someone/x")


def test_chained_urls_are_refused_rather_than_taken_for_paths() -> None:
    with pytest.raises(PlanError, match="simplecache::"):
        split_url("simplecache::s3://bucket/key")


def test_a_bucket_ends_at_the_first_slash() -> None:
    assert split_bucket("bucket/a/b") == ("bucket", "a/b")
    assert split_bucket("bucket") == ("bucket", "")
    assert split_bucket("bucket//a") == ("bucket", "/a")


def test_wildcards_are_seen_in_names_but_not_in_queries() -> None:
    assert all(map(has_magic, ("a*", "s3://b/x?", "gs://b/[ab]")))
    assert not any(map(has_magic, ("a", "s3://b/x", "https://host/x?list=*")))


@pytest.mark.parametrize(
    ("url", "printed"),
    [
        ("s3://bucket/key", "s3://bucket/key"),
        ("s3://bucket/a@b:c", "s3://bucket/a@b:c"),
        ("plain/path?sig=1", "plain/path?sig=1"),
        ("https://user:hunter2@host/x", "https://***@host/x"),
        ("https://token@host/x", "https://***@host/x"),
        ("ftp://user:p@ss@host/x", "ftp://***@host/x"),
        ("https://h/x?X-Amz-Signature=abc&part=2", "https://h/x?X-Amz-Signature=***&part=2"),
        ("https://h/x?sig=abc", "https://h/x?sig=***"),
        ("https://h?access_token=abc", "https://h?access_token=***"),
        ("https://h/x?c2VjcmV0", "https://h/x?***"),
    ],
)
def test_secrets_are_not_printed(url: str, printed: str) -> None:
    assert safe_url(url) == printed
