"""The event loop of a loader reports exceptions of callbacks, except those of closed TLS connections."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from aiostream_data._engine.event_loop import close_loop, loop_maker

uvloop = pytest.importorskip("uvloop")


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = loop_maker()()
    yield made
    close_loop(made, of_thread=False)


def test_a_write_to_a_closed_tls_connection_is_not_reported(
    loop: asyncio.AbstractEventLoop, caplog: pytest.LogCaptureFixture
) -> None:
    closed = loop.run_until_complete(_closed_transport())
    with pytest.raises(RuntimeError) as found:
        closed.write(b"of a handshake")  # as uvloop does after a cancelled handshake
    loop.call_exception_handler({"message": "Fatal error on SSL protocol", "exception": found.value})
    assert not caplog.records


@pytest.mark.parametrize("message", ["Fatal error on SSL protocol", "Exception in callback"])
def test_other_exceptions_of_callbacks_are_reported(
    loop: asyncio.AbstractEventLoop, caplog: pytest.LogCaptureFixture, message: str
) -> None:
    loop.call_exception_handler({"message": message, "exception": RuntimeError("a fault")})
    assert [record.getMessage().splitlines()[0] for record in caplog.records] == [message]


async def _closed_transport() -> asyncio.Transport:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
    transport, _ = await loop.create_connection(asyncio.Protocol, *server.sockets[0].getsockname())
    transport.abort()
    await asyncio.sleep(0)
    server.close()
    await server.wait_closed()
    return transport
