"""The native sender of requests: over socket pairs, with every way in which a response can end."""

from __future__ import annotations

import errno
import select
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiostream_data import _native
from aiostream_data.storage.wire.answer_head import AnswerHead, parse_strictly

pytestmark = pytest.mark.skipif(_native.NativeExchange is None, reason="the native core was not built")

SECONDS = 20.0
CLOSED, SILENT, UNUSUAL = -1, -2, -3
HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n"


class Ended(NamedTuple):
    """Result of a request, as the native code returns it."""

    number: int
    connection: int
    problem: int
    head: bytes | None
    first_byte_s: float
    body_s: float
    received: int


@dataclass
class Running:
    """A native sender with its thread, and all results that it returned."""

    native: Any
    queue: int
    ended: dict[int, Ended] = field(default_factory=dict)
    left: dict[int, bool] = field(default_factory=dict)

    def put(self, nbytes: int, text: bytes = b"GET /object") -> tuple[int, bytearray]:
        buffer = bytearray(nbytes)
        return self.native.put(self.queue, text, memoryview(buffer)), buffer

    def add(self, client: socket.socket) -> int:
        number: int = self.native.add(self.queue, client.fileno())
        return number

    def wait(self, requests: Sequence[int] = (), connections: Sequence[int] = ()) -> None:
        """Wait until requests have ended and connections have left."""
        while not (set(requests) <= set(self.ended) and set(connections) <= set(self.left)):
            assert select.select([self.native.done_file], [], [], SECONDS)[0], "nothing ended"
            ended, left = self.native.take()
            self.ended.update({each[0]: Ended(*each) for each in ended})
            self.left.update(left)


@contextmanager
def running(first_byte_s: float = 30.0, idle_s: float = 30.0, total_s: float = 600.0) -> Iterator[Running]:
    native = _native.NativeExchange(2, first_byte_s, idle_s, total_s)
    threads = [threading.Thread(target=native.run, args=(worker,)) for worker in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield Running(native, native.open_queue())
    finally:
        native.stop()
        for thread in threads:
            thread.join(SECONDS)
            assert not thread.is_alive()


@contextmanager
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    server, client = socket.socketpair()
    client.setblocking(False)
    server.settimeout(SECONDS)
    with server, client:
        yield server, client


def received(server: socket.socket, nbytes: int) -> bytes:
    data = b""
    while len(data) < nbytes:
        data += server.recv(nbytes - len(data))
    return data


def test_one_connection_sends_the_requests_of_its_queue_in_order() -> None:
    with running() as sender, pair() as (server, client):
        requests = [sender.put(4, b"GET /%d" % number) for number in range(3)]
        connection = sender.add(client)
        for number in range(3):
            assert received(server, 6) == b"GET /%d" % number
            server.sendall(HEAD % 4 + b"%04d" % number)
        sender.wait([number for number, _ in requests], [connection])
        assert [bytes(buffer) for _, buffer in requests] == [b"0000", b"0001", b"0002"]
        assert {each.problem for each in sender.ended.values()} == {0}
        assert sender.left == {connection: True}
        assert sender.native.waiting(sender.queue) == 0


@pytest.mark.parametrize("step", [1, 3, 40, 10_000])
def test_a_response_may_arrive_in_pieces(step: int) -> None:
    content = bytes(range(256)) * 4
    answer = HEAD % len(content) + content
    with running() as sender, pair() as (server, client):
        number, buffer = sender.put(len(content))
        sender.add(client)
        for start in range(0, len(answer), step):
            server.sendall(answer[start : start + step])
        sender.wait([number])
        assert bytes(buffer) == content
        assert sender.ended[number].head == HEAD % len(content)
        assert sender.ended[number].received == len(content)
        assert sender.ended[number].first_byte_s >= 0
        assert sender.ended[number].body_s >= 0


def test_a_request_larger_than_the_buffer_of_the_socket_is_sent_completely() -> None:
    text = bytes(range(256)) * 8_000
    with running() as sender, pair() as (server, client):
        number, _ = sender.put(1, text)
        sender.add(client)
        assert received(server, len(text)) == text
        server.sendall(HEAD % 1 + b"x")
        sender.wait([number])
        assert sender.ended[number].problem == 0


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"", CLOSED),
        (b"HTTP/1.1 200 OK\r\n", CLOSED),
        (HEAD % 4 + b"abc", CLOSED),
        (HEAD % 3 + b"abc", UNUSUAL),
        (HEAD % 5 + b"abcde", UNUSUAL),
        (HEAD % 4 + b"abcde", UNUSUAL),
        (b"HTTP/1.1 503 Busy\r\ncontent-length: 4\r\n\r\nbusy", UNUSUAL),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD % 4 + b"abcd", UNUSUAL),
        (b"HTTP/1.1 200 OK\r\n\r\nabcd", UNUSUAL),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nabcd\r\n0\r\n\r\n", UNUSUAL),
        (b"HTTP/1.1 200 OK\r\nconnection: upgrade\r\ncontent-length: 4\r\n\r\nabcd", UNUSUAL),
        (b"HTTP/1.1 200 OK\r\nconnection: close\r\nconnection: close\r\ncontent-length: 4\r\n\r\nabcd", UNUSUAL),
        (b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 4\r\n\r\nabc", CLOSED),
        (b"x" * 9_000, UNUSUAL),
    ],
)
def test_a_connection_with_an_unusual_response_is_not_used_again(answer: bytes, problem: int) -> None:
    with running() as sender, pair() as (server, client):
        (first, _), (second, _) = sender.put(4), sender.put(4)
        connection = sender.add(client)
        server.sendall(answer)
        server.shutdown(socket.SHUT_WR)
        sender.wait([first], [connection])
        assert sender.ended[first].problem == problem
        assert sender.left[connection] is False
        assert second not in sender.ended
        assert sender.native.waiting(sender.queue) == 1


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\nConnection: Close", b"HTTP/1.0 200 OK\r\nServer: old"])
def test_the_last_response_of_a_connection_is_complete_and_the_connection_is_not_used_again(head: bytes) -> None:
    with running() as sender, pair() as (server, client):
        (first, buffer), (second, _) = sender.put(4), sender.put(4)
        connection = sender.add(client)
        server.sendall(head + b"\r\ncontent-length: 4\r\n\r\nabcd")
        sender.wait([first], [connection])
        assert sender.ended[first].problem == 0
        assert bytes(buffer) == b"abcd"
        assert sender.left[connection] is False
        assert second not in sender.ended


def test_a_connection_with_bytes_after_a_response_is_not_used_again() -> None:
    with running() as sender, pair() as (server, client):
        (first, buffer), (second, _) = sender.put(20_000), sender.put(4)
        connection = sender.add(client)
        server.sendall(HEAD % 20_000 + b"x" * 20_001)
        sender.wait([first], [connection])
        assert sender.ended[first].problem == 0
        assert bytes(buffer) == b"x" * 20_000
        assert sender.left[connection] is False
        assert second not in sender.ended


def test_the_head_of_an_unusual_response_is_returned() -> None:
    head = b"HTTP/1.1 503 Slow Down\r\nretry-after: 3\r\ncontent-length: 4\r\n\r\n"
    with running() as sender, pair() as (server, client):
        number, _ = sender.put(4)
        sender.add(client)
        server.sendall(head + b"busy")
        sender.wait([number])
        assert sender.ended[number].head == head


def test_a_reset_connection_is_reported_with_its_error() -> None:
    with running() as sender, ExitStack() as opened:
        listener = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
        client = opened.enter_context(socket.create_connection(listener.getsockname()))
        server = opened.enter_context(listener.accept()[0])
        client.setblocking(False)
        number, _ = sender.put(4)
        sender.add(client)
        assert received(server, 11)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        server.close()
        sender.wait([number])
        assert sender.ended[number].problem == errno.ECONNRESET


@pytest.mark.parametrize(
    ("patience", "answer"),
    [((0.05, 30.0, 600.0), b""), ((30.0, 0.05, 600.0), HEAD % 4 + b"a"), ((30.0, 30.0, 0.05), HEAD % 4 + b"a")],
)
def test_a_silent_server_is_reported_while_others_answer(patience: tuple[float, float, float], answer: bytes) -> None:
    with running(*patience) as sender, pair() as (silent, client), pair() as (busy, other):
        late, _ = sender.put(4)
        late_connection = sender.add(client)
        silent.sendall(answer)
        while late not in sender.ended:
            number, _ = sender.put(1)
            sender.left.clear()
            connection = sender.add(other)
            received(busy, 11)
            busy.sendall(HEAD % 1 + b"x")
            sender.wait([number], [connection])
            assert sender.ended[number].problem == 0
        assert sender.ended[late].problem == SILENT
        sender.wait([], [late_connection])
        assert sender.left[late_connection] is False


def test_a_retired_connection_leaves_and_the_others_go_on() -> None:
    with running() as sender, pair() as (first_server, first), pair() as (second_server, second):
        numbers = [sender.put(1)[0] for _ in range(4)]
        connections = [sender.add(first), sender.add(second)]
        sender.native.retire(sender.queue, 1)
        first_server.sendall(HEAD % 1 + b"x")
        sender.wait([numbers[0]], [connections[0]])
        assert sender.left == {connections[0]: True}
        for _ in range(3):
            received(second_server, 11)
            second_server.sendall(HEAD % 1 + b"x")
        sender.wait(numbers, connections)
        assert {each.problem for each in sender.ended.values()} == {0}


def test_nothing_writes_to_the_buffer_of_a_cancelled_request() -> None:
    with running() as sender, pair() as (server, client):
        (first, buffer), (second, other) = sender.put(1 << 20), sender.put(4)
        connection = sender.add(client)
        server.sendall(HEAD % (1 << 20) + b"x")
        while not any(buffer):
            pass
        assert sender.native.cancel(second) == -1
        assert sender.native.cancel(first) == connection
        buffer[:] = bytes(1 << 20)
        server.sendall(b"y" * 1000)
        assert not any(buffer)
        assert not any(other)
        assert sender.native.take() == ([], [])
        assert sender.native.cancel(first) == -1


def test_a_request_that_has_ended_can_be_cancelled() -> None:
    with running() as sender, pair() as (server, client):
        (first, _), (second, _), (third, _) = sender.put(1), sender.put(1), sender.put(1)
        connection = sender.add(client)
        server.sendall(HEAD % 1 + b"x")
        assert received(server, 22)  # the second request was sent, so the first one has ended
        assert sender.native.cancel(first) == -1
        server.sendall(HEAD % 1 + b"x")
        assert received(server, 11)
        server.sendall(HEAD % 1 + b"x")
        sender.wait([second, third], [connection])
        assert first not in sender.ended


def test_queues_do_not_share_connections() -> None:
    with running() as sender, pair() as (_, client):
        other = sender.native.open_queue()
        number = sender.native.put(other, b"GET /object", memoryview(bytearray(1)))
        assert sender.add(client) == -1
        assert sender.native.waiting(other) == 1
        assert sender.native.cancel(number) == -1
        sender.native.close_queue(other)
        assert sender.native.open_queue() == other


def test_many_connections_receive_many_objects() -> None:
    count, nbytes = 32, 5_000
    with running() as sender, ExitStack() as opened:
        pairs = [opened.enter_context(pair()) for _ in range(count)]
        requests = dict(sender.put(nbytes, b"GET /%04d" % number) for number in range(4 * count))
        threads = [threading.Thread(target=answer_all, args=(server, nbytes)) for server, _ in pairs]
        for thread in threads:
            thread.start()
        connections = [sender.add(client) for _, client in pairs]
        sender.wait(list(requests), connections)
        for _, client in pairs:
            client.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(SECONDS)
        assert {each.problem for each in sender.ended.values()} == {0}
        assert sorted(int(bytes(buffer[:4])) for buffer in requests.values()) == list(range(4 * count))
        assert all(len(set(buffer[4:])) == 1 for buffer in requests.values())


def answer_all(server: socket.socket, nbytes: int) -> None:
    while request := server.recv(9):
        server.sendall(HEAD % nbytes + request[5:] + b"x" * (nbytes - 4))


def test_a_sender_without_a_thread_can_be_deleted_with_requests() -> None:
    native = _native.NativeExchange(1, 1.0, 1.0, 1.0)
    queue = native.open_queue()
    for _ in range(100):
        native.put(queue, b"GET", memoryview(bytearray(10)))
    with pair() as (_, client):
        native.add(queue, client.fileno())
    del native


# -- heads

NAMES = st.sampled_from(
    [
        b"content-length",
        b"Content-Length",
        b"transfer-encoding",
        b"connection",
        b"content-encoding",
        b"etag",
        b"x y",
        b"",
    ]
)
VALUES = st.one_of(
    st.sampled_from([b"4", b"04", b"+4", b"4 ", b"keep-alive", b"close", b"chunked", b"identity", b""]),
    st.binary(max_size=6),
)
LINES = st.builds(
    lambda name, space, value, end: name + b":" + space + value + end,
    NAMES,
    st.sampled_from([b"", b" ", b"\t "]),
    VALUES,
    st.sampled_from([b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r"]),
)
STARTS = st.sampled_from(
    [b"HTTP/1.1 200 OK", b"HTTP/1.1 206 ", b"HTTP/1.1 200", b"HTTP/1.0 200 OK", b"HTTP/1.1 2000", b"HTTP/1.1 404 No"]
)


@given(STARTS, st.lists(LINES, max_size=5))
def test_heads_accepted_natively_are_parsed_as_by_the_strict_parser(start: bytes, lines: list[bytes]) -> None:
    head = start + b"\r\n" + b"".join(lines) + b"\r\n"
    found = _native.ordinary_head(head)
    if found is not None:
        status, headers, length = found
        answer = parse_strictly(head)
        assert answer is not None
        assert answer == AnswerHead(status, headers, "length", length, keeps_alive=True)
        assert list(headers) == list(answer.headers)
        assert status in (200, 206)
        assert "content-encoding" not in headers


def test_an_ordinary_head_is_parsed_natively() -> None:
    head = b'HTTP/1.1 206 \r\nServer:nginx\r\nCONTENT-LENGTH: 4\r\nx:\r\nETag: \t"\xe9 1"\r\n\r\n'
    headers = {"server": "nginx", "content-length": "4", "x": "", "etag": '"\xe9 1"'}
    assert _native.ordinary_head(head) == (206, headers, 4)


def test_the_head_of_the_last_response_of_a_connection_is_left_to_the_strict_parser() -> None:
    assert _native.ordinary_head(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 4\r\n\r\n") is None
    assert _native.ordinary_head(b"HTTP/1.0 200 OK\r\ncontent-length: 4\r\n\r\n") is None


@pytest.mark.parametrize("line", [b"etag: 2", b"ETAG: 1", b"a: 1 ", b"a: 1\t", b"n" * 129 + b": 1"])
def test_repeated_and_unusual_fields_are_left_to_the_strict_parser(line: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\netag: 1\r\n" + line + b"\r\n\r\n"
    assert _native.ordinary_head(head) is None
    assert parse_strictly(head) is not None


@pytest.mark.parametrize("cut", range(1, 62))
def test_heads_that_end_early_are_not_accepted(cut: int) -> None:
    head = b'HTTP/1.1 200 OK\r\nserver: nginx\r\ncontent-length: 4\r\netag: "1"\r\n\r\n'
    assert _native.ordinary_head(head) is not None
    assert _native.ordinary_head(head[:-cut]) is None
