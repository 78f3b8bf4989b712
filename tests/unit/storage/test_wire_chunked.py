"""Chunks are joined however they arrive, their end is found, and what is none is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiostream_data.storage.wire.answer_head import MalformedAnswer
from aiostream_data.storage.wire.chunked import read_chunks

TRAILERS = st.sampled_from([b"", b"x-checksum: abc\r\n", b"a: b\r\nc: d\r\n"])


def framed(chunks: list[bytes], trailer: bytes = b"") -> bytes:
    sizes = (b"%X;name=value" % len(chunk) if number % 2 else b"%x" % len(chunk) for number, chunk in enumerate(chunks))
    lines = b"".join(size + b"\r\n" + chunk + b"\r\n" for size, chunk in zip(sizes, chunks, strict=True))
    return lines + b"0\r\n" + trailer + b"\r\n"


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=5), TRAILERS, st.binary(max_size=5))
def test_the_end_is_found_where_it_is_and_not_before(chunks: list[bytes], trailer: bytes, behind: bytes) -> None:
    raw, body = framed(chunks, trailer), b"".join(chunks)
    assert read_chunks(raw + behind) == (body, len(raw))
    for come in range(len(raw)):
        found = read_chunks(raw[:come])
        assert found.end is None
        assert body.startswith(found.body)


@pytest.mark.parametrize(
    "raw", [b"\r\n", b"x\r\n", b"-1\r\na", b"1" * 9 + b"\r\n", b"3\r\nabcd\r\n", b"3\nabc", b"1\r\na\n", b" 1\r\na\r\n"]
)
def test_what_is_no_chunk_is_refused(raw: bytes) -> None:
    with pytest.raises(MalformedAnswer, match="chunk"):
        read_chunks(raw)
