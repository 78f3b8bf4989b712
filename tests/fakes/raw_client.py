"""Send a request over a plain socket, and keep whatever comes back, well-formed or not."""

from __future__ import annotations

import socket
from dataclasses import dataclass


@dataclass
class RawAnswer:
    """What came.

    Attributes:
        data: Every byte, in order.
        ended: ``open`` (nothing more came for a while), ``closed`` (FIN) or ``reset`` (RST).
    """

    data: bytes
    ended: str

    @property
    def head(self) -> str:
        return self.data.partition(b"\r\n\r\n")[0].decode("latin-1")

    @property
    def body(self) -> bytes:
        return self.data.partition(b"\r\n\r\n")[2]

    @property
    def status(self) -> int:
        return int(self.head.split(" ")[1])

    def all(self, name: str) -> list[str]:
        """Return the values of every header of this name."""
        lines = (line.partition(":") for line in self.head.split("\r\n")[1:])
        return [value.strip() for found, _, value in lines if found.lower() == name.lower()]

    def one(self, name: str) -> str:
        (value,) = self.all(name)
        return value


class RawClient:
    """A connection that a test drives by hand. Close it, or use it in ``with``."""

    def __init__(self, endpoint_url: str) -> None:
        host, _, port = endpoint_url.removeprefix("http://").partition(":")
        self.sock = socket.create_connection((host, int(port)), timeout=10)

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def ask(self, target: str, *, method: str = "GET", headers: dict[str, str] | None = None) -> None:
        """Send a request without a body."""
        sent = {"host": "test", **{name.lower(): value for name, value in (headers or {}).items()}}
        lines = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
        self.sock.sendall(f"{method} {target} HTTP/1.1\r\n{lines}\r\n".encode("latin-1"))

    def take(self, *, quiet_s: float = 0.3, nbytes: int | None = None) -> RawAnswer:
        """Return what comes until the connection ends, ``nbytes`` are there, or nothing comes for ``quiet_s``."""
        self.sock.settimeout(quiet_s if nbytes is None else 10.0)
        data = bytearray()
        while nbytes is None or len(data) < nbytes:
            try:
                piece = self.sock.recv(1 << 16)
            except TimeoutError:
                return RawAnswer(bytes(data), "open")
            except ConnectionResetError:
                return RawAnswer(bytes(data), "reset")
            if not piece:
                return RawAnswer(bytes(data), "closed")
            data += piece
        return RawAnswer(bytes(data), "open")

    def take_answer(self, *, has_body: bool = True) -> RawAnswer:
        """Return one answer in good form, by its Content-Length."""
        self.sock.settimeout(10.0)
        data = bytearray()
        while b"\r\n\r\n" not in data:
            data += self._piece()
        head, _, body = bytes(data).partition(b"\r\n\r\n")
        told = RawAnswer(bytes(data), "open").all("content-length")
        nbytes = int(told[0]) if told and has_body else 0
        while len(body) < nbytes:
            body += self._piece()
        assert len(body) == nbytes, "more came than was told"
        return RawAnswer(head + b"\r\n\r\n" + body, "open")

    def take_until(self, body_nbytes: int) -> RawAnswer:
        """Return a head and so much of what follows it."""
        self.sock.settimeout(10.0)
        answer = RawAnswer(b"", "open")
        while b"\r\n\r\n" not in answer.data or len(answer.body) < body_nbytes:
            answer.data += self._piece()
        return answer

    def _piece(self) -> bytes:
        piece = self.sock.recv(1 << 16)
        if not piece:
            raise EOFError("the server closed the connection")
        return piece


def fetch(endpoint_url: str, target: str, *, method: str = "GET", headers: dict[str, str] | None = None) -> RawAnswer:
    """Return one whole answer, after which the connection is closed."""
    with RawClient(endpoint_url) as client:
        client.ask(target, method=method, headers={**(headers or {}), "Connection": "close"})
        return client.take(quiet_s=10.0)
