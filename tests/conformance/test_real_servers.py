"""Every store does what the interface says against servers that others wrote, and against the fault server.

Each server is read by both paths: all of the contract by GETs of our own, and what concerns bytes by the library of the
store, too. Servers that are not installed are skipped: ``pip install 'aiostream-data[servers]'`` brings all of them but
nginx.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, ClassVar
from urllib.parse import quote

import pytest

from aiostream_data.errors import AccessDeniedError, CredentialsError, ObjectChangedError
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.base import Store
from aiostream_data.storage.gcs import GcsStore
from aiostream_data.storage.http import HttpStore
from aiostream_data.storage.s3 import S3Store
from aiostream_data.testing import real_servers
from aiostream_data.testing.conformance import ListingConformance, ReadConformance, StoreConformance, read_range
from aiostream_data.testing.fault_server import FaultServer, fault_server
from aiostream_data.testing.real_servers import HttpFolder, RealServer
from aiostream_data.testing.servers import ObjectServer

BUCKET = "test-bucket"
STORES: dict[str, Callable[[dict[str, Any]], S3Store | GcsStore | HttpStore]] = {
    "s3": lambda options: S3Store(options, asyncio.to_thread),
    "gs": lambda options: GcsStore(options, asyncio.to_thread),
    "http": HttpStore,
}


def started(program: str, server: Callable[[], AbstractContextManager[RealServer]]) -> Iterator[RealServer]:
    if not real_servers.is_installed(program):
        pytest.skip(f"{program} is not installed")
    with server() as running:
        running.create_bucket(BUCKET)
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


class _Objects:
    """Objects of one server, a folder for each test, read by one path and no other."""

    server: Any
    scheme: ClassVar[str] = "s3"
    reader: ClassVar[str] = "plain"

    @pytest.fixture(autouse=True)
    def _one_path(self, request: pytest.FixtureRequest) -> Iterator[None]:
        self.folder = request.node.name
        self.made: list[S3Store | GcsStore | HttpStore] = []
        yield
        for store in self.made:
            by_the_other = store._route.plain_reads if self.reader == "library" else store._route.library_reads
            assert by_the_other == 0

    def make_store(self) -> Store:
        store = STORES[self.scheme]({**self.options(), "reader": self.reader})
        self.made.append(store)
        return store

    def options(self) -> dict[str, Any]:
        options: dict[str, Any] = self.server.storage_options
        return options

    def put(self, name: str, data: bytes) -> str:
        self.server.put(self.url(name), data)
        return self.url(name)

    def url(self, name: str) -> str:
        return f"{self.scheme}://{BUCKET}/{self.folder}/{name}"

    def missing_container_url(self) -> str:
        return f"{self.scheme}://no-such-bucket/object"


class _Moto(_Objects):
    ranges_at_once = 64  # it answers one request after another

    @pytest.fixture(autouse=True)
    def _server(self, s3_endpoint: ObjectServer) -> None:
        self.server = s3_endpoint


class TestMoto(_Moto, ListingConformance):
    """By GETs of our own."""


class TestMotoByLibrary(_Moto, ReadConformance):
    reader = "library"


class _ChecksKeys(_Objects):
    """S3 that looks at signatures."""

    def test_keys_that_are_wrong_are_refused_and_not_told(self) -> None:
        url = self.put("keys/x.bin", b"data")
        for wrong in ({"secret": "not-this-secret"}, {"key": "nobody", "secret": "not-this-secret"}):
            options = {**self.server.storage_options, "reader": self.reader, **wrong}

            async def read(options: dict[str, Any] = options) -> None:
                store = S3Store(options, asyncio.to_thread)
                try:
                    await read_range(store, ShardRef(url), 0, 4)
                finally:
                    await store.aclose()

            with pytest.raises((AccessDeniedError, CredentialsError), match="HTTP 403") as caught:
                asyncio.run(read())
            assert str(caught.value).startswith(f"{url}: ")
            assert "not-this-secret" not in str(caught.value)


class _SeaweedFs(_ChecksKeys):
    @pytest.fixture(autouse=True)
    def _server(self, seaweedfs: RealServer) -> None:
        self.server = seaweedfs


class TestSeaweedFs(_SeaweedFs, ListingConformance):
    """By GETs of our own."""


class TestSeaweedFsByLibrary(_SeaweedFs, ReadConformance):
    reader = "library"


class _JuiceFs(_ChecksKeys):
    @pytest.fixture(autouse=True)
    def _server(self, juicefs: RealServer) -> None:
        self.server = juicefs


class TestJuiceFs(_JuiceFs, ListingConformance):
    """By GETs of our own."""


class TestJuiceFsByLibrary(_JuiceFs, ReadConformance):
    reader = "library"


class _RcloneOddities(_ChecksKeys):
    """It differs from S3: a range comes with status 200, If-Match is ignored, listed ETags have no quotes."""

    fails_with: Callable[..., Any]

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


class TestRclone(_RcloneOddities, ListingConformance):
    """By GETs of our own."""


class TestRcloneByLibrary(_RcloneOddities, ReadConformance):
    reader = "library"


class _GcsEmulator(_Objects):
    scheme = "gs"
    ranges_at_once = 32  # it takes 80 ms for each

    @pytest.fixture(autouse=True)
    def _server(self, gcs_endpoint: ObjectServer) -> None:
        self.server = gcs_endpoint


class TestGcsEmulator(_GcsEmulator, ListingConformance):
    """By GETs of our own."""


class TestGcsEmulatorByLibrary(_GcsEmulator, ReadConformance):
    reader = "library"


class _HttpObjects(_Objects):
    scheme = "http"

    def options(self) -> dict[str, Any]:
        return {}

    def put(self, name: str, data: bytes) -> str:
        self.server.put(f"{self.folder}/{name}", data)
        return self.url(name)

    def url(self, name: str) -> str:
        return f"{self.server.endpoint_url}/{self.folder}/{quote(name)}"

    def missing_container_url(self) -> str:
        return self.url("no-such-container/object")


class _Nginx(_HttpObjects):
    @pytest.fixture(autouse=True)
    def _server(self, nginx: HttpFolder) -> None:
        self.server = nginx


class TestNginx(_Nginx, StoreConformance):
    """By GETs of our own."""


class TestNginxByLibrary(_Nginx, StoreConformance):
    reader = "library"


class _FaultObjects(_Objects):
    def put(self, name: str, data: bytes) -> str:
        self.server.put(f"{BUCKET}/{self.folder}/{name}", data)
        return self.url(name)


class _FaultServerAsS3(_FaultObjects):
    @pytest.fixture(autouse=True)
    def _server(self, fault_s3: FaultServer) -> None:
        self.server = fault_s3


class TestFaultServerAsS3(_FaultServerAsS3, ListingConformance):
    """By GETs of our own."""


class TestFaultServerAsS3ByLibrary(_FaultServerAsS3, ReadConformance):
    reader = "library"


class _FaultServerAsGcs(_FaultObjects):
    scheme = "gs"

    @pytest.fixture(autouse=True)
    def _server(self, fault_gcs: FaultServer) -> None:
        self.server = fault_gcs


class TestFaultServerAsGcs(_FaultServerAsGcs, ListingConformance):
    """By GETs of our own."""


class TestFaultServerAsGcsByLibrary(_FaultServerAsGcs, ReadConformance):
    reader = "library"


class _FaultServerAsHttp(_HttpObjects):
    @pytest.fixture(autouse=True)
    def _server(self, fault_http: FaultServer) -> None:
        self.server = fault_http


class TestFaultServerAsHttp(_FaultServerAsHttp, StoreConformance):
    """By GETs of our own."""


class TestFaultServerAsHttpByLibrary(_FaultServerAsHttp, StoreConformance):
    reader = "library"
