"""zlib-ng and zlib decompress the same bytes, and find damage in the same places."""

from __future__ import annotations

import gzip
import random
import sys
import zlib
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiostream_data.codecs import deflate_stream
from aiostream_data.codecs.compression import decompressor
from aiostream_data.codecs.deflate import deflate_library
from aiostream_data.errors import CorruptRecordError

zlib_ng = pytest.importorskip("zlib_ng.zlib_ng")


def outcome(library: ModuleType, name: Any, stream: bytes, piece: int, step: int) -> tuple[bytes, str]:
    """Return all output, and the text of the error, which contains its offset. The text is empty without an error."""
    out = bytearray()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deflate_stream, "deflate_library", lambda: library)
        reader = decompressor(name, "memory://stream", step)
    try:
        for at in range(0, len(stream), piece):
            for part in reader.feed(memoryview(stream[at : at + piece])):
                out += part
        reader.finish()
    except CorruptRecordError as error:
        return bytes(out), str(error)
    return bytes(out), ""


@st.composite
def contents(draw: st.DrawFn) -> bytes:
    draws = random.Random(draw(st.integers(0, 1 << 32)))
    letters = draw(st.sampled_from([b"ab", b"0123456789,\n", bytes(range(256))]))
    words = [bytes(draws.choices(letters, k=draws.randint(1, 30))) for _ in range(20)]
    return b"".join(draws.choices(words, k=draw(st.integers(0, 3_000))))


@st.composite
def streams(draw: st.DrawFn) -> tuple[str, bytes]:
    name = draw(st.sampled_from(["gzip", "zlib"]))
    level = draw(st.integers(0, 9))
    content = draw(contents())
    if name == "zlib":
        return name, zlib.compress(content, level)
    members = [content] if draw(st.booleans()) else [content, draw(contents())]
    return name, b"".join(gzip.compress(each, level) for each in members)


@given(streams(), st.integers(1, 100_000), st.integers(100, 300_000))
def test_the_output_is_equal(made: tuple[str, bytes], piece: int, step: int) -> None:
    name, stream = made
    expected = outcome(zlib, name, stream, piece, step)
    assert expected[1] == ""
    assert outcome(zlib_ng, name, stream, piece, step) == expected


@given(streams(), st.data(), st.integers(1, 100_000), st.integers(100, 300_000))
def test_damage_is_found_behind_the_same_bytes(
    made: tuple[str, bytes], data: st.DataObject, piece: int, step: int
) -> None:
    name, stream = made
    at = data.draw(st.integers(0, len(stream) - 1))
    bit = data.draw(st.integers(0, 8))
    damaged = stream[:at] if bit == 8 else stream[:at] + bytes([stream[at] ^ 1 << bit]) + stream[at + 1 :]
    assert outcome(zlib_ng, name, damaged, piece, step) == outcome(zlib, name, damaged, piece, step)


def test_python_has_a_library_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    assert deflate_library() is zlib_ng
    for name in ("zlib_ng", "zlib_ng.zlib_ng"):
        monkeypatch.setitem(sys.modules, name, None)
    assert deflate_library.__wrapped__() is zlib
