"""A small HTTP server on this machine that knows ranges and ETags, and misbehaves when told to.

It serves a dictionary from threads of this process. Faults are scripted: each one is used up by the
next request, in order, so that a test can say what happens to the first attempt and what to the second.
"""

from __future__ import annotations

import re
import socketserver
import threading
import zlib
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote, unquote

_RANGE = re.compile(r"bytes=(\d+)-(\d*)")


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpFault:
    """How one request is answered wrongly. What is not set stays right.

    Attributes:
        status: Answer with this status and ``body`` instead of the object.
        body: Body that goes with ``status``.
        headers: Added to the answer, replacing what stands there.
        cut_after: Send this many bytes of the body, then close the connection.
        hang: Accept the request and never answer.
        ignore_range: Send the whole object with status 200.
    """

    status: int | None = None
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    cut_after: int | None = None
    hang: bool = False
    ignore_range: bool = False


@dataclass(frozen=True, slots=True)
class SeenHttpRequest:
    """A request as it came. Header names are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]


@dataclass(slots=True)
class HttpObjects:
    """What a running server serves; may be changed while it runs.

    Attributes:
        endpoint_url: ``http://127.0.0.1:port``.
        objects: Path (with leading slash, unquoted) to content.
        faults: Used up from the left, one per request.
        requests: What came so far.
        ports: The clients' ports, one per connection that was made.
    """

    endpoint_url: str
    objects: dict[str, bytes] = field(default_factory=dict)
    faults: deque[HttpFault] = field(default_factory=deque)
    requests: list[SeenHttpRequest] = field(default_factory=list)
    ports: set[int] = field(default_factory=set)
    closing: threading.Event = field(default_factory=threading.Event)

    def put(self, path: str, data: bytes) -> str:
        """Store ``data`` and return its URL."""
        self.objects[path] = data
        return self.endpoint_url + quote(path)


@contextmanager
def http_server() -> Iterator[HttpObjects]:
    """Run a server for the block."""
    server = _Server(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server.content
    finally:
        server.content.closing.set()  # lets hanging answers go
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self.content = HttpObjects(f"http://127.0.0.1:{self.server_address[1]}")

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: clients that go away early are part of what is tested."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # headers and body are sent apart, and the body would wait 40 ms
    server: socketserver.BaseServer

    def do_GET(self) -> None:
        content = self._content()
        headers = {name.lower(): value for name, value in self.headers.items()}
        content.requests.append(SeenHttpRequest(self.command, self.path, headers))
        content.ports.add(self.client_address[1])
        fault = content.faults.popleft() if content.faults else HttpFault()
        if fault.hang:
            content.closing.wait()
            self.close_connection = True
            return
        self._answer(fault, content.objects.get(unquote(self.path.partition("?")[0])), headers)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def _content(self) -> HttpObjects:
        assert isinstance(self.server, _Server)
        return self.server.content

    def _answer(self, fault: HttpFault, data: bytes | None, headers: Mapping[str, str]) -> None:
        if fault.status is not None:
            self._send(fault, fault.status, {}, fault.body)
            return
        if data is None:
            self._send(fault, 404, {}, b"no such object")
            return
        etag = _etag(data)
        if headers.get("if-match", etag) != etag:
            self._send(fault, 412, {}, b"")
            return
        asked = None if fault.ignore_range else _RANGE.fullmatch(headers.get("range", ""))
        if asked is None:
            self._send(fault, 200, {"ETag": etag}, data)
            return
        start = int(asked[1])
        stop = min(int(asked[2]) + 1 if asked[2] else len(data), len(data))
        if start >= len(data):
            self._send(fault, 416, {"Content-Range": f"bytes */{len(data)}"}, b"")
            return
        told = {"ETag": etag, "Content-Range": f"bytes {start}-{stop - 1}/{len(data)}"}
        self._send(fault, 206, told, data[start:stop])

    def _send(self, fault: HttpFault, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body)), **fault.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        if fault.cut_after is not None:
            body = body[: fault.cut_after]
            self.close_connection = True
        self.wfile.write(body)


def _etag(data: bytes) -> str:
    """Return a strong ETag, of both ends of the data only: it is made anew for every request."""
    return f'"{len(data):x}-{zlib.crc32(data[:4096]):08x}{zlib.crc32(data[-4096:]):08x}"'
