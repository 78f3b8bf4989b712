"""Emulated object stores on this machine for tests and demos: S3 by moto, and a GCS emulator.

Each emulator runs as a child process on a free loopback port and keeps its objects in memory. Each emulator stops at
the end of its ``with`` block, or when this process is killed.
"""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

from aiostream_data.errors import MissingExtraError, StoreUnreachableError
from aiostream_data.storage.urls import split_bucket, split_url

_START_ATTEMPTS = 3
_START_TIMEOUT_S = 60.0
_POLL_S = 0.02
_BYTES = "application/octet-stream"
_S3_OWNER = "AWS4-HMAC-SHA256 Credential=testing/20000101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
"""Authorization header for storing objects under the account that later reads them.

The moto server checks the access key but not the signature.
"""


@dataclass(frozen=True, slots=True)
class ObjectServer:
    """Handle of a running object store server. The methods block.

    Attributes:
        scheme: ``s3`` or ``gs``.
        endpoint_url: ``http://127.0.0.1:port``.
        storage_options: Storage options for reading from the server.
    """

    scheme: Literal["s3", "gs"]
    endpoint_url: str
    storage_options: dict[str, Any]

    def create_bucket(self, name: str) -> None:
        """Create a bucket; the server leaves an existing bucket unchanged."""
        if self.scheme == "s3":
            self._send("PUT", f"/{quote(name)}", b"")
            return
        try:
            body = json.dumps({"name": name}).encode()
            self._send("POST", "/storage/v1/b?project=test", body, content_type="application/json")
        except urllib.error.HTTPError as error:
            with error:
                if error.code not in (400, 409):  # status of the emulator for an existing bucket
                    raise

    def put(self, url: str, data: bytes) -> None:
        """Store ``data`` under ``url``, such as ``s3://bucket/key``; the bucket must exist."""
        bucket, key = split_bucket(split_url(url).path)
        if self.scheme == "s3":
            self._send("PUT", f"/{quote(bucket)}/{quote(key)}", data)
            return
        # Upload in two steps: the emulator drops the connection if an empty object is sent in one step.
        name = quote(key, safe="")
        session = f"/upload/storage/v1/b/{quote(bucket)}/o?uploadType=resumable&name={name}"
        location = self._send("POST", session, b"{}", content_type="application/json")
        self._send("PUT", location.removeprefix(self.endpoint_url), data)

    def _send(self, method: str, path: str, body: bytes, *, content_type: str = _BYTES) -> str:
        """Send an HTTP request and return the Location header of the response, or "" without that header."""
        request = urllib.request.Request(self.endpoint_url + path, body, method=method)
        request.add_header("Content-Type", content_type)
        if self.scheme == "s3":
            request.add_header("Authorization", _S3_OWNER)
        # Bypass proxies: the server is on this machine, regardless of the environment.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=30) as answer:
            return str(answer.headers.get("Location") or "")


@contextmanager
def s3_server() -> Iterator[ObjectServer]:
    """Run an S3 server (moto) during the ``with`` block.

    Raises:
        MissingExtraError: moto is not installed.
        StoreUnreachableError: The moto server did not start.
    """
    _require("moto.server", "demo")
    _require("flask_cors", "demo")
    with _running(lambda port: ["moto.server", "-H", "127.0.0.1", "-p", str(port)]) as endpoint_url:
        options = {"endpoint_url": endpoint_url, "key": "testing", "secret": "testing"}
        yield ObjectServer("s3", endpoint_url, {**options, "client_kwargs": {"region_name": "us-east-1"}})


@contextmanager
def gcs_server() -> Iterator[ObjectServer]:
    """Run a Google Cloud Storage server (gcp-storage-emulator) during the ``with`` block.

    Raises:
        MissingExtraError: The GCS emulator is not installed.
        StoreUnreachableError: The GCS emulator did not start.
    """
    _require("gcp_storage_emulator", "demo")
    with _running(
        lambda port: ["gcp_storage_emulator", "start", "--host=127.0.0.1", f"--port={port}", "-M", "-q"]
    ) as endpoint_url:
        yield ObjectServer("gs", endpoint_url, {"endpoint_url": endpoint_url, "token": "anon", "project": "test"})


@contextmanager
def _running(command: Callable[[int], list[str]]) -> Iterator[str]:
    """Run a server module and yield its URL; ``command`` maps the port to a command line."""
    process, port = _start(command)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        _stop(process)


def _start(command: Callable[[int], list[str]]) -> tuple[subprocess.Popen[bytes], int]:
    """Start the server process; retry on another port if the first port was taken."""
    for _ in range(_START_ATTEMPTS):
        port = _free_port()
        process = subprocess.Popen(
            [sys.executable, "-m", "aiostream_data.testing.child", *command(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
        )
        try:
            if _wait_until_open(process, port):
                return process, port
        except BaseException:
            _stop(process)
            raise
        _stop(process)
    raise StoreUnreachableError(command(port)[0], f"the server did not start within {_START_TIMEOUT_S} s")


def _wait_until_open(process: subprocess.Popen[bytes], port: int) -> bool:
    """Return True if the port accepts connections, or False if the process ended or the timeout expired."""
    deadline_s = time.monotonic() + _START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline_s:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(_POLL_S)  # polling is the only way to detect that another process listens
        else:
            return process.poll() is None
    return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    if process.stdin is not None:
        process.stdin.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _require(module: str, extra: str) -> None:
    try:
        found = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        found = None
    if found is None:
        raise MissingExtraError(f"this needs the module {module}: pip install 'aiostream-data[{extra}]'")
