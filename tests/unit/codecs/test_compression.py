"""Compressed streams: complete, concatenated, cut short, damaged, and malicious."""

from __future__ import annotations

import gzip
import random
import zlib
from contextlib import suppress

import pytest

from aiostream_data.codecs.compression import (
    COMPRESSIONS,
    MAX_STEP_NBYTES,
    Compression,
    canonical,
    decompressor,
    detect,
)
from aiostream_data.codecs.compressors import compressor
from aiostream_data.codecs.deflate import WINDOW_BITS
from aiostream_data.codecs.snappy_chunks import chunk_ends
from aiostream_data.errors import CorruptRecordError, PlanError

NAMES = COMPRESSIONS[1:]
TEXT = b"".join(b"line %d of some text\n" % i for i in range(20_000))


def compress(name: Compression, data: bytes) -> bytes:
    made = compressor(name)
    return made.compress(data) + made.flush()


def decompress(name: Compression, stream: bytes, step: int = 1 << 20) -> tuple[bytes, CorruptRecordError | None]:
    """Return everything that came out, and the error that ended it."""
    reader = decompressor(name, "memory://stream")
    out = bytearray()
    try:
        for at in range(0, len(stream), step):
            for block in reader.feed(memoryview(stream)[at : at + step]):
                assert len(block) <= MAX_STEP_NBYTES  # an empty one tells that more memory is about to be held
                out += block
        reader.finish()
    except CorruptRecordError as error:
        return bytes(out), error
    return bytes(out), None


@pytest.mark.parametrize("name", [*NAMES, ""])
@pytest.mark.parametrize("step", [1, 100, 1 << 20])
def test_what_was_compressed_comes_back(name: Compression, step: int) -> None:
    data = TEXT if step > 1 else TEXT[:5000]
    assert decompress(name, compress(name, data), step) == (data, None)


@pytest.mark.parametrize("name", NAMES)
def test_bomb_comes_in_bounded_steps(name: Compression) -> None:
    bomb = compress(name, bytes(40 << 20))
    assert len(bomb) < 2_000_000
    reader = decompressor(name, "memory://bomb")
    sizes = [len(block) for block in reader.feed(memoryview(bomb))]
    reader.finish()
    assert sum(sizes) == 40 << 20
    assert max(sizes) <= MAX_STEP_NBYTES


@pytest.mark.parametrize("name", NAMES)
def test_every_truncation_is_an_error_after_all_bytes_that_can_be_had(name: Compression) -> None:
    stream = compress(name, TEXT[:300])
    for nbytes in range(len(stream)):
        for step in (1, 1000):
            out, error = decompress(name, stream[:nbytes], step)
            assert TEXT.startswith(out)
            if name == "snappy" and nbytes in chunk_ends(stream):
                assert error is None
                continue
            assert error is not None
            assert "cut short" in error.reason
            assert error.offset == len(out)


@pytest.mark.parametrize("name", NAMES)
def test_damage_is_an_error_at_the_same_byte_however_the_stream_is_cut(name: Compression) -> None:
    random_bytes = random.Random(3).randbytes(3000)
    stream = bytearray(compress(name, random_bytes + TEXT[:3000]))
    for at in range(0, len(stream), 41):
        stream[at] ^= 0x04
        outcomes = {
            (out, error and error.offset) for out, error in (decompress(name, bytes(stream), n) for n in (1, 50, 9999))
        }
        stream[at] ^= 0x04
        assert len(outcomes) == 1, at


@pytest.mark.parametrize("name", ["gzip", "zlib"])
def test_damage_in_a_long_stream_is_found_at_the_byte_where_one_byte_at_a_time_finds_it(name: Compression) -> None:
    drawn = random.Random(4)
    stream = bytearray(compress(name, drawn.randbytes(150_000) + TEXT + drawn.randbytes(250_000)))
    for at in (5_000, 140_000, 151_000, len(stream) - 60_000, len(stream) - 100):
        stream[at] ^= 0x10
        oracle, expected = zlib.decompressobj(WINDOW_BITS[name]), bytearray()
        with suppress(zlib.error):
            for number in range(len(stream)):
                expected += oracle.decompress(stream[number : number + 1])
        for step in (1 << 20, 30_000):
            out, error = decompress(name, bytes(stream), step)
            assert out == expected
            assert error is not None
            assert error.offset == len(expected)
        stream[at] ^= 0x10


def test_short_gzip_members_behind_a_long_one_are_read() -> None:
    long = random.Random(5).randbytes(700_000)
    stream = gzip.compress(long) + gzip.compress(b"short") * 5_000 + gzip.compress(long)
    assert decompress("gzip", stream) == (long + b"short" * 5_000 + long, None)


def test_flipped_bit_in_checksummed_data_never_passes_as_complete() -> None:
    for name in NAMES:
        stream = bytearray(compress(name, TEXT[:200]))
        for at in range(len(stream)):
            stream[at] ^= 0x01
            out, error = decompress(name, bytes(stream))
            stream[at] ^= 0x01
            # gzip's header holds a few bits that mean nothing for the data (time, system, flags for text).
            assert error is not None or out == TEXT[:200], (name, at)


@pytest.mark.parametrize("step", [1, 10, 1000])
def test_gzip_members_are_read_through(step: int) -> None:
    stream = gzip.compress(b"one,") + gzip.compress(b"") + gzip.compress(b"two")
    assert decompress("gzip", stream, step) == (b"one,two", None)


def test_many_tiny_gzip_members_take_linear_time() -> None:
    stream = gzip.compress(b"") * 20_000
    assert decompress("gzip", stream) == (b"", None)


@pytest.mark.parametrize("step", [1, 1000])
def test_zero_padding_after_gzip_is_accepted(step: int) -> None:
    assert decompress("gzip", gzip.compress(b"data") + bytes(100), step) == (b"data", None)


@pytest.mark.parametrize("garbage", [b"x", b"\0\0x", b"\0" + gzip.compress(b"hidden", mtime=0), b"\x1f\x8c"])
@pytest.mark.parametrize("step", [1, 1000])
def test_garbage_after_gzip_is_an_error_at_the_end_of_the_data(garbage: bytes, step: int) -> None:
    out, error = decompress("gzip", gzip.compress(b"data") + garbage, step)
    assert out == b"data"
    assert error is not None
    assert error.offset == 4


def test_anything_after_a_zlib_stream_is_an_error() -> None:
    for tail in (b"\0", b"x", zlib.compress(b"more")):
        out, error = decompress("zlib", zlib.compress(b"data") + tail)
        assert out == b"data"
        assert error is not None
        assert "garbage" in error.reason


@pytest.mark.parametrize("step", [1, 1000])
def test_zstd_frames_and_skippable_frames_are_read_through(step: int) -> None:
    skippable = b"\x53\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"notes" + b"\x50\x2a\x4d\x18" + bytes(4)
    stream = skippable + compress("zstd", b"one,") + skippable + compress("zstd", b"") + compress("zstd", b"two")
    assert decompress("zstd", stream, step) == (b"one,two", None)


def test_zstd_frames_of_every_header_layout_are_read() -> None:
    zstandard = pytest.importorskip("zstandard")
    for size in (0, 1, 255, 256, 70_000, 300_000):
        data = random.Random(size).randbytes(size // 2) + bytes(size - size // 2)
        for checksum in (False, True):
            for content_size in (False, True):
                made = zstandard.ZstdCompressor(write_checksum=checksum, write_content_size=content_size)
                assert decompress("zstd", made.compress(data), 1000) == (data, None)


def zstd_frame(header: bytes, *blocks: bytes) -> bytes:
    """Return a frame without checksum, of blocks that are not compressed; ``header`` follows the magic number."""
    sizes = [
        (len(block) << 3 | (number == len(blocks) - 1)).to_bytes(3, "little") for number, block in enumerate(blocks)
    ]
    content = b"".join(size + block for size, block in zip(sizes, blocks, strict=True))
    return b"\x28\xb5\x2f\xfd" + header + content


def content_size_headers(nbytes: int) -> list[bytes]:
    """Return every header that declares a content size, with and without a window of its own."""
    window = b"\x58"
    headers = [single << 5 | flag << 6 for single in (0, 1) for flag in (1, 2, 3)]
    long = [(flags, (0, 2, 4, 8)[flags >> 6]) for flags in headers]
    made = [
        bytes([flags]) + (b"" if flags & 32 else window) + (nbytes - 256 * (size == 2)).to_bytes(size, "little")
        for flags, size in long
        if size > 2 or nbytes >= 256
    ]
    return made + ([bytes([32, nbytes])] if nbytes < 256 else [])


@pytest.mark.parametrize("step", [1, 1000])
@pytest.mark.parametrize("declared", [5, 255, 256, 300, 65_791])
def test_a_zstd_frame_that_holds_fewer_bytes_than_it_declares_is_damaged(declared: int, step: int) -> None:
    pytest.importorskip("zstandard")
    for header in content_size_headers(declared):
        for blocks in ([b""], [b"abc", b""], [b"ab", b"c", b""]):  # the library notices it where the last block is full
            out, error = decompress("zstd", zstd_frame(header, *blocks) + compress("zstd", b"next"), step)
            held = b"".join(blocks)
            assert out == held
            assert error is not None
            assert error.offset == len(held)
            assert f"a frame declares {declared} bytes and has {len(held)}" in error.reason
        out, error = decompress("zstd", zstd_frame(header, b"ab", b"c") + compress("zstd", b"next"), step)
        assert b"abc".startswith(out)
        assert error is not None


@pytest.mark.parametrize("step", [1, 1000])
def test_a_zstd_frame_gives_no_byte_beyond_what_it_declares(step: int) -> None:
    pytest.importorskip("zstandard")
    for header in content_size_headers(300):
        out, error = decompress("zstd", zstd_frame(header, bytes(200), bytes(200), b""), step)
        assert 200 <= len(out) <= 300
        assert error is not None


@pytest.mark.parametrize("step", [1, 1000])
def test_the_declared_size_of_a_zstd_frame_is_of_that_frame_alone(step: int) -> None:
    pytest.importorskip("zstandard")
    data = bytes(range(256)) * 2
    stream = b"".join(zstd_frame(header, data) for header in content_size_headers(len(data)))
    skippable = b"\x53\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"notes"
    unsized = zstd_frame(b"\x00\x58", b"abc")
    out, error = decompress("zstd", stream + skippable + unsized + stream, step)
    assert error is None
    assert out == data * 6 + b"abc" + data * 6


@pytest.mark.parametrize("step", [1, 1000])
@pytest.mark.parametrize(("place", "what"), [(-1, "length"), (-4, "length"), (-5, "data"), (-8, "data")])
def test_a_gzip_trailer_that_does_not_fit_is_damage(place: int, what: str, step: int) -> None:
    stream = bytearray(gzip.compress(TEXT[:300]))
    stream[place] ^= 0x40
    out, error = decompress("gzip", bytes(stream) + gzip.compress(b"next"), step)
    assert out == TEXT[:300]
    assert error is not None
    assert f"incorrect {what} check" in error.reason


@pytest.mark.parametrize("garbage", [b"x", bytes(1), bytes(4), bytes(100), b"\x28\xb5\x2f\xfe\0\0", b"\x28\xb5"])
@pytest.mark.parametrize("step", [1, 1000])
def test_anything_but_frames_after_a_zstd_stream_is_an_error(garbage: bytes, step: int) -> None:
    pytest.importorskip("zstandard")
    out, error = decompress("zstd", compress("zstd", b"data") + garbage, step)
    assert out == b"data"
    assert error is not None


def test_zstd_window_beyond_the_limit_is_refused() -> None:
    # magic, descriptor without content size, window descriptor of 2 GiB, one empty last block
    stream = b"\x28\xb5\x2f\xfd" + b"\x00" + bytes([21 << 3]) + b"\x01\x00\x00"
    _, error = decompress("zstd", stream)
    assert error is not None
    assert "zstd stream is damaged" in error.reason


@pytest.mark.parametrize("name", NAMES)
def test_compression_is_detected_from_the_first_bytes(name: Compression) -> None:
    assert detect(compress(name, TEXT)[:64]) == name
    assert detect(compress(name, b"")[:64]) == name


@pytest.mark.parametrize(
    "plain", [b"", b"\x1f", b"\x28\xb5", b"plain text", b"x^2 + y^2 is not a zlib stream", bytes(64)]
)
def test_plain_bytes_are_not_taken_for_compressed(plain: bytes) -> None:
    assert detect(plain) == ""


def test_names_of_compressions_are_checked() -> None:
    assert [canonical(name) for name in ("GZIP", "ZLIB", "zstd", "", "none")] == ["gzip", "zlib", "zstd", "", ""]
    with pytest.raises(PlanError, match="got 'lzma'"):
        canonical("lzma")


@pytest.mark.parametrize("name", NAMES)
def test_equal_data_compress_to_equal_bytes(name: Compression) -> None:
    assert compress(name, TEXT) == compress(name, TEXT)
