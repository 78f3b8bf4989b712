"""An idle connection has acknowledged all bytes, so that its server neither repeats nor slows down responses."""

from __future__ import annotations

import asyncio
import socket
import sys
from functools import partial

import pytest

from aiostream_data.storage.wire.answer_head import AnswerHead
from aiostream_data.storage.wire.connection import Connection
from aiostream_data.storage.wire.exchange import BodyPlan, ReadPatience
from aiostream_data.storage.wire.pool import Pool, Server

PATIENCE = ReadPatience(5.0, 5.0, 20.0)
BODY = bytes(100)


async def _answer_each_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while await reader.readline():
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(BODY) + BODY)
    writer.close()


def _decided(plan: BodyPlan, _: AnswerHead) -> BodyPlan:
    return plan


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell whether acknowledgements are delayed")
def test_a_connection_acknowledges_at_once_when_it_returns_to_the_pool() -> None:
    async def main() -> list[int]:
        server = await asyncio.start_server(_answer_each_request, "127.0.0.1")
        pool = Pool(Server(*server.sockets[0].getsockname()), limit=1, connect_s=5.0)
        connection = await pool.take()
        assert connection._transport is not None
        its_socket = connection._transport.get_extra_info("socket")
        is_quick = []
        for _ in range(20):  # the kernel delays acknowledgements after a few requests and responses
            buffer = bytearray(len(BODY))
            plan = BodyPlan(memoryview(buffer), 0, whole=True)
            await connection.get(b"GET\n", partial(_decided, plan), PATIENCE)
        is_quick.append(its_socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK))
        pool.give_back(connection)
        is_quick.append(its_socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK))
        pool.close()
        server.close()
        await server.wait_closed()
        return is_quick

    assert asyncio.run(asyncio.wait_for(main(), 20)) == [0, 1]


def test_a_connection_whose_transport_has_ended_is_not_acknowledged() -> None:
    async def main() -> None:
        connection = Connection()
        connection.acknowledge()  # not connected yet
        connection.connection_made(Ended())
        connection.acknowledge()

    asyncio.run(main())


class Ended(asyncio.Transport):
    """A TLS transport after the end of its connection: it has no socket any more."""

    def get_extra_info(self, name: str, default: object = None) -> object:
        return default
