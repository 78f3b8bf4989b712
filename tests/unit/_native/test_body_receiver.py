"""The receiver of response bodies, native and in Python."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from aiostream_data import _native
from aiostream_data.storage.wire import body_receiver

SECONDS = 20.0


IMPLEMENTATIONS = [each for each in (_native.NativeBodyReceiver, body_receiver.BodyReceiver) if each is not None]


@dataclass
class Running:
    receiver: Any
    thread: threading.Thread

    def ended(self) -> list[tuple[int, int, int]]:
        """Wait until bodies have ended, and return them."""
        assert select.select([self.receiver.done_file], [], [], SECONDS)[0], "no body ended"
        ended: list[tuple[int, int, int]] = self.receiver.take_ended()
        return ended

    def wait_for_progress(self, number: int, nbytes: int) -> None:
        deadline = threading.Event()
        for _ in range(int(SECONDS * 1000)):
            if self.receiver.progress(number)[0] >= nbytes:
                return
            deadline.wait(0.001)
        raise AssertionError("the bytes were not received")


@contextmanager
def running(implementation: Any) -> Iterator[Running]:
    receiver = implementation()
    thread = threading.Thread(target=receiver.run)
    thread.start()
    try:
        yield Running(receiver, thread)
    finally:
        receiver.stop()
        thread.join(SECONDS)
        assert not thread.is_alive()


@contextmanager
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    server, client = socket.socketpair()
    client.setblocking(False)
    with server, client:
        yield server, client


both = pytest.mark.parametrize("implementation", IMPLEMENTATIONS)


@both
def test_a_body_that_arrives_in_pieces_is_complete(implementation: Any) -> None:
    body = bytes(range(256)) * 40_000
    into = bytearray(len(body))
    with pair() as (server, client), running(implementation) as run:
        number = run.receiver.begin(client.fileno(), memoryview(into))
        for start in range(0, len(body), 1_000_003):
            server.sendall(body[start : start + 1_000_003])
        assert run.ended() == [(number, len(body), 0)]
        assert run.receiver.take_ended() == []
    assert into == body


@both
def test_bytes_after_the_body_stay_in_the_socket(implementation: Any) -> None:
    into = bytearray(4)
    with pair() as (server, client), running(implementation) as run:
        server.sendall(b"bodyrest")
        run.receiver.begin(client.fileno(), memoryview(into))
        assert [received for _, received, _ in run.ended()] == [4]
        assert client.recv(100) == b"rest"
    assert into == b"body"


@both
def test_many_bodies_are_received_at_the_same_time(implementation: Any) -> None:
    count = body_receiver.MOST_BODIES
    with ExitStack() as opened, running(implementation) as run:
        pairs = [opened.enter_context(pair()) for _ in range(count + 1)]
        into = [bytearray(3) for _ in pairs]
        numbers = [
            run.receiver.begin(client.fileno(), memoryview(room)) for (_, client), room in zip(pairs, into, strict=True)
        ]
        assert sorted(numbers[:count]) == list(range(count))
        assert numbers[count] == -1, "there is no place for another body"
        for position, (server, _) in enumerate(pairs[:count]):
            server.sendall(b"%03d" % position)
        ended: list[tuple[int, int, int]] = []
        while len(ended) < count:
            ended += run.ended()
        assert sorted(number for number, _, _ in ended) == list(range(count))
        assert {problem for _, _, problem in ended} == {0}
        assert into[:count] == [b"%03d" % position for position in range(count)]
        assert run.receiver.begin(pairs[count][1].fileno(), memoryview(into[count])) >= 0, "places are used again"


@both
def test_a_closed_connection_ends_the_body_with_its_received_bytes(implementation: Any) -> None:
    into = bytearray(10)
    with pair() as (server, client), running(implementation) as run:
        number = run.receiver.begin(client.fileno(), memoryview(into))
        server.sendall(b"abc")
        server.close()
        assert run.ended() == [(number, 3, body_receiver.CLOSED)]


@both
def test_a_broken_connection_ends_the_body_with_an_error_number(implementation: Any) -> None:
    into = bytearray(10)
    with running(implementation) as run:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            client = socket.create_connection(listener.getsockname())
            server, _ = listener.accept()
        with client, server:
            client.setblocking(False)
            run.receiver.begin(client.fileno(), memoryview(into))
            server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            server.close()  # a reset
            [(_, received, problem)] = run.ended()
    assert received == 0
    assert problem > 0


@both
def test_a_cancelled_body_is_not_written_any_more(implementation: Any) -> None:
    into = bytearray(1 << 20)
    with pair() as (server, client), running(implementation) as run:
        number = run.receiver.begin(client.fileno(), memoryview(into))
        server.sendall(b"x" * 100)
        run.wait_for_progress(number, 100)
        run.receiver.cancel(number)
        into[:] = bytes(len(into))
        server.sendall(b"y" * 100)
        again = bytearray(50)
        other = run.receiver.begin(client.fileno(), memoryview(again))
        assert run.ended() == [(other, 50, 0)], "the cancelled body does not end"
    assert again == b"y" * 50
    assert into == bytes(len(into))


@both
def test_progress_is_known_while_a_body_arrives(implementation: Any) -> None:
    into = bytearray(1000)
    with pair() as (server, client), running(implementation) as run:
        number = run.receiver.begin(client.fileno(), memoryview(into))
        _, began_s = run.receiver.progress(number)
        server.sendall(b"x" * 700)
        run.wait_for_progress(number, 700)
        assert run.receiver.progress(number)[1] >= began_s
        run.receiver.cancel(number)
