"""One connection: bodies land in the caller's buffer however they arrive, and nothing else ever does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiostream_data.storage.wire.answer_head import (
    MAX_FIELDS,
    MAX_HEAD_NBYTES,
    MAX_INTERIM,
    AnswerHead,
    MalformedAnswer,
)
from aiostream_data.storage.wire.connection import Connection
from aiostream_data.storage.wire.exchange import BodyPlan, BrokenAnswer, ReadPatience, SilentAnswer

BODY = bytes(range(256)) * 40
PATIENCE = ReadPatience(5.0, 5.0, 20.0)


class Wire:
    """Stands for the transport: keeps what is sent, and gives what the test says arrives."""

    def __init__(self) -> None:
        self.sent = bytearray()
        self.aborted = False
        self.connection = Connection()
        self.connection.connection_made(cast("asyncio.BaseTransport", self))

    def write(self, data: bytes) -> None:
        self.sent += data

    def abort(self) -> None:
        self.aborted = True

    def arrive(self, data: bytes, at_most: int = 1 << 20) -> None:
        """Give bytes as a loop does: as many as the connection has room for, at most so many at a time."""
        while data and not self.aborted:
            room = memoryview(self.connection.get_buffer(-1))
            assert len(room) > 0
            nbytes = min(len(room), len(data), at_most)
            room[:nbytes] = data[:nbytes]
            self.connection.buffer_updated(nbytes)
            data = data[nbytes:]

    def end(self, error: Exception | None = None) -> None:
        if error is None:
            self.connection.eof_received()
        self.connection.connection_lost(error)


def head(length: int | None, *lines: str, status: int = 206) -> bytes:
    told = [] if length is None else [f"content-length: {length}"]
    return "\r\n".join([f"HTTP/1.1 {status} x", *told, *lines, "", ""]).encode()


def run(case: Callable[[], Awaitable[Any]]) -> Any:
    return asyncio.run(asyncio.wait_for(case(), 10))


async def begun(wire: Wire, buffer: bytearray, *, skip: int = 0, whole: bool = True) -> asyncio.Task[AnswerHead]:
    request = wire.connection.get(b"GET", lambda _: BodyPlan(memoryview(buffer), skip, whole), PATIENCE)
    task = asyncio.ensure_future(request)
    await asyncio.sleep(0)
    assert not task.done()
    return task


@given(st.lists(st.integers(1, 3000), min_size=1), st.integers(0, 5000), st.integers(0, 2))
def test_a_body_is_the_same_however_it_arrives(sizes: list[int], nbytes: int, interim: int) -> None:
    async def main() -> None:
        wire = Wire()
        for _ in range(2):  # and the connection is as good as new after it
            buffer = bytearray(nbytes)
            task = await begun(wire, buffer)
            rest = b"HTTP/1.1 100 Continue\r\n\r\n" * interim + head(nbytes) + BODY[:nbytes]
            for size in sizes:
                wire.arrive(rest[:size])
                rest = rest[size:]
            wire.arrive(rest)
            assert (await task).status == 206
            assert buffer == BODY[:nbytes]
            assert wire.connection.usable

    run(main)


@given(st.integers(0, 300), st.integers(1, 300), st.integers(0, 300), st.integers(1, 200))
def test_what_nobody_wants_of_a_body_goes_nowhere(skip: int, nbytes: int, behind: int, at_most: int) -> None:
    async def main() -> None:
        wire = Wire()
        buffer = bytearray(nbytes)
        task = await begun(wire, buffer, skip=skip, whole=False)
        wire.arrive(head(skip + nbytes + behind, status=200) + BODY[: skip + nbytes + behind], at_most)
        await task
        assert buffer == BODY[skip : skip + nbytes]
        assert wire.aborted
        assert not wire.connection.usable

    run(main)


@pytest.mark.parametrize("nbytes", [0, 1, 9_999])
def test_a_body_that_breaks_off_says_how_much_of_it_is_there(nbytes: int) -> None:
    async def main() -> None:
        wire = Wire()
        buffer = bytearray(10_000)
        task = await begun(wire, buffer)
        wire.arrive(head(10_000) + BODY[:nbytes])
        wire.end(ConnectionResetError("reset"))
        with pytest.raises(BrokenAnswer, match="connection failed") as caught:
            await task
        assert caught.value.received == nbytes
        assert not caught.value.fresh
        assert buffer[:nbytes] == BODY[:nbytes]

    run(main)


def test_an_end_before_the_first_byte_is_told_apart() -> None:
    async def main() -> None:
        wire = Wire()
        task = await begun(wire, bytearray(10))
        wire.end()
        with pytest.raises(BrokenAnswer, match="closed") as caught:
            await task
        assert caught.value.fresh

    run(main)


@pytest.mark.parametrize(
    "answer",
    [
        head(None) + BODY[:11],
        head(11) + BODY[:11],
        head(9) + BODY[:9],
        b"SSH-2.0-OpenSSH_9.9\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.9\r\n",  # and nothing more: no time-out is waited for
        b"HTTP/1.1 200 x\nContent-Length: 10\n\n" + BODY[:10],
        b"HTTP/2 200\r\n",
        b"HTTP/1.1 200 x\r\nx: " + b"y" * MAX_HEAD_NBYTES,
        b"HTTP/1.1 200 x\r\n" + b"x:\r\n" * (MAX_FIELDS + 1) + b"\r\n",
        b"HTTP/1.1 100 x\r\n\r\n" * (MAX_INTERIM + 1),
    ],
)
def test_an_answer_that_cannot_be_trusted_ends_the_connection(answer: bytes) -> None:
    async def main() -> None:
        wire = Wire()
        task = await begun(wire, bytearray(10))
        wire.arrive(answer)
        with pytest.raises(MalformedAnswer):
            await task
        assert wire.aborted
        assert not wire.connection.usable

    run(main)


@pytest.mark.parametrize("told", ["connection: close", "x: y"])
def test_a_connection_is_used_again_only_where_the_server_says_so(told: str) -> None:
    async def main() -> None:
        wire = Wire()
        task = await begun(wire, bytearray(10))
        wire.arrive(head(10, told) + BODY[:10])
        await task
        assert wire.connection.usable == (told == "x: y")
        assert wire.aborted == (told != "x: y")

    run(main)


def test_what_comes_behind_a_body_is_left_out_and_the_connection_given_up() -> None:
    async def main() -> None:
        wire = Wire()
        buffer = bytearray(10)
        task = await begun(wire, buffer)
        wire.arrive(head(10) + BODY[:11])
        await task
        assert buffer == BODY[:10]
        assert wire.aborted
        assert not wire.connection.usable

    run(main)


def test_a_body_without_a_length_ends_with_the_connection() -> None:
    async def main() -> None:
        wire = Wire()
        buffer = bytearray(10)
        task = await begun(wire, buffer)
        wire.arrive(head(None) + BODY[:10])
        assert not task.done()
        wire.end()
        await task
        assert buffer == BODY[:10]
        short = Wire()
        task = await begun(short, bytearray(10))
        short.arrive(head(None) + BODY[:9])
        short.end()
        with pytest.raises(BrokenAnswer):
            await task

    run(main)


CHUNKED = head(None, "transfer-encoding: chunked", status=503) + b"5\r\n<Code\r\n1;x=y\r\n>\r\n0\r\n\r\n"


async def refused(wire: Wire, room: bytearray) -> asyncio.Task[AnswerHead]:
    plan = BodyPlan(memoryview(room), whole=False, partial=True)
    task = asyncio.ensure_future(wire.connection.get(b"GET", lambda _: plan, PATIENCE))
    await asyncio.sleep(0)
    return task


@pytest.mark.parametrize("at_most", [1, 7, 1000])
def test_a_body_in_chunks_ends_with_the_last_of_them_and_the_connection_goes_on(at_most: int) -> None:
    async def main() -> None:
        wire = Wire()
        for _ in range(2):
            room = bytearray(100)
            task = await refused(wire, room)
            wire.arrive(CHUNKED, at_most)
            assert (await task).framing == "chunked"
            raw = CHUNKED.partition(b"\r\n\r\n")[2]
            assert room[: wire.connection.received] == raw
            assert wire.connection.usable

    run(main)


@pytest.mark.parametrize("nbytes", [0, 3, 100, 101])
def test_of_a_body_without_a_known_end_as_much_is_kept_as_there_is_room_for(nbytes: int) -> None:
    async def main() -> None:
        for lines in ((), ("transfer-encoding: chunked",)):
            wire = Wire()
            room = bytearray(100)
            task = await refused(wire, room)
            wire.arrive(head(None, *lines, status=404) + (b"ff\r\n" + BODY)[:nbytes])
            if nbytes < 100:
                assert not task.done()
                wire.end()
            assert (await task).status == 404
            assert wire.connection.received == min(nbytes, 100) or nbytes > 100
            assert room[: min(nbytes, 100)] == (b"ff\r\n" + BODY)[: min(nbytes, 100)]
            assert not wire.connection.usable

    run(main)


def test_a_refusal_whose_words_are_cut_is_one_all_the_same() -> None:
    async def main() -> None:
        wire = Wire()
        room = bytearray(10)
        plan = BodyPlan(memoryview(room), partial=True)
        task = asyncio.ensure_future(wire.connection.get(b"GET", lambda _: plan, PATIENCE))
        await asyncio.sleep(0)
        wire.arrive(head(10, status=503) + BODY[:3])
        wire.end()
        assert (await task).status == 503
        assert room[: wire.connection.received] == BODY[:3]
        assert not wire.connection.usable

    run(main)


def test_chunks_that_are_none_and_chunks_that_are_reset_end_the_request() -> None:
    async def main() -> None:
        for rest, ends, kind in ((b"no size\r\n", False, MalformedAnswer), (b"5\r\nab", True, BrokenAnswer)):
            wire = Wire()
            task = await refused(wire, bytearray(100))
            wire.arrive(head(None, "transfer-encoding: chunked", status=503) + rest)
            if ends:
                wire.end(ConnectionResetError("reset"))
            with pytest.raises(kind):
                await task
            assert not wire.connection.usable

    run(main)


def test_bytes_that_answer_nothing_end_the_connection() -> None:
    async def main() -> None:
        wire = Wire()
        task = await begun(wire, bytearray(10))
        wire.arrive(head(10) + BODY[:10])
        await task
        wire.arrive(b"more")
        assert wire.aborted
        assert not wire.connection.usable

    run(main)


def test_after_a_cancellation_nothing_is_written_any_more() -> None:
    async def main() -> None:
        wire = Wire()
        buffer = bytearray(10)
        task = await begun(wire, buffer)
        wire.arrive(head(10) + BODY[:4])
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert wire.aborted
        wire.aborted = False  # a loop may still have bytes under way
        wire.arrive(BODY[4:10])
        assert buffer[4:] == bytes(6)

    run(main)


def test_what_the_caller_raises_on_a_head_is_raised_and_ends_the_connection() -> None:
    async def main() -> None:
        wire = Wire()

        def refuse(head: AnswerHead) -> BodyPlan:
            raise LookupError(head.status)

        task = asyncio.ensure_future(wire.connection.get(b"GET", refuse, PATIENCE))
        await asyncio.sleep(0)
        wire.arrive(head(3, status=404) + b"abc")
        with pytest.raises(LookupError, match="404"):
            await task
        assert not wire.connection.usable

    run(main)


@pytest.mark.parametrize(
    ("arrived", "patience", "told"),
    [
        (b"", ReadPatience(0.02, 9, 9), "first_byte_timeout"),
        (head(10)[:-6], ReadPatience(9, 0.02, 9), "read_timeout"),
        (head(10) + b"abc", ReadPatience(9, 0.02, 9), "read_timeout"),
        (head(10) + b"abc", ReadPatience(9, 9, 0.02), "total_timeout"),
    ],
)
def test_silence_ends_a_request_within_its_time_out(arrived: bytes, patience: ReadPatience, told: str) -> None:
    async def main() -> None:
        wire = Wire()
        if not arrived:  # the first timer runs for the first byte: later ones look at what has arrived
            request = wire.connection.get(b"GET", lambda _: BodyPlan(memoryview(bytearray(10))), patience)
        else:
            short = ReadPatience(min(0.01, patience.total_s), patience.idle_s, patience.total_s)
            request = wire.connection.get(b"GET", lambda _: BodyPlan(memoryview(bytearray(10))), short)
        task = asyncio.ensure_future(request)
        await asyncio.sleep(0)
        wire.arrive(arrived)
        with pytest.raises(SilentAnswer, match=told):
            await task
        assert wire.aborted

    run(main)
