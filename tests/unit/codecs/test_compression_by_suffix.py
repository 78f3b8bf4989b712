"""Objects too short to show their compression: what their names say, and what their bytes can be the beginning of."""

from __future__ import annotations

import gzip
import zlib

import pytest

from aiostream_data.codecs.compression import COMPRESSIONS, Compression
from aiostream_data.codecs.compression_by_suffix import Evidence, by_name, chosen, may_begin, suffix_of
from aiostream_data.codecs.compressors import compressor

NAMES = COMPRESSIONS[1:]


@pytest.mark.parametrize(
    ("url", "suffix"),
    [
        ("part.gz", "gz"),
        ("/data.d/PART.TXT.GZ", "gz"),
        ("s3://bucket/a?b.zst", "zst"),
        ("s3://bucket/a.gz#1", "gz#1"),
        ("https://host/x.gz?sig=a.b/c.txt#at.zst", "gz"),
        ("https://host.gz/x", ""),
        ("/folder.gz/x", ""),
        (".gz", ""),
        ("/folder/.gz", ""),
        ("part.0003", ""),
        ("part", ""),
        ("part.", ""),
        ("", ""),
    ],
)
def test_the_suffix_of_a_url_is_that_of_its_last_part(url: str, suffix: str) -> None:
    assert suffix_of(url) == suffix


@pytest.mark.parametrize(
    ("suffix", "compression"),
    [
        ("gz", "gzip"),
        ("GZip", "gzip"),
        ("tgz", "gzip"),
        ("zst", "zstd"),
        ("zstd", "zstd"),
        ("zz", "zlib"),
        ("zlib", "zlib"),
    ],
)
def test_usual_suffixes_name_a_compression(suffix: str, compression: str) -> None:
    named = by_name(f"memory://part.{suffix}")
    assert named is not None
    assert named.compression == compression
    assert f".{suffix.lower()}" in named.reason


@pytest.mark.parametrize("url", ["x.txt", "x.tfrecord", "x.csv", "gz", "x.gz.txt", "x.7z"])
def test_other_suffixes_name_none(url: str) -> None:
    assert by_name(url) is None


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("data", [b"", b"some text\n" * 50])
def test_every_first_bytes_of_a_stream_may_begin_it(name: Compression, data: bytes) -> None:
    made = compressor(name)
    stream = made.compress(data) + made.flush()
    assert all(may_begin(name, stream[:nbytes]) for nbytes in range(min(65, len(stream)) + 1))


def test_streams_of_every_level_and_skippable_frames_may_begin_like_their_first_bytes() -> None:
    for level in range(10):
        for nbytes in range(20):
            assert may_begin("zlib", zlib.compress(b"some text", level)[:nbytes])
            assert may_begin("gzip", gzip.compress(b"some text", level)[:nbytes])
    for number in range(16):
        skippable = bytes([0x50 + number]) + b"\x2a\x4d\x18" + bytes(4)
        assert all(may_begin("zstd", skippable[:nbytes]) for nbytes in range(9))


@pytest.mark.parametrize("first", [b"a", b"\x1f\x8c", b"\x28\xb6", b"hello\n", b"x\x9d", b"\x50\x2a\x4d\x19"])
@pytest.mark.parametrize("name", [*NAMES, ""])
def test_other_bytes_begin_no_stream(name: Compression, first: bytes) -> None:
    assert not may_begin(name, first)


def test_evidence_that_the_bytes_contradict_is_passed_over() -> None:
    says_gzip, says_zstd = Evidence("gzip", "its name"), Evidence("zstd", "its siblings")
    assert chosen((says_gzip, None, says_zstd), b"") == says_gzip
    assert chosen((says_gzip, None, says_zstd), b"\x28") == says_zstd
    assert chosen((says_gzip, None, says_zstd), b"text") is None
