"""Servers that others wrote list the same objects by plain GETs and by the library."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from aiostream_data.rows.records import ShardRef
from aiostream_data.storage import key_search
from aiostream_data.storage.s3 import S3Store
from aiostream_data.testing import real_servers
from aiostream_data.testing.real_servers import RealServer
from aiostream_data.testing.servers import ObjectServer

BUCKET = "test-bucket"
ODD_NAMES = [
    "plain", "a b", "a+b", "50%", "100%25", "é", "\U0001f600", "x&y", "<x>", "'", '"q"', "a=b;c", "~-_.", "[x]", "a#b",
    "(1)", "deep/a b/c", "deep/é/c", "deep/+/c",
]  # fmt: skip


@pytest.fixture(scope="module")
def seaweedfs() -> Iterator[RealServer]:
    if not real_servers.is_installed("weed"):
        pytest.skip("weed is not installed")
    with real_servers.seaweedfs_server() as server:
        server.create_bucket(BUCKET)
        yield server


@pytest.fixture(params=["moto", "seaweedfs"])
def server(request: pytest.FixtureRequest) -> ObjectServer | RealServer:
    found: ObjectServer | RealServer = request.getfixturevalue(
        "s3_endpoint" if request.param == "moto" else request.param
    )
    return found


def listed(server: ObjectServer | RealServer, reader: str, pattern: str) -> tuple[list[ShardRef], dict[str, Any]]:
    """Return the objects that match, and how many connections the store itself has used."""

    async def main() -> tuple[list[ShardRef], dict[str, Any]]:
        store = S3Store({**server.storage_options, "reader": reader}, asyncio.to_thread)
        try:
            return list(await store.glob(pattern)), store.counters.as_dict()
        finally:
            await store.aclose()

    return asyncio.run(main())


def test_odd_names_are_listed_as_the_library_lists_them(
    server: ObjectServer | RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = f"s3://{BUCKET}/odd names+é"
    for number, name in enumerate(ODD_NAMES):
        server.put(f"{folder}/{name}", bytes(number))
    monkeypatch.setattr(key_search, "PAGE_KEYS", 4)
    for pattern in ("*", "**", "deep/*/c", "a?b"):
        plain, counters = listed(server, "plain", f"{folder}/{pattern}")
        assert plain == listed(server, "library", f"{folder}/{pattern}")[0]
        assert all(shard.version for shard in plain)
        assert counters["connections_opened"] > 0
        assert counters["lists"] == counters["connections_opened"] + counters["connections_reused"]
        if pattern == "**":
            sizes = {shard.url.removeprefix(f"{folder}/"): shard.nbytes for shard in plain}
            assert sizes == {name: number for number, name in enumerate(ODD_NAMES)}


def test_a_large_listing_is_complete(server: ObjectServer | RealServer) -> None:
    names = [f"{number:04}" for number in range(230)]
    for name in names:
        server.put(f"s3://{BUCKET}/many/{name}", b"1")
    found, counters = listed(server, "plain", f"s3://{BUCKET}/many/*")
    assert [shard.url.rpartition("/")[2] for shard in found] == names
    assert counters["lists"] == 1
