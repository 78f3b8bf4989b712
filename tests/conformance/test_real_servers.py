"""Every store does what the interface says against servers that others wrote, and against the fault server.

Servers that are not installed are skipped: ``pip install 'aiostream-data[servers]'`` brings all of them but nginx.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from urllib.parse import quote

import pytest

from aiostream_data.errors import ObjectChangedError
from aiostream_data.storage.base import Store
from aiostream_data.storage.gcs import GcsStore
from aiostream_data.storage.http import HttpStore
from aiostream_data.storage.s3 import S3Store
from aiostream_data.testing import real_servers
from aiostream_data.testing.conformance import ListingConformance, StoreConformance, read_range
from aiostream_data.testing.fault_server import FaultServer, fault_server
from aiostream_data.testing.real_servers import HttpFolder, RealServer


def started(program: str, server: Callable[[], AbstractContextManager[RealServer]]) -> Iterator[RealServer]:
    if not real_servers.is_installed(program):
        pytest.skip(f"{program} is not installed")
    with server() as running:
        running.create_bucket("test-bucket")
        yield running


@pytest.fixture(scope="module")
def seaweedfs() -> Iterator[RealServer]:
    yield from started("weed", real_servers.seaweedfs_server)


@pytest.fixture(scope="module")
def juicefs() -> Iterator[RealServer]:
    yield from started("juicefs", real_servers.juicefs_server)


@pytest.fixture(scope="module")
def rclone() -> Iterator[RealServer]:
    yield from started("rclone", real_servers.rclone_server)


@pytest.fixture(scope="module")
def nginx() -> Iterator[HttpFolder]:
    if not real_servers.is_installed("nginx"):
        pytest.skip("nginx is not installed")
    with real_servers.nginx_server() as running:
        yield running


@pytest.fixture(scope="module")
def fault_s3() -> Iterator[FaultServer]:
    with fault_server("s3") as server:
        yield server


@pytest.fixture(scope="module")
def fault_gcs() -> Iterator[FaultServer]:
    with fault_server("gcs") as server:
        yield server


@pytest.fixture(scope="module")
def fault_http() -> Iterator[FaultServer]:
    with fault_server("http") as server:
        yield server


class _S3Conformance(ListingConformance):
    server: RealServer

    @pytest.fixture(autouse=True)
    def _folder(self, request: pytest.FixtureRequest) -> None:
        self.folder = request.node.name  # keeps the tests of a shared server apart

    def make_store(self) -> Store:
        return S3Store(self.server.storage_options, asyncio.to_thread)

    def put(self, name: str, data: bytes) -> str:
        self.server.put(self.url(name), data)
        return self.url(name)

    def url(self, name: str) -> str:
        return f"s3://test-bucket/{self.folder}/{name}"

    def missing_container_url(self) -> str:
        return "s3://no-such-bucket/object"


class TestSeaweedFs(_S3Conformance):
    @pytest.fixture(autouse=True)
    def _server(self, seaweedfs: RealServer) -> None:
        self.server = seaweedfs


class TestJuiceFs(_S3Conformance):
    @pytest.fixture(autouse=True)
    def _server(self, juicefs: RealServer) -> None:
        self.server = juicefs


class TestRclone(_S3Conformance):
    """It differs from S3: a range comes with status 200, If-Match is ignored, listed ETags have no quotes."""

    @pytest.fixture(autouse=True)
    def _server(self, rclone: RealServer) -> None:
        self.server = rclone

    def test_a_replaced_object_is_noticed_though_conditions_are_ignored(self) -> None:
        url = self.put("changed/x.bin", b"first")

        async def read(store: Store) -> None:
            shard = await store.info(url)
            self.put("changed/x.bin", b"other")
            await read_range(store, shard, 0, 5)

        self.fails_with(ObjectChangedError, read)


class TestNginx(StoreConformance):
    @pytest.fixture(autouse=True)
    def _server(self, nginx: HttpFolder, request: pytest.FixtureRequest) -> None:
        self.server = nginx
        self.folder = request.node.name

    def make_store(self) -> Store:
        return HttpStore({})

    def put(self, name: str, data: bytes) -> str:
        return self.server.put(f"{self.folder}/{name}", data)

    def url(self, name: str) -> str:
        return f"{self.server.endpoint_url}/{self.folder}/{quote(name)}"


class _FaultConformance(ListingConformance):
    server: FaultServer

    @pytest.fixture(autouse=True)
    def _folder(self, request: pytest.FixtureRequest) -> None:
        self.folder = request.node.name

    def put(self, name: str, data: bytes) -> str:
        return self.server.put(f"test-bucket/{self.folder}/{name}", data)

    def url(self, name: str) -> str:
        return self.server.url(f"test-bucket/{self.folder}/{name}")

    def missing_container_url(self) -> str:
        return self.server.url("no-such-bucket/object")


class TestFaultServerAsS3(_FaultConformance):
    @pytest.fixture(autouse=True)
    def _server(self, fault_s3: FaultServer) -> None:
        self.server = fault_s3

    def make_store(self) -> Store:
        return S3Store(self.server.storage_options, asyncio.to_thread)


class TestFaultServerAsGcs(_FaultConformance):
    @pytest.fixture(autouse=True)
    def _server(self, fault_gcs: FaultServer) -> None:
        self.server = fault_gcs

    def make_store(self) -> Store:
        return GcsStore(self.server.storage_options, asyncio.to_thread)


class TestFaultServerAsHttp(StoreConformance):
    @pytest.fixture(autouse=True)
    def _server(self, fault_http: FaultServer, request: pytest.FixtureRequest) -> None:
        self.server = fault_http
        self.folder = request.node.name

    def make_store(self) -> Store:
        return HttpStore({})

    def put(self, name: str, data: bytes) -> str:
        return self.server.put(f"{self.folder}/{name}", data)

    def url(self, name: str) -> str:
        return self.server.url(f"{self.folder}/{name}")
