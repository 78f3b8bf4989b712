"""Streams of the snappy framing format: their chunks, checksums and limits."""

from __future__ import annotations

import random
import tracemalloc
from typing import Any

import pytest

from aiostream_data import _native
from aiostream_data.codecs.compression import decompressor, detect
from aiostream_data.codecs.compressors import compressor
from aiostream_data.codecs.snappy_chunks import IDENTIFIER, MOST_OUTPUT_NBYTES
from aiostream_data.errors import CorruptRecordError, MissingExtraError

cramjam: Any = pytest.importorskip("cramjam")

NOISE = random.Random(1).randbytes(100_000)
TEXT = b"".join(b"line %d\n" % number for number in range(20_000))


def chunk(kind: int, body: bytes) -> bytes:
    return bytes([kind]) + len(body).to_bytes(3, "little") + body


def checked(kind: int, data: bytes, body: bytes) -> bytes:
    return chunk(kind, _native.masked_crc32c(data).to_bytes(4, "little") + body)


def read(stream: bytes, step: int = 1000) -> tuple[bytes, str]:
    """Return all output, and the reason of the error or ""."""
    reader = decompressor("snappy", "memory://stream")
    out, reason = b"", ""
    try:
        for at in range(0, len(stream), step):
            for piece in reader.feed(memoryview(stream)[at : at + step]):
                assert 0 < len(piece) <= MOST_OUTPUT_NBYTES
                out += piece
        reader.finish()
    except CorruptRecordError as error:
        offset, reason = error.offset, error.reason
    assert not reason or offset == len(out)
    return out, reason


def own(data: bytes) -> bytes:
    made = compressor("snappy")
    return made.compress(data[:70_001]) + made.compress(data[70_001:]) + made.flush()


@pytest.mark.parametrize("data", [b"", b"x", NOISE, TEXT], ids=["nothing", "one", "noise", "text"])
def test_streams_of_the_library_and_of_this_package_are_read_by_both(data: bytes) -> None:
    assert bytes(cramjam.snappy.decompress(own(data))) == data
    for stream in (own(data), bytes(cramjam.snappy.compress(data)) or IDENTIFIER):  # alone, the library writes none
        assert read(stream) == read(stream, 77) == read(stream, len(stream)) == (data, "")


def test_several_streams_are_one_and_padding_is_skipped() -> None:
    stream = own(b"one,") + chunk(0xFE, bytes(100)) + own(b"") + chunk(0xFE, b"") + chunk(0xFE, NOISE) + own(b"two")
    assert read(stream, 1) == read(stream) == (b"one,two", "")


def test_a_stream_is_detected_by_its_first_bytes() -> None:
    assert detect(own(TEXT)[:64]) == detect(IDENTIFIER) == "snappy"
    assert detect(b"\xff\x06\x00\x00sNaPpX") == ""
    assert read(b"line 1\n") == (b"", "the snappy stream is damaged (it begins with other bytes)")


def test_a_stream_cut_at_any_byte_gives_its_complete_chunks() -> None:
    parts = [b"first", b"second" * 9, b"third"]
    chunks = [own(part)[len(IDENTIFIER) :] for part in parts]
    stream = IDENTIFIER + b"".join(chunks)
    ends = {len(IDENTIFIER) + sum(map(len, chunks[:number])): b"".join(parts[:number]) for number in range(4)}
    for nbytes in range(len(stream) + 1):
        whole = [out for end, out in ends.items() if end <= nbytes]
        expected = whole[-1] if whole else b""
        reason = "" if nbytes in ends else "the snappy stream is cut short"
        assert read(stream[:nbytes], 3) == (expected, reason)


def test_a_flipped_bit_anywhere_behind_the_identifier_loses_its_chunk_and_no_other() -> None:
    first = own(b"sound")
    damaged = own(b"abcabcabcabcabcabc")[len(IDENTIFIER) :]
    for at in range(len(damaged)):
        for bit in range(8):
            stream = bytearray(damaged)
            stream[at] ^= 1 << bit
            out, reason = read(first + bytes(stream))
            assert out == b"sound"
            assert reason


@pytest.mark.parametrize("kind", [0, 1])
def test_a_wrong_checksum_is_an_error(kind: int) -> None:
    body = b"data" if kind else bytes(cramjam.snappy.compress_raw(b"data"))
    sound = IDENTIFIER + checked(kind, b"data", body)
    assert read(sound) == (b"data", "")
    assert "checksum of a chunk does not match" in read(IDENTIFIER + checked(kind, b"date", body))[1]


@pytest.mark.parametrize("kind", [0x02, 0x7F, 0x80, 0xFD])
def test_a_reserved_chunk_is_an_error(kind: int) -> None:
    assert f"reserved type 0x{kind:02x}" in read(own(b"data") + bytes([kind]))[1]


@pytest.mark.parametrize("nbytes", [0, 3, 76_496, (1 << 24) - 1])
@pytest.mark.parametrize("kind", [0, 1])
def test_an_invalid_length_is_an_error_once_it_has_arrived(kind: int, nbytes: int) -> None:
    out, reason = read(own(b"data") + bytes([kind]) + nbytes.to_bytes(3, "little"))
    assert out == b"data"
    assert f"a chunk declares {nbytes} bytes" in reason


def test_a_chunk_of_more_output_than_allowed_is_refused_before_its_allocation() -> None:
    bomb = b"\xff\xff\xff\xff\x0f" + NOISE[:100]  # declares 4 GiB
    tracemalloc.start()
    try:
        assert "declares 4294967295 decompressed bytes" in read(IDENTIFIER + checked(0, b"", bomb))[1]
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    most = bytes(MOST_OUTPUT_NBYTES)
    assert read(IDENTIFIER + checked(1, most, most)) == (most, "")
    assert "declares 65537 decompressed" in read(IDENTIFIER + checked(1, most + b"\0", most + b"\0"))[1]
    large = bytes(cramjam.snappy.compress_raw(most + b"\0"))
    assert "declares 65537 decompressed" in read(IDENTIFIER + checked(0, most + b"\0", large))[1]


@pytest.mark.parametrize("body", [b"", b"\xff\xff\xff\xff\xff\xff", b"\x0a\x00", b"\x04\xf0"])
def test_invalid_snappy_data_is_an_error(body: bytes) -> None:
    out, reason = read(IDENTIFIER + checked(0, b"x", body))
    assert out == b""
    assert reason.startswith("the snappy stream is damaged (")


@pytest.mark.parametrize("identifier", [chunk(0xFF, b"sNaPpX"), chunk(0xFF, b"sNaPpYY"), chunk(0xFF, b"")])
def test_a_later_identifier_must_be_valid(identifier: bytes) -> None:
    assert "a stream identifier is invalid" in read(own(b"data") + identifier)[1]


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cramjam", None)
    with pytest.raises(MissingExtraError, match=r"aiostream-data\[snappy\]"):
        decompressor("snappy", "memory://stream")
    with pytest.raises(MissingExtraError, match=r"aiostream-data\[snappy\]"):
        compressor("snappy")
