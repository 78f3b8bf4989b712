"""Streams of bz2, xz and lz4: several in one file, what may follow them, and the memory that they ask for."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from aiostream_data.codecs.compression import decompressor, detect
from aiostream_data.codecs.library_streams import UNIT_NBYTES, LibraryFormat, LibraryStreams
from aiostream_data.errors import CorruptRecordError

lz4: Any = pytest.importorskip("lz4.frame")

COMPRESS: dict[LibraryFormat, Callable[[bytes], bytes]] = {
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "lz4": lz4.compress,
}
NAMES = list(COMPRESS)


def read(name: LibraryFormat, stream: bytes, step: int = 1000) -> tuple[bytes, str]:
    """Return all output, and the reason of the error or ""."""
    reader = decompressor(name, "memory://stream")
    out, reason = b"", ""
    try:
        for at in range(0, len(stream), step):
            for piece in reader.feed(memoryview(stream)[at : at + step]):
                out += piece
        reader.finish()
    except CorruptRecordError as error:
        offset, reason = error.offset, error.reason
    assert not reason or offset == len(out)
    return out, reason


def xz_with_window(bits: int) -> bytes:
    """Return an xz stream whose block declares a window of another size."""
    stream = bytearray(lzma.compress(b"data"))
    header = 4 * stream[12] + 4
    stream[16] = bits
    stream[12 + header - 4 : 12 + header] = zlib.crc32(stream[12 : 12 + header - 4]).to_bytes(4, "little")
    return bytes(stream)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("step", [1, 1000])
def test_several_streams_are_one(name: LibraryFormat, step: int) -> None:
    compress = COMPRESS[name]
    assert read(name, compress(b"one,") + compress(b"") + compress(b"two"), step) == (b"one,two", "")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("garbage", [b"x", b"\xff" * 20])
def test_other_bytes_behind_a_stream_are_an_error(name: LibraryFormat, garbage: bytes) -> None:
    out, reason = read(name, COMPRESS[name](b"data") + garbage)
    assert out == b"data"
    assert "garbage" in reason


@pytest.mark.parametrize("name", NAMES)
def test_other_bytes_at_the_start_are_an_error(name: LibraryFormat) -> None:
    assert read(name, b"line 1\nline 2\n") == (b"", f"the {name} stream is damaged (it begins with other bytes)")


@pytest.mark.parametrize("name", NAMES)
def test_a_stream_is_detected_by_its_first_bytes(name: LibraryFormat) -> None:
    assert detect(COMPRESS[name](b"data" * 100)[:64]) == name
    assert detect(COMPRESS[name](b"")) == name


def test_zeros_may_follow_an_xz_stream() -> None:
    stream = lzma.compress(b"data") + bytes(4)
    assert read("xz", stream + bytes(8)) == (b"data", "")
    assert read("xz", stream + lzma.compress(b" and more"), 3) == (b"data and more", "")


def test_a_window_above_the_limit_is_refused_before_it_is_allocated() -> None:
    assert read("xz", xz_with_window(30)) == (b"data", "")
    out, reason = read("xz", xz_with_window(31))
    assert out == b""
    assert "needs a window of 201326592 bytes, and at most 134217728 bytes are allowed" in reason


@pytest.mark.parametrize("bits", [41, 0x7F])
def test_an_invalid_window_is_an_error(bits: int) -> None:
    assert "its header is invalid" in read("xz", xz_with_window(bits))[1]


@pytest.mark.parametrize("preset", [0, 6])
def test_a_later_block_may_not_need_more_memory_than_the_first(preset: int) -> None:
    small = lzma.compress(b"data" * 100, filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 4096}])
    large = lzma.compress(b"data" * 100, preset=preset)
    assert read("xz", small + large) == (b"data" * 200, "")  # another stream has a header of its own


@pytest.mark.parametrize("name", NAMES)
def test_memory_is_announced_before_it_is_taken(name: LibraryFormat) -> None:
    reader = LibraryStreams(name, "memory://stream")
    held = []
    for piece in reader.feed(memoryview(COMPRESS[name](bytes(1 << 20)))):
        held.append((len(piece), reader.held_nbytes))
    (nothing, announced), *others = held
    assert nothing == 0
    assert {nbytes for _, nbytes in others} == {announced}
    assert max(size for size, _ in others) == UNIT_NBYTES
    least = {"bz2": 3_600_000, "xz": 8 << 20, "lz4": 2 * (64 << 10)}
    assert least[name] < announced < 3 * least[name] + (1 << 20)


def test_an_lz4_frame_with_an_invalid_block_size_is_an_error() -> None:
    stream = bytearray(lz4.compress(b"data"))
    stream[5] = 0x30
    assert "invalid block size" in read("lz4", bytes(stream))[1]
