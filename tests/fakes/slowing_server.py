"""An HTTP server that never refuses a request, but becomes slower with every request in flight beyond a number."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

NBYTES = 4096
POWER = 2.0
"""The time of a request grows with this power of the requests in flight, so that throughput falls."""


@contextmanager
def slowing_server(latency_s: float, beyond: int) -> Iterator[str]:
    """Run a server in a process of its own; yield the URL of its object of ``NBYTES`` bytes."""
    command = [sys.executable, __file__, str(latency_s), str(beyond)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(server.stdout.readline())}/object"
        finally:
            server.stdin.close()  # ends the server


class _Served:
    def __init__(self, latency_s: float, beyond: int) -> None:
        self._latency_s = latency_s
        self._beyond = beyond
        self._in_flight = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self._in_flight += 1
                await self._wait()
                self._in_flight -= 1
                writer.write(self._response(head))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):  # the test has ended
            writer.close()

    async def _wait(self) -> None:
        """Work for ``latency_s`` at the speed that the requests in flight leave to each."""
        left_s = self._latency_s
        while left_s > 0:
            slice_s = min(left_s, self._latency_s / 4)
            slowness = max(1.0, (self._in_flight / self._beyond) ** POWER)
            await asyncio.sleep(slice_s * slowness)
            left_s -= slice_s

    def _response(self, head: bytes) -> bytes:
        lines = [b"HTTP/1.1 200 OK", b'ETag: "1"', b"Accept-Ranges: bytes"]
        first, stop = 0, NBYTES
        for line in head.split(b"\r\n"):
            name, _, value = line.partition(b":")
            if name.lower() == b"range":
                first, last = map(int, value.strip().removeprefix(b"bytes=").split(b"-"))
                stop = min(last + 1, NBYTES)
                lines[0] = b"HTTP/1.1 206 Partial Content"
                lines.append(b"Content-Range: bytes %d-%d/%d" % (first, stop - 1, NBYTES))
        lines.append(b"Content-Length: %d" % (stop - first))
        return b"\r\n".join([*lines, b"", b"" if head.startswith(b"HEAD") else bytes(stop - first)])


async def _serve(latency_s: float, beyond: int) -> None:
    server = await asyncio.start_server(_Served(latency_s, beyond).answer, "127.0.0.1", 0, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201 - read by the test
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve(float(sys.argv[1]), int(sys.argv[2])))
