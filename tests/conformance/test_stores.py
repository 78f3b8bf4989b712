"""Every store does what the interface says; those with servers of their own are in ``test_real_servers.py``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from http_server import HttpObjects
from hub_server import hub_server

from aiostream_data.storage import memory
from aiostream_data.storage.base import Store
from aiostream_data.storage.fsspec_store import FsspecStore
from aiostream_data.storage.http import HttpStore
from aiostream_data.storage.hub import HubStore
from aiostream_data.storage.local import LocalStore
from aiostream_data.storage.memory import MemoryStore
from aiostream_data.storage.retry import RetryingStore
from aiostream_data.storage.stores import StoreSet
from aiostream_data.testing.conformance import ListingConformance, StoreConformance
from aiostream_data.testing.latency_store import LatencyStore


class TestLocalStore(ListingConformance):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def make_store(self) -> Store:
        return LocalStore(asyncio.to_thread)

    def put(self, name: str, data: bytes) -> str:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return str(path)

    def url(self, name: str) -> str:
        return str(self.folder / name)


class TestMemoryStore(ListingConformance):
    @pytest.fixture(autouse=True)
    def _objects(self, memory_objects: None) -> None:
        """Start without objects."""

    def make_store(self) -> Store:
        return MemoryStore()

    def put(self, name: str, data: bytes) -> str:
        memory.put(self.url(name), data)
        return self.url(name)

    def url(self, name: str) -> str:
        return f"memory://{name}"


class TestLatencyStore(TestMemoryStore):
    def make_store(self) -> Store:
        return LatencyStore(MemoryStore(), latency_s=0.0001, bytes_per_s=1e9)

    def put(self, name: str, data: bytes) -> str:
        memory.put(f"memory://{name}", data)
        return self.url(name)

    def url(self, name: str) -> str:
        return f"slow://{name}"


class TestRetryingStore(TestMemoryStore):
    def make_store(self) -> Store:
        return RetryingStore(MemoryStore())


class TestStoreSet(TestMemoryStore):
    def make_store(self) -> Store:
        return StoreSet({}, asyncio.to_thread)


class TestHttpStore(StoreConformance):
    @pytest.fixture(autouse=True)
    def _server(self, http_objects: HttpObjects) -> None:
        self.server = http_objects

    def make_store(self) -> Store:
        return HttpStore({})

    def put(self, name: str, data: bytes) -> str:
        return self.server.put(f"/{name}", data)

    def url(self, name: str) -> str:
        return f"{self.server.endpoint_url}/{quote(name)}"


class TestHubStore(ListingConformance):
    @pytest.fixture(autouse=True)
    def _hub(self) -> Iterator[None]:
        with hub_server() as self.hub:
            self.hub.commit("org/name", {"README.md": b""})
            yield

    def make_store(self) -> Store:
        return HubStore({"endpoint": self.hub.endpoint, "token": False}, asyncio.to_thread)

    def put(self, name: str, data: bytes) -> str:
        repository = self.hub.repositories["org/name"]
        repository.commits[repository.refs["main"]][name] = data
        return self.url(name)

    def url(self, name: str) -> str:
        return f"hf://datasets/org/name/{name}"


class TestFsspecStore(ListingConformance):
    """A synchronous file system of fsspec, by way of worker threads."""

    @pytest.fixture(autouse=True)
    def _objects(self) -> Iterator[None]:
        from fsspec.implementations.memory import MemoryFileSystem

        self.file_system: Any = MemoryFileSystem()
        MemoryFileSystem.store.clear()
        yield
        MemoryFileSystem.store.clear()

    def make_store(self) -> Store:
        return FsspecStore("memory", {}, asyncio.to_thread)

    def put(self, name: str, data: bytes) -> str:
        self.file_system.pipe_file(f"/{name}", data)
        return self.url(name)

    def url(self, name: str) -> str:
        return f"memory://{name}"


class TestAsyncFsspecStore(StoreConformance):
    """An asynchronous file system of fsspec, on the caller's loop."""

    odd_names = ("with space", "plus+plus", "a=b&c")  # fsspec quotes URLs in a way of its own

    @pytest.fixture(autouse=True)
    def _server(self, http_objects: HttpObjects) -> None:
        self.server = http_objects

    def make_store(self) -> Store:
        return FsspecStore("http", {}, asyncio.to_thread)

    def put(self, name: str, data: bytes) -> str:
        return self.server.put(f"/{name}", data)

    def url(self, name: str) -> str:
        return f"{self.server.endpoint_url}/{quote(name)}"
