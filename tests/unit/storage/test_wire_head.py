"""Heads of HTTP answers: what is correct is understood, and everything else is refused, never guessed at."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aiostream_data.storage.wire.answer_head import AnswerHead, MalformedAnswer, end_of_head, parse_head

TOKENS = st.text(
    "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", min_size=1, max_size=12
)
VALUES = st.text(st.characters(min_codepoint=0x21, max_codepoint=0xFF, exclude_characters="\x7f"), max_size=20)


def head(*lines: str, status: str = "HTTP/1.1 206 Partial Content") -> AnswerHead | None:
    return parse_head("\r\n".join([status, *lines, "", ""]).encode("latin-1"))


def final(*lines: str, status: str = "HTTP/1.1 206 Partial Content") -> AnswerHead:
    found = head(*lines, status=status)
    assert found is not None
    return found


def test_a_plain_answer_is_understood() -> None:
    found = final("Content-Length: 10", 'ETag:  "x y" \t', "X-Two: a", "x-two: b", "Empty:")
    assert found == AnswerHead(
        206, {"content-length": "10", "etag": '"x y"', "x-two": "a, b", "empty": ""}, "length", 10, keeps_alive=True
    )


@pytest.mark.parametrize(
    ("status", "code"),
    [("HTTP/1.1 200 OK", 200), ("HTTP/1.1 200 ", 200), ("HTTP/1.1 200", 200), ("HTTP/1.0 404 Nicht da \xfc", 404)],
)
def test_the_reason_may_be_anything_or_nothing(status: str, code: int) -> None:
    assert final("content-length: 0", status=status).status == code


@pytest.mark.parametrize(
    "status",
    [
        "HTTP/2 200 OK", "HTTP/1.2 200 OK", "http/1.1 200 OK", "HTTP/1.1  200 OK", "HTTP/1.1 20 OK", "HTTP/1.1 2000 OK",
        "HTTP/1.1 099 OK", "HTTP/1.1 2x0 OK",
        "HTTP/1.1 200 O\x00K", "HTTP/1.1 200\tOK", "", " HTTP/1.1 200 OK", "ICY 200 OK",
        "HTTP/1.1 \xb2\xb2\xb2 OK",
    ],
)  # fmt: skip
def test_a_wrong_status_line_is_refused(status: str) -> None:
    with pytest.raises(MalformedAnswer, match="malformed"):
        head("content-length: 0", status=status)


@pytest.mark.parametrize(
    "line",
    [
        "no colon", "space : x", " folded: x", "\tfolded", ": nameless", "na me: x",
        "a(b): x", "name: x\x00y", "name: x\ny: z",
        "name: x\ry", "name\x7f: x", "name: \x0b", "n\xe4me: x",
    ],
)  # fmt: skip
def test_a_wrong_header_is_refused(line: str) -> None:
    with pytest.raises(MalformedAnswer, match="malformed"):
        head("content-length: 0", line)


@pytest.mark.parametrize("length", ["-1", "+1", "1.0", "0x10", "1_0", "", "1, 2", "\xb2", "1" * 19, " 1 1"])
def test_a_length_that_is_no_number_is_refused(length: str) -> None:
    with pytest.raises(MalformedAnswer, match="Content-Length"):
        head(f"content-length: {length}")


def test_what_tells_two_things_at_once_is_refused() -> None:
    for lines in (
        ("content-length: 1", "content-length: 2"),
        ("content-length: 1", "transfer-encoding: chunked"),
        ("transfer-encoding: chunked", "transfer-encoding: chunked"),
        ("transfer-encoding: gzip, chunked",),
        ("content-range: bytes 0-1/2", "content-range: bytes 0-1/2"),
    ):
        with pytest.raises(MalformedAnswer):
            head(*lines)
    assert final("content-length: 1", "Content-Length: 1").length == 1


def test_how_the_end_of_the_body_is_told() -> None:
    assert final("content-length: 7").framing == "length"
    assert final("transfer-encoding: Chunked").framing == "chunked"
    assert final().framing == "close"
    assert final(status="HTTP/1.1 204 No Content").length == 0
    assert final("content-length: 9", status="HTTP/1.1 304 Not Modified").length == 0


@pytest.mark.parametrize(
    ("version", "connection", "keeps"),
    [
        ("1", None, True),
        ("1", "close", False),
        ("1", "Keep-Alive, Close", False),
        ("0", None, False),
        ("0", "keep-alive", True),
    ],
)
def test_whether_the_connection_may_be_used_again(version: str, connection: str | None, keeps: bool) -> None:
    lines = ["content-length: 0"] + ([] if connection is None else [f"connection: {connection}"])
    assert final(*lines, status=f"HTTP/1.{version} 200 OK").keeps_alive is keeps


def test_interim_answers_are_none_and_a_switch_of_protocols_is_refused() -> None:
    assert head(status="HTTP/1.1 100 Continue") is None
    assert head("link: x", status="HTTP/1.1 103 Early Hints") is None
    with pytest.raises(MalformedAnswer, match="protocol"):
        head(status="HTTP/1.1 101 Switching Protocols")


@given(st.dictionaries(TOKENS.map(str.lower), VALUES, max_size=8), st.data())
def test_headers_come_out_as_they_went_in(fields: dict[str, str], data: st.DataObject) -> None:
    for name in ("content-length", "transfer-encoding"):
        fields.pop(name, None)
    cased = {data.draw(st.sampled_from([name, name.upper(), name.title()])): value for name, value in fields.items()}
    spaces = {name: data.draw(st.text(" \t", max_size=2)) for name in cased}
    found = final(*(f"{name}:{spaces[name]}{value}" for name, value in cased.items()))
    assert found.headers == fields


@given(st.binary(max_size=200))
@example(b"HTTP/1.1 200 OK\r\n\r\n")
def test_whatever_arrives_is_understood_or_refused(data: bytes) -> None:
    whole = b"HTTP/1.1 200 OK\r\n" + data
    end = end_of_head(whole)
    if end < 0:
        return
    try:
        found = parse_head(whole[:end])
    except MalformedAnswer:
        return
    assert found is not None
    assert all(
        name == name.lower() and "\n" not in value and "\r" not in value for name, value in found.headers.items()
    )


@given(st.binary(max_size=40), st.integers(0, 60))
def test_the_end_of_a_head_is_found_wherever_the_search_goes_on(before: bytes, searched: int) -> None:
    data = before.replace(b"\r\n\r\n", b"") + b"\r\n\r\n" + b"body"
    end = data.index(b"\r\n\r\n") + 4
    assert end_of_head(data, min(searched, end - 1)) == end
    assert end_of_head(data[: end - 1]) == -1
