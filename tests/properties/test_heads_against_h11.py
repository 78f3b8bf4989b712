"""Heads of answers, right, odd and damaged, beside h11: what it refuses we refuse, what both take means the same.

We may refuse more than h11 does, which forgives bare line feeds, folded lines, a length beside a transfer coding and
control characters: a loader asks again, or lets aiohttp read, and takes nothing doubtful for data.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

import h11
from h11._connection import _body_framing, _keep_alive
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aiostream_data.storage.wire.answer_head import (
    AnswerHead,
    MalformedAnswer,
    check_beginning,
    end_of_head,
    parse_head,
)

REQUEST: Final = h11.Request(method="GET", target="/", headers=[("host", "x")])
LIMIT_NBYTES: Final = 1 << 20


@dataclass(frozen=True)
class Meaning:
    """What a head says, as far as both of them say it."""

    status: int
    headers: dict[str, str]
    framing: str
    length: int | None
    keeps_alive: bool


Verdict = Meaning | Literal["refused", "interim"]

STATUS_LINES = st.sampled_from(
    [
        b"HTTP/1.1 206 Partial Content", b"HTTP/1.1 200 OK", b"HTTP/1.0 200 OK", b"HTTP/1.1 204 No Content",
        b"HTTP/1.1 304 Not Modified", b"HTTP/1.1 100 Continue", b"HTTP/1.1 103 Early Hints", b"HTTP/1.1 503",
        b"HTTP/1.1 200 ", b"HTTP/1.1 404 Nicht \xfc", b"HTTP/1.1 099 Low", b"HTTP/1.1 20 Short", b"HTTP/1.1 2000 Long",
        b"HTTP/2 200", b"HTTP/1.1  200 OK", b"ICY 200 OK", b"", b"HTTP/1.1 200 a\x00b", b" HTTP/1.1 200 OK",
    ]
)  # fmt: skip
NAMES = st.sampled_from(
    [
        b"Content-Length", b"content-length", b"Transfer-Encoding", b"Connection", b"Content-Range", b"ETag", b"X-A",
        b"x-a", b"Content-Length ", b" Content-Length", b"", b"na me", b"n\xe4me", b"a\x00b", b"x:y", b"Content_Length",
    ]
)  # fmt: skip
VALUES = st.sampled_from(
    [
        b"10", b"0", b"7", b"+7", b"-7", b"7, 7", b"7,8", b"0x7", b"7 7", b"1" * 18, b"1" * 30, b"\xb2", b"chunked",
        b"Chunked", b"gzip, chunked", b"identity", b"close", b"Keep-Alive", b"keep-alive, close", b"bytes 0-9/10",
        b'"etag"', b"", b"a\tb", b"a\x00b", b"a\rb", b"a\x7fb", b"a\x0bb", b"\xff\xfe", b"a\nb", b"a\r\n folded",
        b"a\r\n\tfolded",
    ]
)  # fmt: skip
ENDS = st.sampled_from([b"\r\n"] * 12 + [b"\n", b"\r", b"\r\r\n", b"\n\n"])
SPACES = st.sampled_from([b" ", b"", b"\t", b"  "])


@st.composite
def heads(draw: st.DrawFn) -> bytes:
    """Return a head of likely and unlikely parts, then with a few bytes of it changed."""
    lines = [draw(STATUS_LINES)]
    for _ in range(draw(st.integers(0, 6))):
        lines.append(draw(NAMES) + b":" + draw(SPACES) + draw(VALUES) + draw(SPACES))
    data = bytearray(b"".join(line + draw(ENDS) for line in lines) + b"\r\n")
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2, 5]))):
        place = draw(st.integers(0, len(data)))
        what = draw(st.sampled_from([b"\r", b"\n", b"\x00", b":", b" ", b"\t", b"\x80", b"0", b"\r\n", b"\r\n ", b","]))
        data[place : place + draw(st.integers(0, 2))] = what
    if end_of_head(data) < 0:
        data += b"\r\n\r\n"
    return bytes(data)


def ours(data: bytes) -> Verdict:
    try:
        found: AnswerHead | None = parse_head(data[: end_of_head(data)])
    except MalformedAnswer:
        return "refused"
    if found is None:
        return "interim"
    return Meaning(found.status, found.headers, found.framing, found.length, found.keeps_alive)


def by_h11(data: bytes) -> Verdict:
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=LIMIT_NBYTES)
    connection.send(REQUEST)
    connection.send(h11.EndOfMessage())
    connection.receive_data(data)
    try:
        event = connection.next_event()
    except h11.RemoteProtocolError:
        return "refused"
    if isinstance(event, h11.InformationalResponse):
        return "interim"
    assert isinstance(event, h11.Response)
    framing, arguments = _body_framing(b"GET", event)
    told = {"content-length": "length", "chunked": "chunked", "http/1.0": "close"}[framing]
    headers: dict[str, str] = {}
    for name, value in event.headers:
        key, text = name.decode("ascii"), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    keeps = bool(_keep_alive(event))
    return Meaning(event.status_code, headers, told, arguments[0] if arguments else None, keeps)


def told_by(meaning: Meaning) -> dict[str, str]:
    """Return the headers, the transfer coding in lower case, as h11 gives it."""
    coding = meaning.headers.get("transfer-encoding")
    return meaning.headers if coding is None else {**meaning.headers, "transfer-encoding": coding.lower()}


@settings(max_examples=400, deadline=None)
@given(heads())
@example(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\nContent-Length: 7\r\n\r\n")
@example(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
@example(b"HTTP/1.1 204 No Content\r\nContent-Length: 7\r\n\r\n")
@example(b"HTTP/1.1 204 No Content\r\nContent-Length: +7\r\n\r\n")
@example(b"HTTP/1.1 100 Continue\r\nContent-Length: +7\r\n\r\n")
@example(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 7, 8\r\n\r\n")
@example(b"HTTP/1.1 206 Partial Content\r\nTransfer-Encoding: Chunked \r\n\r\n")
def test_what_h11_refuses_we_refuse_and_what_both_take_means_the_same(data: bytes) -> None:
    mine, theirs = ours(data), by_h11(data)
    if theirs == "refused":
        assert mine == "refused"
    elif mine != "refused":
        assert isinstance(mine, Meaning) == isinstance(theirs, Meaning)
        if isinstance(mine, Meaning) and isinstance(theirs, Meaning):
            assert (mine.status, mine.framing, mine.length) == (theirs.status, theirs.framing, theirs.length)
            assert told_by(mine) == told_by(theirs)
            assert mine.keeps_alive <= (theirs.keeps_alive or data.startswith(b"HTTP/1.0"))


@given(heads(), st.data())
def test_no_beginning_of_a_head_that_is_taken_is_refused(data: bytes, draw: st.DataObject) -> None:
    head = data[: end_of_head(data)]
    if ours(data) != "refused":
        check_beginning(head[: draw.draw(st.integers(0, len(head)))])


TOKENS = st.from_regex(re.compile(r"x-[a-z0-9!#$%&'*+.^_`|~-]{1,12}"), fullmatch=True)
TEXTS = st.from_regex(re.compile(r"([!-~]([ -~]{0,20}[!-~])?)?"), fullmatch=True)


@given(
    st.sampled_from([200, 206, 404, 503]),
    st.dictionaries(TOKENS, TEXTS, max_size=20),
    st.one_of(
        st.integers(0, 1 << 50).map(lambda nbytes: {"content-length": str(nbytes)}),
        st.just({"transfer-encoding": "chunked"}),
        st.just({}),
    ),
    st.sampled_from([{}, {"connection": "close"}, {"connection": "keep-alive"}]),
)
def test_a_head_that_follows_the_rules_is_taken_by_both(
    status: int, others: dict[str, str], framing: dict[str, str], connection: dict[str, str]
) -> None:
    fields = {**others, **framing, **connection}
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    data = f"HTTP/1.1 {status} Reason\r\n{lines}\r\n".encode("latin-1")
    mine = ours(data)
    assert isinstance(mine, Meaning)
    assert mine == by_h11(data)
