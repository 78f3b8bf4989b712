"""A body of unknown size arrives complete however it is framed and cut, or the request fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiostream_data.storage.wire.answer_head import AnswerHead, MalformedAnswer
from aiostream_data.storage.wire.chunked import FIRST_NBYTES, MAX_LINE_NBYTES, ChunkedBody, OversizedBody
from aiostream_data.storage.wire.client import Unusual
from aiostream_data.storage.wire.connection import Connection
from aiostream_data.storage.wire.exchange import BrokenAnswer, ReadPatience
from aiostream_data.storage.wire.whole_body import WholeBody

LIMIT = 1 << 20
HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
CHUNKS = st.lists(st.binary(min_size=1, max_size=3000), max_size=5)
TRAILERS = st.sampled_from([b"", b"x-checksum: abc\r\n", b"a: b\r\nc: d\r\n"])


def framed(chunks: list[bytes], trailer: bytes = b"") -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n" + trailer + b"\r\n"


class Wire:
    """Stands for the transport of one connection."""

    def __init__(self) -> None:
        self.aborted = False
        self.connection = Connection()
        self.connection.connection_made(cast("asyncio.BaseTransport", self))

    def write(self, data: bytes) -> None:
        return

    def abort(self) -> None:
        self.aborted = True

    def arrive(self, data: bytes, at_most: int) -> None:
        while data and not self.aborted:
            room = memoryview(self.connection.get_buffer(-1))
            nbytes = min(len(room), len(data), at_most)
            room[:nbytes] = data[:nbytes]
            self.connection.buffer_updated(nbytes)
            data = data[nbytes:]

    async def asked(self, body: WholeBody) -> asyncio.Task[AnswerHead]:
        request = self.connection.get(b"GET", body.accept, ReadPatience(5.0, 5.0, 20.0))
        task = asyncio.ensure_future(request)
        await asyncio.sleep(0)
        return task


def run(case: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await asyncio.wait_for(case(), 10)

    asyncio.run(main())


@given(CHUNKS, TRAILERS, st.integers(1, 4000))
def test_a_chunked_body_is_the_same_however_it_arrives(chunks: list[bytes], trailer: bytes, at_most: int) -> None:
    async def case() -> None:
        wire = Wire()
        for _ in range(2):  # and the connection is as good as new after it
            body = WholeBody(LIMIT)
            task = await wire.asked(body)
            wire.arrive(HEAD + framed(chunks, trailer), at_most)
            await task
            assert body.content() == b"".join(chunks)
            assert wire.connection.usable

    run(case)


def test_a_body_larger_than_its_first_buffer_is_complete() -> None:
    async def case() -> None:
        wire, body = Wire(), WholeBody(LIMIT)
        chunks = [bytes([number]) * 50_000 for number in range(5 * FIRST_NBYTES // 50_000)]
        task = await wire.asked(body)
        wire.arrive(HEAD + framed(chunks), 1 << 20)
        await task
        assert body.content() == b"".join(chunks)

    run(case)


def test_a_chunked_body_that_breaks_off_anywhere_fails_its_request() -> None:
    whole = HEAD + framed([b"abc", b"d" * 20], b"x: y\r\n")

    async def case() -> None:
        for come in range(len(whole)):
            wire = Wire()
            task = await wire.asked(WholeBody(LIMIT))
            wire.arrive(whole[:come], 1 << 20)
            assert not task.done()
            wire.connection.eof_received()
            wire.connection.connection_lost(None)
            with pytest.raises(BrokenAnswer, match="closed the connection"):
                await task

    run(case)


def test_a_connection_with_bytes_after_the_body_is_not_used_again() -> None:
    async def case() -> None:
        wire, body = Wire(), WholeBody(LIMIT)
        task = await wire.asked(body)
        wire.arrive(HEAD + framed([b"abc"]) + b"more", 1 << 20)
        await task
        assert body.content() == b"abc"
        assert not wire.connection.usable

    run(case)


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (b"x\r\n", MalformedAnswer),
        (b"\r\n", MalformedAnswer),
        (b"-1\r\na", MalformedAnswer),
        (b"3\r\nabcd\r\n", MalformedAnswer),
        (b"1" * (MAX_LINE_NBYTES + 1), MalformedAnswer),
        (b"1;" + b"x" * MAX_LINE_NBYTES, MalformedAnswer),
        (b"0\r\n" + b"x: y\r\n" * MAX_LINE_NBYTES, MalformedAnswer),
        (b"80000000\r\n" + b"a" * LIMIT, OversizedBody),
        (b"1\r\na\r\n" * LIMIT, OversizedBody),
    ],
)
def test_a_chunked_body_that_is_wrong_or_endless_fails_its_request(raw: bytes, kind: type[Exception]) -> None:
    async def case() -> None:
        wire = Wire()
        task = await wire.asked(WholeBody(LIMIT))
        wire.arrive(HEAD + raw, 1 << 16)
        with pytest.raises(kind):
            await task
        assert wire.aborted

    run(case)


@given(st.integers(1, 50))
def test_memory_for_a_body_is_not_reserved_before_its_bytes_arrive(at_most: int) -> None:
    body, raw = ChunkedBody(LIMIT), b"7fffffff\r\n"
    while raw:
        room = body.room()[:at_most]
        taken, raw = raw[: len(room)], raw[len(room) :]
        room[: len(taken)] = taken
        body.took(len(taken))
    assert not body.is_complete
    assert len(body.room()) <= FIRST_NBYTES


def head(status: int = 200, length: int | None = 5) -> AnswerHead:
    return AnswerHead(status, {}, "close" if length is None else "length", length, keeps_alive=True)


def test_a_body_of_stated_length_needs_no_larger_buffer() -> None:
    body = WholeBody(5)
    plan = body.accept(head())
    plan.into[:] = b"abcde"
    assert body.content() == b"abcde"
    with pytest.raises(OversizedBody, match="larger than 5 bytes"):
        body.accept(head(length=6))


@pytest.mark.parametrize("answer", [head(206), head(length=None)])
def test_an_unusual_answer_is_left_to_the_library(answer: AnswerHead) -> None:
    with pytest.raises(Unusual):
        WholeBody(5).accept(answer)
