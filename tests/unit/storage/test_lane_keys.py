"""What requests are limited by: a host, or a bucket with the first part of the key."""

from __future__ import annotations

import pytest

from aiostream_data.storage.lanes import host_key, lane_key


@pytest.mark.parametrize(
    ("url", "host", "lane"),
    [
        ("s3://bucket/part/of/key", "s3://end/bucket", "s3://end/bucket/part"),
        ("S3://bucket/part/of/key", "s3://end/bucket", "s3://end/bucket/part"),
        ("s3://bucket/key", "s3://end/bucket", "s3://end/bucket/"),
        ("s3://bucket//part/key", "s3://end/bucket", "s3://end/bucket/part"),
        ("s3://bucket", "s3://end/bucket", "s3://end/bucket/"),
        ("gs://bucket/a@b/c", "gs://end/bucket", "gs://end/bucket/a@b"),
        ("https://user:word@host:8443/part/key?sign=a/b", "https://host:8443", "https://host:8443"),
        ("http://host?query=1/2", "http://host", "http://host"),
    ],
)
def test_keys_name_the_host_or_the_bucket_and_no_secret(url: str, host: str, lane: str) -> None:
    assert host_key(url, "end") == host
    assert lane_key(url, "end") == lane
