"""The fault server does what its rules say, seen by a plain socket that takes whatever comes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from leaks import leaves_nothing
from raw_client import RawClient, fetch

from aiostream_data.errors import PlanError
from aiostream_data.testing.fault_catalogue import EVERY_FAULT
from aiostream_data.testing.fault_server import FaultServer, fault_server
from aiostream_data.testing.faults import Fault, Rule
from aiostream_data.testing.wire_model import WireModel

CONTENT = bytes(range(256)) * 4
LARGE = os.urandom(300_000)
RANGE = {"Range": "bytes=100-299"}


@pytest.fixture(scope="module")
def running() -> Iterator[FaultServer]:
    with fault_server("http") as server:
        yield server


@pytest.fixture
def server(running: FaultServer) -> FaultServer:
    running.set_rules()
    running.set_wire(WireModel())
    running.put("x", CONTENT)
    running.put("large", LARGE)
    while running.counters().open_connections:  # of the test before; pytest bounds it
        pass
    running.clear_log()
    return running


def fetch_with(server: FaultServer, fault: Fault, headers: dict[str, str] = RANGE) -> bytes:
    server.set_rules(Rule(fault))
    return fetch(server.endpoint_url, "/x", headers=headers).data


def test_without_rules_ranges_are_exact_and_the_connection_stays(server: FaultServer) -> None:
    with RawClient(server.endpoint_url) as client:
        for start, stop in ((0, 1), (100, 300), (1023, 1024), (0, 1024)):
            client.ask("/x", headers={"Range": f"bytes={start}-{stop - 1}"})
            answer = client.take_answer()
            assert (answer.status, answer.body) == (206, CONTENT[start:stop])
            assert answer.one("Content-Range") == f"bytes {start}-{stop - 1}/1024"
    assert server.counters().connections == 1


def test_large_bodies_arrive_whole(server: FaultServer) -> None:
    assert fetch(server.endpoint_url, "/large").body == LARGE


def test_requests_sent_at_once_are_answered_one_after_another(server: FaultServer) -> None:
    with RawClient(server.endpoint_url) as client:
        for number in range(5):
            client.ask("/x", headers={"Range": f"bytes={number}-{number}"})
        assert [client_answer(client, number) for number in range(5)] == [bytes([number]) for number in range(5)]


def client_answer(client: RawClient, number: int) -> bytes:
    data = bytearray()
    while not data.endswith(b"\r\n\r\n" + bytes([number])):
        data += client.sock.recv(1)
    return bytes(data[-1:])


@pytest.mark.parametrize(("at", "sent"), [("first", 1), ("middle", 100), ("last", 199), (50, 50), (10_000, 200)])
def test_a_reset_comes_behind_so_many_bytes(server: FaultServer, at: int, sent: int) -> None:
    server.set_rules(Rule(Fault(reset_at=at)))
    with RawClient(server.endpoint_url) as client:
        client.ask("/x", headers=RANGE)
        answer = client.take()
    assert (answer.ended, answer.body) == ("reset", CONTENT[100 : 100 + sent])


@pytest.mark.parametrize(("at", "sent"), [("first", 1), ("middle", 100), ("last", 199), (0, 0)])
def test_a_truncated_body_ends_in_good_order(server: FaultServer, at: int, sent: int) -> None:
    server.set_rules(Rule(Fault(truncate_at=at)))
    with RawClient(server.endpoint_url) as client:
        client.ask("/x", headers=RANGE)
        answer = client.take()
    assert (answer.ended, answer.body) == ("closed", CONTENT[100 : 100 + sent])
    assert answer.one("Content-Length") == "200"


def test_an_answer_can_break_off_before_or_in_its_head(server: FaultServer) -> None:
    for fault, ended in ((Fault(reset_at="start"), "reset"), (Fault(truncate_at="start"), "closed")):
        server.set_rules(Rule(fault))
        with RawClient(server.endpoint_url) as client:
            client.ask("/x")
            answer = client.take()
            assert (answer.data, answer.ended) == (b"", ended)
    server.set_rules(Rule(Fault(reset_at="head")))
    with RawClient(server.endpoint_url) as client:
        client.ask("/x")
        answer = client.take()
    assert answer.ended == "reset"
    assert answer.data.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"\r\n\r\n" not in answer.data


@pytest.mark.parametrize(("at", "sent"), [("start", None), ("first", 1), ("middle", 100), ("last", 199)])
def test_a_stall_for_ever_ends_when_the_client_goes(server: FaultServer, at: str, sent: int | None) -> None:
    server.set_rules(Rule(Fault(stall_at=at)))  # type: ignore[arg-type]
    with RawClient(server.endpoint_url) as client:
        client.ask("/x", headers=RANGE)
        if sent is not None:
            assert client.take_until(sent).body == CONTENT[100 : 100 + sent]
        more = client.take(quiet_s=0.1)
        assert (more.data, more.ended) == (b"", "open")
        assert server.counters().in_flight == 1
    while server.counters().in_flight:  # the end of the connection arrives in its own time; pytest bounds it
        pass
    assert not server.log()[-1].finished


def test_a_stall_that_ends_delivers_the_rest(server: FaultServer) -> None:
    started_s = time.monotonic()
    answer = fetch_with(server, Fault(stall_at="middle", stall_s=0.05))
    assert answer.endswith(CONTENT[100:300])
    assert time.monotonic() - started_s >= 0.05


def test_a_corrupt_byte_is_the_only_wrong_one(server: FaultServer) -> None:
    for at, place in (("first", 0), ("middle", 100), ("last", 199), (7, 7)):
        body = fetch_with(server, Fault(corrupt_at=at)).partition(b"\r\n\r\n")[2]  # type: ignore[arg-type]
        right = CONTENT[100:300]
        assert [number for number in range(200) if body[number] != right[number]] == [place]


def test_an_ignored_range_gives_everything_with_200(server: FaultServer) -> None:
    server.set_rules(Rule(Fault(ignore_range=True)))
    answer = fetch(server.endpoint_url, "/x", headers=RANGE)
    assert (answer.status, answer.body, answer.all("Content-Range")) == (200, CONTENT, [])


def test_another_range_can_be_sent_or_told(server: FaultServer) -> None:
    server.set_rules(Rule(Fault(shift_range=5)))
    answer = fetch(server.endpoint_url, "/x", headers=RANGE)
    assert (answer.one("Content-Range"), answer.body) == ("bytes 105-304/1024", CONTENT[105:305])
    server.set_rules(Rule(Fault(content_range="bytes 1-2/3")))
    answer = fetch(server.endpoint_url, "/x", headers=RANGE)
    assert (answer.one("Content-Range"), answer.body) == ("bytes 1-2/3", CONTENT[100:300])
    server.set_rules(Rule(Fault(shift_range=5)))
    answer = fetch(server.endpoint_url, "/x", headers={"Range": "bytes=1000-1023"})
    assert answer.one("Content-Range") == "bytes 995-1018/1024", "there is no room behind, so it is before"


def test_chunks_are_framed_right_and_can_end_early(server: FaultServer) -> None:
    server.set_rules(Rule(Fault(chunked=True)))
    answer = fetch(server.endpoint_url, "/large")
    assert answer.all("Content-Length") == []
    assert unchunk(answer.body) == (LARGE, True)
    server.set_rules(Rule(Fault(chunked=True, truncate_at=100_000)))
    assert unchunk(fetch(server.endpoint_url, "/large").body) == (LARGE[:100_000], False)
    server.set_rules(Rule(Fault(chunked=True, end_early_at=100_000)))
    assert unchunk(fetch(server.endpoint_url, "/large").body) == (LARGE[:100_000], True)


def unchunk(body: bytes) -> tuple[bytes, bool]:
    """Return what chunks hold, and whether the last one came."""
    found = b""
    while body:
        line, _, body = body.partition(b"\r\n")
        nbytes = int(line, 16)
        if nbytes == 0:
            return found, body == b"\r\n"
        found, body = found + body[:nbytes], body[nbytes + 2 :]
    return found, False


def test_a_short_body_is_framed_as_if_it_were_whole(server: FaultServer) -> None:
    server.set_rules(Rule(Fault(end_early_at="middle")))
    answer = fetch(server.endpoint_url, "/x", headers=RANGE)
    assert (answer.one("Content-Length"), answer.body) == ("100", CONTENT[100:200])
    assert answer.one("Content-Range") == "bytes 100-299/1024"


def test_a_status_comes_in_place_of_the_object(server: FaultServer) -> None:
    server.set_rules(Rule(Fault(status=503, retry_after="3"), times=1))
    answer = fetch(server.endpoint_url, "/x")
    assert (answer.status, answer.one("Retry-After")) == (503, "3")
    assert fetch(server.endpoint_url, "/x").status == 200


def test_a_redirect_says_where_to(server: FaultServer) -> None:
    server.set_rules(Rule(Fault(redirect="http://elsewhere/x")))
    answer = fetch(server.endpoint_url, "/x")
    assert (answer.status, answer.one("Location")) == (307, "http://elsewhere/x")


def test_an_object_changes_before_or_in_the_middle_of_an_answer_and_stays_so(server: FaultServer) -> None:
    inverted = bytes(255 - byte for byte in CONTENT)
    first = fetch(server.endpoint_url, "/x").one("ETag")
    server.set_rules(Rule(Fault(change="middle"), times=1))
    answer = fetch(server.endpoint_url, "/x")
    assert (answer.one("ETag"), answer.body) == (first, CONTENT[:512] + inverted[512:])
    answer = fetch(server.endpoint_url, "/x")
    assert answer.one("ETag") != first
    assert answer.body == inverted
    server.set_rules(Rule(Fault(change="before"), times=1))
    assert fetch(server.endpoint_url, "/x").body == CONTENT


def test_heads_can_be_odd(server: FaultServer) -> None:
    assert fetch_with(server, Fault(raw=b"\x00garbage")) == b"\x00garbage"
    assert len(fetch_with(server, Fault(pad_head=100_000))) > 100_000
    assert fetch_with(server, Fault(interim=2)).count(b"HTTP/1.1 103 ") == 2
    server.set_rules(Rule(Fault(duplicate_length=3)))
    assert fetch(server.endpoint_url, "/x").all("Content-Length") == ["1024", "1027"]
    server.set_rules(Rule(Fault(headers=(("X-Odd", "yes"),), without=("ETag",))))
    answer = fetch(server.endpoint_url, "/x")
    assert (answer.all("X-Odd"), answer.all("ETag")) == (["yes"], [])


def test_a_head_can_come_byte_by_byte(server: FaultServer) -> None:
    server.set_rules(Rule(Fault(slow_head_s=0.001)))
    with RawClient(server.endpoint_url) as client:
        client.ask("/x", headers=RANGE)
        pieces = [client.sock.recv(1 << 16)]
        while b"\r\n\r\n" not in b"".join(pieces):
            pieces.append(client.sock.recv(1 << 16))
    assert len(pieces) > 20


def test_bytes_behind_the_body_stay_on_the_connection(server: FaultServer) -> None:
    server.set_rules(Rule(Fault(extra=b"surplus")))
    with RawClient(server.endpoint_url) as client:
        client.ask("/x", headers=RANGE)
        answer = client.take_until(207)
    assert (answer.ended, answer.body) == ("open", CONTENT[100:300] + b"surplus")


def test_a_connection_can_be_closed_without_a_word(server: FaultServer) -> None:
    server.set_rules(Rule(Fault(close_after=True)))
    with RawClient(server.endpoint_url) as client:
        client.ask("/x")
        answer = client.take()
    assert (answer.ended, answer.body, answer.all("Connection")) == ("closed", CONTENT, [])


@pytest.mark.parametrize("name", EVERY_FAULT)
def test_after_every_fault_the_server_still_serves(server: FaultServer, name: str) -> None:
    server.set_rules(Rule(EVERY_FAULT[name], times=1))
    with RawClient(server.endpoint_url) as client:
        client.ask("/x", headers=RANGE)
        client.take(quiet_s=0.03)
    server.put("x", CONTENT)
    assert fetch(server.endpoint_url, "/x").body == CONTENT
    assert server.counters().faults == 1


def test_latency_and_bandwidth_are_what_was_asked_for(server: FaultServer) -> None:
    server.set_wire(WireModel(first_byte_s=0.05, bytes_per_s=3e6))
    started_s = time.monotonic()
    with RawClient(server.endpoint_url) as client:
        client.ask("/large")
        client.sock.recv(1)
        first_s = time.monotonic() - started_s
        client.take(nbytes=len(LARGE))
    took_s = time.monotonic() - started_s
    assert first_s >= 0.05
    assert took_s >= 0.05 + 0.95 * len(LARGE) / 3e6


def test_connections_beyond_the_limit_are_reset(server: FaultServer) -> None:
    server.set_wire(WireModel(max_connections=2))
    with RawClient(server.endpoint_url) as one, RawClient(server.endpoint_url) as two:
        for client in (one, two):
            client.ask("/x")
            client.take_answer()
        try:
            with RawClient(server.endpoint_url) as three:
                ended = three.take(quiet_s=5.0).ended
        except ConnectionResetError:  # so soon that connecting has not returned
            ended = "reset"
        assert ended in ("reset", "closed")
    assert server.counters().refused_connections == 1


def test_requests_beyond_the_capacity_are_answered_503(server: FaultServer) -> None:
    server.set_wire(WireModel(max_requests_per_s=5.0))
    with RawClient(server.endpoint_url) as client:
        statuses = []
        for _ in range(40):
            client.ask("/x")
            statuses.append(client.take_answer().status)
    assert statuses[:5] == [200] * 5
    assert 503 in statuses


def test_idle_connections_are_closed_in_their_time(server: FaultServer) -> None:
    server.set_wire(WireModel(keep_alive_s=0.5))
    with RawClient(server.endpoint_url) as client:
        client.ask("/x")
        client.take_answer()
        assert client.take(quiet_s=5.0).ended == "closed"


def test_all_connections_can_be_dropped(server: FaultServer) -> None:
    with RawClient(server.endpoint_url) as client:
        client.ask("/x")
        client.take_answer()
        server.drop_connections()
        assert client.take(quiet_s=5.0).ended in ("reset", "closed")


def test_what_is_no_request_is_answered_400(server: FaultServer) -> None:
    with RawClient(server.endpoint_url) as client:
        client.sock.sendall(b"nonsense\r\n\r\n")
        answer = client.take()
    assert (answer.status, answer.ended) == (400, "closed")


def test_the_log_tells_every_request(server: FaultServer) -> None:
    server.set_rules(Rule(Fault(truncate_at=10), times=1))
    with RawClient(server.endpoint_url) as client:
        client.ask("/x", headers=RANGE)
        client.take()
    with RawClient(server.endpoint_url) as client:
        client.ask("/x?query", method="HEAD")
        assert client.take_answer(has_body=False).one("Content-Length") == "1024"
        client.ask("/missing")
        client.take_answer()
    cut, head, missing = server.log()
    assert (cut.method, cut.kind, cut.name, cut.start, cut.stop) == ("GET", "get", "x", 100, 300)
    assert (cut.status, cut.nbytes, cut.fault, cut.finished) == (206, 10, "Fault(truncate_at=10)", True)
    assert (head.kind, head.start, head.nbytes, head.query) == ("head", None, 0, "query")
    assert (missing.status, missing.connection) == (404, head.connection)
    assert cut.connection != head.connection
    assert cut.headers["range"] == "bytes=100-299"
    counters = server.counters()
    assert counters.requests == {"get": 2, "head": 1}
    assert counters.statuses == {206: 1, 200: 1, 404: 1}
    assert (counters.all_requests, counters.faults, counters.connections) == (3, 1, 2)
    server.clear_log()
    assert server.log() == []
    assert server.counters().all_requests == 0


def test_the_log_tells_how_much_a_client_took_that_left_early(server: FaultServer) -> None:
    nbytes = 64 << 20
    server.put("huge", bytes(nbytes))
    with RawClient(server.endpoint_url) as client:
        client.ask("/huge")
        client.take_until(1 << 20)
    while server.counters().in_flight:  # the end of the connection arrives in its own time; pytest bounds it
        pass
    (seen,) = server.log()
    server.delete("huge")
    assert 1 << 20 <= seen.nbytes < nbytes
    assert not seen.finished


def test_rules_and_rates_out_of_range_are_refused_when_they_are_written() -> None:
    for mistake in (
        lambda: Fault(reset_at="end"),  # type: ignore[arg-type]
        lambda: Fault(truncate_at=-1),
        lambda: Fault(status=99),
        lambda: Fault(stall_s=-1.0),
        lambda: Rule(Fault(), probability=1.5),
        lambda: Rule(Fault(), every=0),
        lambda: WireModel(first_byte_s=-1.0),
        lambda: WireModel(bytes_per_s=0.0),
    ):
        with pytest.raises(PlanError):
            mistake()


def test_a_server_in_a_process_is_like_one_in_a_thread_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "file").write_bytes(LARGE)
    places: tuple[Literal["thread", "process"], ...] = ("thread", "process")
    for where in places:
        with leaves_nothing(), fault_server("s3", where=where, seed=3) as server:
            assert server.put("bucket/ä b", CONTENT) == "s3://bucket/ä b"
            assert server.put_folder("files", tmp_path) == 1
            server.set_rules(Rule(Fault(raw=b"\xff\x00", headers=(("A", "b"),)), key="files/*", times=1))
            assert fetch(server.endpoint_url, "/files/deep/file").data == b"\xff\x00"
            assert fetch(server.endpoint_url, "/files/deep/file").body == LARGE
            assert fetch(server.endpoint_url, "/bucket/%C3%A4%20b").body == CONTENT
            server.delete("bucket/ä b")
            assert fetch(server.endpoint_url, "/bucket/%C3%A4%20b").status == 404
            counters = server.counters()
            assert (counters.all_requests, counters.connections, counters.open_connections) == (4, 4, 0)
            assert [entry.name for entry in server.log()][-1] == "bucket/ä b"


def test_a_taken_port_is_an_error_at_once() -> None:
    with leaves_nothing(), fault_server("http") as server:
        port = int(server.endpoint_url.rpartition(":")[2])
        with pytest.raises(OSError, match="in use"), fault_server("http", port=port):
            pytest.fail("two servers on one port")


def test_a_server_with_answers_under_way_ends_at_once() -> None:
    with leaves_nothing():
        with fault_server("http") as server:
            server.put("x", CONTENT)
            server.set_rules(Rule(Fault(stall_at="middle")))
            client = RawClient(server.endpoint_url)
            client.ask("/x")
            client.take(nbytes=512)
        client.sock.close()
