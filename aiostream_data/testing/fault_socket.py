"""Server side of one connection on a raw socket: it buffers received data and sends data as scripted.

The server does not use asyncio transports: they cannot reset a connection and do not report the number of sent bytes.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import struct
import sys
import time

_RECEIVE_NBYTES = 64 << 10
_READ_AHEAD_NBYTES = 1 << 20
_PIECE_S = 0.005
_UNPACED_NBYTES = 1 << 20
"""Number of bytes at the start of a connection that are paced in user space.

The kernel sends the first 64 KiB segments without pacing.
"""

_SO_MAX_PACING_RATE = 47  # Linux value; the socket module has no name for it
_TIOCOUTQ = 0x5411
_DRAIN_S = 5.0
_DRAIN_POLL_S = 0.001


class PeerGone(ConnectionError):
    """Error for a client that has closed the connection."""


class FaultSocket:
    """Accepted client connection, used by one task. The connection owns the socket and closes it.

    Args:
        sock: The accepted socket.
        bytes_per_s: Send bandwidth in bytes per second; None for no limit.

    Attributes:
        is_control: True if the connection carries control commands instead of tested requests.
        filed_nbytes: Number of bytes sent from files so far.
    """

    def __init__(self, sock: socket.socket, *, bytes_per_s: float | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self.is_control = False
        self.filed_nbytes = 0
        self._received = bytearray()
        self._changed = asyncio.Event()
        self._gone = asyncio.Event()
        self._reading = False
        self._bytes_per_s = bytes_per_s
        self._pace_first = _UNPACED_NBYTES if bytes_per_s and _pace_in_kernel(sock, bytes_per_s) else sys.maxsize
        self._due_s = 0.0
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._read_on()

    async def receive_until(self, end: bytes, limit: int) -> bytes | None:
        """Return the bytes received before the delimiter ``end``, or None if the client closed the connection between
        requests.

        Raises:
            PeerGone: The client closed the connection in the middle of a request.
            ValueError: More than ``limit`` bytes arrived before the delimiter ``end``.
        """
        while (place := self._received.find(end)) < 0:
            if len(self._received) > limit:
                raise ValueError(f"no end of the head within {limit} bytes")
            if self._gone.is_set():
                if self._received:
                    raise PeerGone("the client left in the middle of a request")
                return None
            await self._more()
        return self._take(place, len(end))

    async def receive_exactly(self, nbytes: int) -> bytes:
        """Return the next ``nbytes`` received bytes.

        Raises:
            PeerGone: The client closed the connection before sending ``nbytes`` bytes.
        """
        while len(self._received) < nbytes:
            if self._gone.is_set():
                raise PeerGone("the client left in the middle of a body")
            await self._more()
        return self._take(nbytes, 0)

    async def send(self, data: bytes) -> None:
        """Send all of ``data``.

        Raises:
            ConnectionError: The client has disconnected.
        """
        rest = memoryview(data)
        while rest:
            most = await self._turn(len(rest))
            try:
                rest = rest[self._send_some(rest[:most]) :]
            except BlockingIOError:
                await self._writable()

    async def send_file(self, descriptor: int, offset: int, nbytes: int) -> None:
        """Send part of a file with ``sendfile``, without reading it into memory.

        Raises:
            ConnectionError: The client has disconnected, or the file was truncated.
        """
        stop = offset + nbytes
        while offset < stop:
            most = await self._turn(stop - offset)
            try:
                sent = os.sendfile(self._sock.fileno(), descriptor, offset, most)
            except BlockingIOError:
                await self._writable()
                continue
            if sent == 0:
                raise ConnectionAbortedError("the file that is served has become shorter")
            offset += sent
            self.filed_nbytes += sent

    async def wait(self, seconds: float | None) -> None:
        """Wait for ``seconds`` seconds; None waits until the client disconnects.

        Raises:
            PeerGone: The client has disconnected.
        """
        try:
            async with asyncio.timeout(seconds):
                await self._gone.wait()
        except TimeoutError:
            return
        raise PeerGone("the client left while it was made to wait")

    async def reset(self) -> None:
        """End the connection with a TCP RST after all sent data has arrived."""
        give_up_s = time.monotonic() + _DRAIN_S
        # Poll: the system does not notify about acknowledged bytes.
        while self._unsent_nbytes() and time.monotonic() < give_up_s:  # noqa: ASYNC110
            await asyncio.sleep(_DRAIN_POLL_S)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self) -> None:
        """End the connection with a TCP FIN. Idempotent."""
        if self._sock.fileno() < 0:
            return
        self._stop_reading()
        self._sock.close()

    def abort(self) -> None:
        """Reset the connection immediately. The task that serves the connection fails at its next step."""
        self._gone.set()
        self._changed.set()
        if self._sock.fileno() >= 0:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._sock.shutdown(socket.SHUT_RDWR)

    @property
    def has_received(self) -> bool:
        """True if the buffer contains bytes of the next request."""
        return bool(self._received)

    # -- receiving ------------------------------------------------------------------------------

    def _read_on(self) -> None:
        if not self._reading and not self._gone.is_set():
            self._loop.add_reader(self._sock.fileno(), self._receive)
            self._reading = True

    def _stop_reading(self) -> None:
        if self._reading:
            self._loop.remove_reader(self._sock.fileno())
            self._reading = False

    def _receive(self) -> None:
        try:
            data = self._receive_some(_RECEIVE_NBYTES)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        if not data:
            self._gone.set()
            self._stop_reading()
        self._received += data
        self._changed.set()
        if len(self._received) > _READ_AHEAD_NBYTES:
            self._stop_reading()

    async def _more(self) -> None:
        self._read_on()
        self._changed.clear()
        await self._changed.wait()

    def _take(self, nbytes: int, dropped: int) -> bytes:
        taken = bytes(memoryview(self._received)[:nbytes])
        del self._received[: nbytes + dropped]
        return taken

    def _receive_some(self, nbytes: int) -> bytes:
        return self._sock.recv(nbytes)

    # -- sending --------------------------------------------------------------------------------

    def _send_some(self, data: memoryview) -> int:
        return self._sock.send(data)

    async def _writable(self) -> None:
        waiter: asyncio.Future[None] = self._loop.create_future()
        descriptor = self._sock.fileno()
        self._loop.add_writer(descriptor, _wake, waiter)
        try:
            await waiter
        finally:
            self._loop.remove_writer(descriptor)

    async def _turn(self, nbytes: int) -> int:
        """Wait for the bandwidth limit, and return the number of bytes to send now, at most ``nbytes``."""
        if self._bytes_per_s is None or self._pace_first <= 0:
            return nbytes
        piece = min(nbytes, max(1, int(self._bytes_per_s * _PIECE_S)))
        now_s = time.monotonic()
        self._due_s = max(now_s, self._due_s) + piece / self._bytes_per_s
        self._pace_first -= piece
        await asyncio.sleep(self._due_s - now_s)
        return piece

    def _unsent_nbytes(self) -> int:
        if sys.platform != "linux":
            return 0
        answer = fcntl.ioctl(self._sock.fileno(), _TIOCOUTQ, b"\0\0\0\0")
        return int(struct.unpack("i", answer)[0])


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _pace_in_kernel(sock: socket.socket, bytes_per_s: float) -> bool:
    """Limit the bandwidth in the kernel. Return False if the system does not support kernel pacing."""
    if sys.platform != "linux":
        return False
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, min(int(bytes_per_s), 0xFFFFFFFF))
    except OSError:
        return False
    return True
