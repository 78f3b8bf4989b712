"""An HTTP proxy on this machine: passes requests on, makes tunnels, asks for a password, and remembers who came."""

from __future__ import annotations

import select
import socket
import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

TUNNEL_S = 10.0


class Proxy:
    """What a running proxy knows.

    Attributes:
        address: ``127.0.0.1:port``.
        login: ``user:password`` that it asks for; "" for none.
        seen: Method and target of what was asked of it.
    """

    def __init__(self, address: str, login: str) -> None:
        self.address = address
        self.login = login
        self.seen: list[str] = []


@contextmanager
def proxy(login: str = "") -> Iterator[Proxy]:
    """Run a proxy for the block."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_CONNECT(self) -> None:
            if not self._let_in():
                return
            host, _, port = self.path.partition(":")
            with socket.create_connection((host, int(port)), timeout=TUNNEL_S) as there:
                self.send_response(200)
                self.end_headers()
                _pass_on(self.connection, there)
            self.close_connection = True

        def do_GET(self) -> None:
            if not self._let_in():
                return
            parts = urlsplit(self.path)
            there = HTTPConnection(parts.netloc, timeout=TUNNEL_S)
            try:
                path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
                there.request(self.command, path, headers={n: v for n, v in self.headers.items() if n[:5] != "Proxy"})
                answer = there.getresponse()
                body = answer.read()
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)
            finally:
                there.close()

        do_HEAD = do_GET

        def _let_in(self) -> bool:
            running.seen.append(f"{self.command} {self.path}")
            wanted = "Basic " + b64encode(running.login.encode()).decode()
            if not running.login or self.headers.get("Proxy-Authorization") == wanted:
                return True
            self.send_response(407)
            self.send_header("Proxy-Authenticate", 'Basic realm="test"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return False

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = False
    running = Proxy(f"127.0.0.1:{server.server_address[1]}", login)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield running
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _pass_on(one: socket.socket, other: socket.socket) -> None:
    """Send what comes from either to the other, until one of them ends."""
    while True:
        ready, _, _ = select.select([one, other], [], [], TUNNEL_S)
        for source in ready:
            data = source.recv(65536)
            if not data:
                return
            (other if source is one else one).sendall(data)
        if not ready:
            return
