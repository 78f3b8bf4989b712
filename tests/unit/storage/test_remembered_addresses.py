"""Later stores with the same options read without a client of AWS, if the options contain the credentials."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aiostream_data.errors import StorageError
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage import s3, s3_addresses
from aiostream_data.storage.stores import StoreSet
from aiostream_data.testing.fault_server import FaultServer, fault_server

CONTENT = b"0123456789"


@pytest.fixture(autouse=True)
def nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_addresses, "_remembered", type(s3_addresses._remembered)())


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with fault_server("s3") as running:
        for bucket in ("bucket", "other"):
            running.put(f"{bucket}/x", CONTENT)
        yield running


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the options of every client that is created from now on."""
    made: list[Any] = []
    make = s3.make_file_system

    def noted(options: Any) -> Any:
        made.append(options)
        return make(options)

    monkeypatch.setattr(s3, "make_file_system", noted)
    return made


def read(options: dict[str, Any], *urls: str) -> list[bytes]:
    async def case() -> list[bytes]:
        stores = StoreSet(options, asyncio.to_thread)
        try:
            found = []
            for url in urls:
                buffer = bytearray(len(CONTENT))
                await stores.read_into(ShardRef(url, len(CONTENT)), 0, memoryview(buffer))
                found.append(bytes(buffer))
            return found
        finally:
            await stores.aclose()

    return asyncio.run(case())


def listed(options: dict[str, Any], pattern: str) -> list[str]:
    async def case() -> list[str]:
        stores = StoreSet(options, asyncio.to_thread)
        try:
            return [shard.url for shard in await stores.glob(pattern)]
        finally:
            await stores.aclose()

    return asyncio.run(case())


def test_the_second_store_creates_no_client(server: FaultServer, clients: list[Any]) -> None:
    options = server.storage_options
    for _ in range(3):
        assert read(options, "s3://bucket/x") == [CONTENT]
        assert listed(options, "s3://bucket/*") == ["s3://bucket/x"]
    assert len(clients) == 1


def test_an_unknown_bucket_needs_a_client_once(server: FaultServer, clients: list[Any]) -> None:
    options = server.storage_options
    read(options, "s3://bucket/x")
    for _ in range(2):
        assert read(options, "s3://other/x", "s3://bucket/x") == [CONTENT, CONTENT]
    assert len(clients) == 2


@pytest.mark.parametrize(
    "changed",
    [
        {"secret": "other"},
        {"key": "other"},
        {"token": "token"},
        {"reader": "library"},
        {"config_kwargs": {"s3": {"addressing_style": "path"}}},
        {"client_kwargs": {"region_name": "eu-west-1"}},
    ],
    ids=str,
)
def test_other_options_create_their_own_client(
    server: FaultServer, clients: list[Any], changed: dict[str, Any]
) -> None:
    read(server.storage_options, "s3://bucket/x")
    read({**server.storage_options, **changed}, "s3://bucket/x")
    assert len(clients) == 2


@pytest.mark.parametrize("name", ["AWS_REGION", "AWS_ENDPOINT_URL_S3", "AWS_PROFILE"])
def test_a_changed_environment_needs_a_new_client(
    server: FaultServer, clients: list[Any], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    read(server.storage_options, "s3://bucket/x")
    if name != "AWS_PROFILE":
        monkeypatch.setenv(name, "eu-west-1" if name == "AWS_REGION" else server.endpoint_url)
        read(server.storage_options, "s3://bucket/x")
    else:
        monkeypatch.setenv(name, "missing")
        with pytest.raises(StorageError, match="profile"):
            read(server.storage_options, "s3://bucket/x")
    assert len(clients) == 2


def test_a_changed_configuration_file_needs_a_new_client(
    server: FaultServer, clients: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    for _ in range(2):
        read(server.storage_options, "s3://bucket/x")
    (tmp_path / "config").write_text("[default]\nregion = eu-west-1\n")
    read(server.storage_options, "s3://bucket/x")
    assert len(clients) == 2


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"key": "k"},
        {"key": "", "secret": "s"},
        {"anon": True, "key": "k", "secret": "s"},
        {"profile": "p", "key": "k", "secret": "s"},
        {"key": "k", "secret": "s", "token": 1},
        {"key": "k", "secret": "s", "client_kwargs": {"verify": object()}},
    ],
    ids=["none", "no secret", "empty key", "anonymous", "profile", "odd token", "object"],
)
def test_nothing_is_remembered_without_credentials_in_the_options(options: dict[str, Any]) -> None:
    s3_addresses.remember(options, s3_addresses.Remembered({}, lists_plain=True, describes_plain=True))
    assert s3_addresses.recall(options) is None


def test_no_secret_is_remembered(server: FaultServer) -> None:
    read(server.storage_options, "s3://bucket/x")
    kept = repr(s3_addresses._remembered)
    assert "bucket" in kept
    assert server.storage_options["secret"] not in kept
    assert "Signature" not in kept


def test_old_settings_are_forgotten() -> None:
    for number in range(s3_addresses.MOST_SETTINGS + 1):
        found = s3_addresses.Remembered({}, lists_plain=True, describes_plain=True)
        s3_addresses.remember({"key": "k", "secret": str(number)}, found)
    assert s3_addresses.recall({"key": "k", "secret": "0"}) is None
    assert s3_addresses.recall({"key": "k", "secret": "1"}) is not None


def test_a_refused_key_is_an_error_of_the_store(server: FaultServer) -> None:
    """As with a client: the store judges the credentials of the options."""
    read(server.storage_options, "s3://bucket/x")
    server.delete("bucket/x")
    with pytest.raises(StorageError, match="bucket/x"):
        read({**server.storage_options, "retry_attempts": 1}, "s3://bucket/x")
