"""Local object store server (S3, GCS or plain HTTP) with scripted latency, bandwidth limits and faults.

The kernel sends object bodies from a file, so the server is fast enough to benchmark clients. The server logs every
request. The server applies the faults described in :mod:`aiostream_data.testing.faults` to single requests. The server
runs in a thread of the program or in a separate process. :func:`aiostream_data.testing.fault_serving.serving` runs it
in an existing event loop.

Example::

    from aiostream_data import Dataset
    from aiostream_data.testing.fault_server import fault_server
    from aiostream_data.testing.faults import Fault, Rule

    with fault_server("s3") as server:
        url = server.put("bucket/shard-0.txt", b"line\\n" * 1000)
        server.set_rules(Rule(Fault(reset_at="middle"), kind="get", times=3))
        dataset = Dataset.from_text(url, storage_options=server.storage_options)
        assert sum(1 for line in dataset) == 1000
        assert server.counters().faults == 3

Command line: ``python -m aiostream_data.testing.fault_server --dialect s3 --folder data=/path/to/files --port 9000``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import select
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from http.client import HTTPConnection, HTTPSConnection
from typing import Any, Literal, TypeAlias
from urllib.parse import quote, urlsplit

from aiostream_data.errors import PlanError, StoreUnreachableError
from aiostream_data.testing import fault_control
from aiostream_data.testing.fault_serving import serving
from aiostream_data.testing.fault_site import FaultSite
from aiostream_data.testing.fault_tls import server_context
from aiostream_data.testing.faults import Rule
from aiostream_data.testing.object_api.accounts import Account
from aiostream_data.testing.object_api.dialect import DialectName
from aiostream_data.testing.request_log import SeenRequest, ServerCounters
from aiostream_data.testing.wire_model import WireModel

Control: TypeAlias = Callable[[str, str, bytes], tuple[int, bytes]]
"""Type of a function that executes a control command: (method, path, body) -> (status, text)."""

_START_TIMEOUT_S = 30.0
_CONTROL_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class FaultServer:
    """Handle of a running fault server. The methods of the handle block; any thread can call them.

    Attributes:
        dialect: API of the server: ``s3``, ``gcs`` or ``http``.
        endpoint_url: ``http://127.0.0.1:port``, or ``https``.
    """

    dialect: DialectName
    endpoint_url: str
    _control: Control = field(repr=False)

    @property
    def storage_options(self) -> dict[str, Any]:
        """Storage options for reading from the server, if the server has no accounts."""
        if self.dialect == "s3":
            client = {"client_kwargs": {"region_name": "us-east-1"}}
            return {"endpoint_url": self.endpoint_url, "key": "testing", "secret": "testing", **client}
        if self.dialect == "gcs":
            return {"endpoint_url": self.endpoint_url, "token": "anon", "project": "test"}
        return {}

    def url(self, name: str) -> str:
        """Return the URL of an object: an ``s3://`` or ``gs://`` URL with ``name``, or a path under the endpoint."""
        if self.dialect == "http":
            return f"{self.endpoint_url}/{quote(name)}"
        return f"{'s3' if self.dialect == 's3' else 'gs'}://{name}"

    def put(self, name: str, data: bytes) -> str:
        """Store an object, or a new version of it, on the server and return the object's URL.

        Args:
            name: ``bucket/key``; for plain HTTP, any path.
            data: Content of the object to store.
        """
        self._do("PUT", f"object/{quote(name)}", data)
        return self.url(name)

    def put_folder(self, bucket: str, folder: str | os.PathLike[str]) -> int:
        """Serve the files below ``folder`` without copying them, as ``bucket/relative/path``.

        Return the number of files.
        """
        return int(self._do("PUT", f"folder/{quote(bucket)}", os.fspath(folder).encode()))

    def delete(self, name: str) -> None:
        """Remove an object; removing a missing object is not an error."""
        self._do("DELETE", f"object/{quote(name)}")

    def create_bucket(self, bucket: str) -> None:
        """Create an empty bucket. Storing an object also creates its bucket."""
        self._do("PUT", f"bucket/{quote(bucket)}")

    def set_rules(self, *rules: Rule) -> None:
        """Replace all fault rules and reset the counters of the rules. Without rules, the server injects no faults."""
        self._do("PUT", "rules", fault_control.rules_text(rules))

    def set_wire(self, wire: WireModel) -> None:
        """Change latency and limits. A new bandwidth applies only to new connections."""
        self._do("PUT", "wire", json.dumps(asdict(wire)).encode())

    def set_accounts(self, *accounts: Account) -> None:
        """Accept only these credentials. Without arguments, the server accepts all clients."""
        self._do("PUT", "accounts", json.dumps([asdict(account) for account in accounts]).encode())

    def drop_connections(self) -> None:
        """Reset all connections of the server, idle or busy."""
        self._do("DELETE", "connections")

    def log(self) -> list[SeenRequest]:
        """Return the requests received so far, in order of arrival."""
        return fault_control.read_log(self._do("GET", "log"))

    def counters(self) -> ServerCounters:
        """Return the total counters."""
        return fault_control.read_counters(self._do("GET", "counters"))

    def clear_log(self) -> None:
        """Clear the request log and the counters."""
        self._do("DELETE", "log")

    def _do(self, method: str, path: str, body: bytes = b"") -> bytes:
        status, text = self._control(method, path, body)
        if status != 200:
            raise PlanError(f"the fault server did not understand {method} {path}: {text.decode()}")
        return text


@contextmanager
def fault_server(
    dialect: DialectName = "s3",
    *,
    where: Literal["thread", "process"] = "thread",
    port: int = 0,
    seed: int = 0,
    wire: WireModel | None = None,
    certificate: str | os.PathLike[str] | None = None,
) -> Iterator[FaultServer]:
    """Run a fault server on this machine during the ``with`` block.

    After the block, no thread, process, socket or file remains.

    Args:
        dialect: API of the server: ``s3``, ``gcs`` or ``http``.
        where: ``thread`` or ``process``. Use ``process`` for benchmarks, because a server thread shares the interpreter
            with the client.
        port: Port to listen on; 0 selects a free port.
        seed: Seed of all random draws of the server.
        wire: Initial latency and limits of the server.
        certificate: Path of a PEM file with a private key and its certificates; enables TLS.

    Raises:
        OSError: The port is already in use.
        StoreUnreachableError: The server process did not start.

    Example::

        from aiostream_data.testing.fault_server import fault_server
        from aiostream_data.testing.wire_model import WireModel

        with fault_server("http", where="process", wire=WireModel(first_byte_s=0.02, bytes_per_s=80e6)) as server:
            url = server.put("file.bin", bytes(1000))
    """
    if where not in ("thread", "process"):
        raise PlanError(f"where must be 'thread' or 'process', got {where!r}")
    with (_in_thread if where == "thread" else _in_process)(dialect, port, seed, certificate) as server:
        if wire is not None:
            server.set_wire(wire)
        yield server


@contextmanager
def _in_thread(
    dialect: DialectName, port: int, seed: int, certificate: str | os.PathLike[str] | None
) -> Iterator[FaultServer]:
    tls = None if certificate is None else server_context(certificate)
    site = FaultSite(dialect, seed=seed)
    running = _Thread(site, port, tls)
    try:
        endpoint_url = running.start()
        yield FaultServer(dialect, endpoint_url, running.carry_out)
    finally:
        running.stop()
        site.close()


class _Thread:
    """Thread with an event loop that serves one site. :meth:`stop` raises the error that ended the thread early."""

    def __init__(self, site: FaultSite, port: int, tls: ssl.SSLContext | None) -> None:
        self._site = site
        self._port = port
        self._tls = tls
        self._started = threading.Event()
        self._url = ""
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="aiostream-fault-server", daemon=True)

    def start(self) -> str:
        """Start the server and return its URL.

        Raises:
            OSError: The port is already in use.
        """
        self._thread.start()
        self._started.wait()
        if not self._url and self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        return self._url

    def carry_out(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        """Execute a control command between two steps of the server, so that the log is up to date."""
        done: Future[tuple[int, bytes]] = Future()

        def answer() -> None:
            done.set_result(fault_control.answer(self._site, method, path, body))

        if self._loop is None or self._loop.is_closed():
            raise StoreUnreachableError("fault_server", "the server has ended")
        self._loop.call_soon_threadsafe(answer)
        return done.result(_CONTROL_TIMEOUT_S)

    def stop(self) -> None:
        """Stop the server. If the server failed, raise its error."""
        if self._loop is not None and self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # the loop has already closed
                self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - raised by stop()
            self._failure = error
        finally:
            self._started.set()

    async def _serve(self) -> None:
        async with serving(self._site, port=self._port, tls=self._tls) as url:
            self._url, self._loop = url, asyncio.get_running_loop()
            self._started.set()
            await self._ended.wait()


@contextmanager
def _in_process(
    dialect: DialectName, port: int, seed: int, certificate: str | os.PathLike[str] | None
) -> Iterator[FaultServer]:
    module = ["aiostream_data.testing.child", "aiostream_data.testing.fault_server"]
    told = [] if certificate is None else [f"--certificate={os.fspath(certificate)}"]
    process = subprocess.Popen(
        [sys.executable, "-m", *module, f"--dialect={dialect}", f"--port={port}", f"--seed={seed}", *told],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        ready, _, _ = select.select([process.stdout], [], [], _START_TIMEOUT_S)
        endpoint_url = process.stdout.readline().decode().strip() if ready else ""
        if not endpoint_url:
            raise StoreUnreachableError("fault_server", f"it did not start on port {port}; is the port taken?")
        with closing(_control_connection(endpoint_url)) as connection:
            yield FaultServer(dialect, endpoint_url, _over_http(connection))
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def _control_connection(endpoint_url: str) -> HTTPConnection:
    """Return a control connection, without certificate verification, to a server started by this process."""
    parts = urlsplit(endpoint_url)
    if parts.scheme == "http":
        return HTTPConnection(parts.netloc, timeout=_CONTROL_TIMEOUT_S)
    anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    return HTTPSConnection(parts.netloc, timeout=_CONTROL_TIMEOUT_S, context=anybody)


def _over_http(connection: HTTPConnection) -> Control:
    lock = threading.Lock()

    def carry_out(method: str, path: str, body: bytes) -> tuple[int, bytes]:
        with lock:
            connection.request(method, fault_control.PREFIX + path, body)
            answer = connection.getresponse()
            return answer.status, answer.read()

    carry_out("GET", "counters", b"")  # mark the connection as control before counting starts
    return carry_out


def main(arguments: list[str] | None = None) -> None:
    """Print the server's URL and serve requests until interrupted."""
    parser = argparse.ArgumentParser(prog="python -m aiostream_data.testing.fault_server", description=__doc__)
    parser.add_argument("--dialect", choices=("s3", "gcs", "http"), default="s3")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", action="append", default=[], metavar="BUCKET=FOLDER", help="serve these files")
    parser.add_argument("--rules", metavar="FILE", help="faults from the start, as JSON")
    parser.add_argument("--first-byte-ms", type=float, default=0.0)
    parser.add_argument("--certificate", metavar="FILE", help="speak TLS with the key and certificates of a PEM file")
    parser.add_argument("--mb-per-s", type=float, help="bandwidth of one connection")
    chosen = parser.parse_args(arguments)
    site = FaultSite(chosen.dialect, seed=chosen.seed)
    rate = chosen.mb_per_s * 1e6 if chosen.mb_per_s else None
    site.set_wire(WireModel(first_byte_s=chosen.first_byte_ms / 1e3, bytes_per_s=rate))
    for told in chosen.folder:
        bucket, _, folder = told.partition("=")
        _command(site, "PUT", f"folder/{quote(bucket)}", folder.encode())
    if chosen.rules:
        with open(chosen.rules, "rb") as file:
            _command(site, "PUT", "rules", file.read())
    try:
        tls = server_context(chosen.certificate) if chosen.certificate else None
        asyncio.run(_serve_for_ever(site, chosen.host, chosen.port, tls))
    except KeyboardInterrupt:
        pass
    finally:
        site.close()


def _command(site: FaultSite, method: str, path: str, body: bytes) -> None:
    status, text = fault_control.answer(site, method, path, body)
    if status != 200:
        sys.exit(text.decode())


async def _serve_for_ever(site: FaultSite, host: str, port: int, tls: ssl.SSLContext | None) -> None:
    async with serving(site, host=host, port=port, tls=tls) as url:
        sys.stdout.write(f"{url}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    main()
