"""Socket server for a :class:`~aiostream_data.testing.fault_site.FaultSite` in the running event loop."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from aiostream_data.testing import fault_control
from aiostream_data.testing.fault_script import Drip, End, Send, SendSlice, Step, Wait
from aiostream_data.testing.fault_site import FaultSite, nothing_to_drop
from aiostream_data.testing.fault_socket import FaultSocket
from aiostream_data.testing.fault_tls import TlsFaultSocket
from aiostream_data.testing.object_api.messages import HEAD_LIMIT_NBYTES, Request, parse_request, write_head
from aiostream_data.testing.object_api.objects import Slice
from aiostream_data.testing.request_log import SeenRequest

_BACKLOG = 1024
_COPIED_NBYTES = 64 << 10
"""Maximum size of a body that is sent together with its response head: one system call instead of three."""


@asynccontextmanager
async def serving(
    site: FaultSite, *, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[str]:
    """Serve ``site`` during the ``with`` block and yield the server's URL.

    After the block, no task and no socket remains.

    Args:
        site: Site to serve: objects, rules and log of the server.
        port: Port to listen on; 0 selects a free port.
        tls: TLS context; None for HTTP without TLS.

    Raises:
        OSError: The port is already in use.

    Example::

        import asyncio

        import aiohttp

        from aiostream_data.testing.fault_serving import serving
        from aiostream_data.testing.fault_site import FaultSite


        async def main():
            site = FaultSite("http")
            site.objects.put("file.bin", b"data")
            async with serving(site) as url, aiohttp.ClientSession() as session:
                async with session.get(f"{url}/file.bin") as answer:
                    assert await answer.read() == b"data"


        asyncio.run(main())
    """
    listener = socket.create_server((host, port), backlog=_BACKLOG)
    listener.setblocking(False)
    raised: BaseException | None = None
    try:
        async with asyncio.TaskGroup() as group:
            accepting = group.create_task(_accept(site, listener, group, tls))
            try:
                bound = listener.getsockname()
                yield f"http{'s' if tls else ''}://{bound[0]}:{bound[1]}"
            except BaseException as error:
                raised = error
                raise
            finally:
                accepting.cancel()
    except BaseExceptionGroup as failures:
        if raised is not None and failures.exceptions == (raised,):
            raise raised from raised.__cause__  # re-raise the block's own error without the group
        raise
    finally:
        listener.close()


async def _accept(
    site: FaultSite, listener: socket.socket, group: asyncio.TaskGroup, tls: ssl.SSLContext | None
) -> None:
    """Accept connections until cancelled, then close all connections."""
    loop = asyncio.get_running_loop()
    open_now: dict[FaultSocket, asyncio.Task[None]] = {}

    def drop() -> None:
        for connection in list(open_now):
            if not connection.is_control:
                connection.abort()

    def drop_from_any_thread() -> None:
        loop.call_soon_threadsafe(drop)

    site.drop_connections = drop_from_any_thread
    acceptable = asyncio.Event()
    loop.add_reader(listener, acceptable.set)
    try:
        while True:
            sock = await _accept_one(listener, acceptable)
            limit = site.wire.max_connections
            if limit is not None and site.log.counters.open_connections >= limit:
                site.log.counters.refused_connections += 1
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                sock.close()
                continue
            connection = _connection(site, sock, tls)
            task = group.create_task(_serve_connection(site, connection))
            open_now[connection] = task
            task.add_done_callback(partial(_forget, open_now, connection))
    finally:
        loop.remove_reader(listener)
        site.drop_connections = nothing_to_drop
        for task in open_now.values():
            task.cancel()


async def _accept_one(listener: socket.socket, acceptable: asyncio.Event) -> socket.socket:
    """Accept a connection. Unlike ``sock_accept()`` of the loop, a cancellation loses no accepted connection."""
    while True:
        try:
            sock, _ = listener.accept()
        except BlockingIOError:
            acceptable.clear()
            await acceptable.wait()
        else:
            sock.setblocking(False)
            return sock


def _connection(site: FaultSite, sock: socket.socket, tls: ssl.SSLContext | None) -> FaultSocket:
    if tls is None:
        return FaultSocket(sock, bytes_per_s=site.wire.bytes_per_s)
    return TlsFaultSocket(sock, tls, site.log.shook_hands, bytes_per_s=site.wire.bytes_per_s)


def _forget(open_now: dict[FaultSocket, asyncio.Task[None]], connection: FaultSocket, _: object) -> None:
    """Forget a connection whose task has ended, possibly before its first step."""
    del open_now[connection]
    connection.close()


async def _serve_connection(site: FaultSite, connection: FaultSocket) -> None:
    number = site.log.connected()
    try:
        while await _serve_request(site, connection, number):
            pass
    except ConnectionError:
        return  # tests disconnect clients on purpose
    finally:
        connection.close()
        if not connection.is_control:
            site.log.disconnected()


async def _serve_request(site: FaultSite, connection: FaultSocket, number: int) -> bool:
    """Answer one request; return False if the connection has ended."""
    head = await _receive_head(site, connection)
    if head is None:
        return False
    try:
        request = parse_request(head)
    except ValueError:
        await connection.send(write_head(400, [("Content-Length", "0"), ("Connection", "close")]))
        return False
    if request.path.startswith(fault_control.PREFIX):
        await _serve_control(site, connection, request)
        return True
    if request.body_nbytes:
        await connection.receive_exactly(request.body_nbytes)
    steps, seen = site.decide(request, number)
    try:
        ended = await _play(site, connection, steps, seen)
        seen.finished = True
    finally:
        site.log.ended(seen)
    return not ended


async def _receive_head(site: FaultSite, connection: FaultSocket) -> bytes | None:
    """Return the next request head, or None if the client closed the connection or timed out."""
    limit_s = None if connection.has_received or connection.is_control else site.wire.keep_alive_s
    try:
        if limit_s is None:
            return await connection.receive_until(b"\r\n\r\n", HEAD_LIMIT_NBYTES)
        async with asyncio.timeout(limit_s):
            return await connection.receive_until(b"\r\n\r\n", HEAD_LIMIT_NBYTES)
    except (TimeoutError, ValueError):
        return None


async def _serve_control(site: FaultSite, connection: FaultSocket, request: Request) -> None:
    if not connection.is_control:
        connection.is_control = True
        site.log.not_counted()
    body = await connection.receive_exactly(request.body_nbytes)
    status, answer = fault_control.answer(site, request.method, request.path.removeprefix(fault_control.PREFIX), body)
    await connection.send(write_head(status, [("Content-Length", str(len(answer)))]) + answer)


async def _play(site: FaultSite, connection: FaultSocket, steps: list[Step], seen: SeenRequest) -> bool:
    """Execute the steps of a script; return True if the script ends the connection."""
    held = b""  # adjacent small pieces are sent together
    for step in steps:
        match step:
            case Send(data, counted) if len(held) + len(data) <= 2 * _COPIED_NBYTES:
                held += data
                seen.nbytes += len(data) if counted else 0
                continue
            case SendSlice(part) if part.nbytes <= _COPIED_NBYTES and len(held) <= _COPIED_NBYTES:
                held += site.objects.read(part)
                seen.nbytes += part.nbytes
                continue
            case _:
                if held:
                    await connection.send(held)
                    held = b""
        match step:
            case Send(data, counted):
                await connection.send(data)
                seen.nbytes += len(data) if counted else 0
            case SendSlice(part):
                await _send_slice(site, connection, part, seen)
            case Drip(data, pause_s):
                for place in range(len(data)):
                    await connection.wait(pause_s)
                    await connection.send(data[place : place + 1])
            case Wait(seconds):
                await connection.wait(seconds)
            case End("reset"):
                await connection.reset()
                return True
            case End():
                return True
    if held:
        await connection.send(held)
    return False


async def _send_slice(site: FaultSite, connection: FaultSocket, part: Slice, seen: SeenRequest) -> None:
    before = connection.filed_nbytes
    with site.objects.opened(part.stored) as descriptor:
        try:
            await connection.send_file(descriptor, part.stored.offset + part.start, part.nbytes)
        finally:
            seen.nbytes += connection.filed_nbytes - before
