"""Files for measuring memory: every format, compression and record size, written once for all cases that read them."""

from __future__ import annotations

import gzip
import lzma
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aiostream_data import _native
from aiostream_data.codecs.compressors import compressor

MIB = 1 << 20

FORMATS = ("text", "tfrecord", "fixed_length", "whole_file")

COMPRESSIONS = (
    "",
    "gzip",
    "zlib",
    "zstd",
    "zstd of one segment",
    "zstd with a large window",
    "bz2",
    "xz",
    "lz4",
    "snappy",
)


WINDOWS = {"zstd": 2 * MIB, "zstd of one segment": 128 * MIB, "zstd with a large window": 128 * MIB}
"""Bytes to which the input can refer, where the file is as long."""

LIMIT = 64 * MIB
TWICE = -1
"""Record size that stands for twice the memory limit."""

RECORD_SIZES = (0, 1, 100, MIB, TWICE)
OPEN = (1, 8, 64)


def case(folder: Path, format: str, compression: str, record_nbytes: int, open_at_once: int) -> dict[str, Any]:
    """Write the files of a case and return it, for ``growth_program.py``."""
    limit = LIMIT // 2 if format == "text" and record_nbytes == TWICE else LIMIT  # a line has at most 64 MiB
    size = 2 * limit - (format == "text") if record_nbytes == TWICE else record_nbytes
    file_nbytes = size if record_nbytes == TWICE else max(4 * MIB, 160 * MIB // open_at_once)
    names = [f"{format}-{compression or 'none'}-{nbytes}".replace(" ", "_") for nbytes in (size, 1)]
    file = write(folder / f"{names[0]}-{file_nbytes}", format, compression, size, file_nbytes)
    # What is read once before measuring: a few records of the same kind.
    small = size if format == "fixed_length" else 1
    warm = write(folder / f"{names[1]}-{small}", format, compression, small, 1000)
    copies = min(open_at_once + 2, 12) if record_nbytes == TWICE else 4 * open_at_once
    if format == "whole_file" and record_nbytes != TWICE:
        copies = max(2 * open_at_once, min(2000, 160 * MIB // max(1, size)))
    window = min(file_nbytes, WINDOWS.get(compression, 0))
    passes_alone = window if window > limit // 2 else 0
    large = size if size > limit else 0
    return {
        "format": format,
        "compression": compression.split()[0] if compression else "",
        "limit": limit,
        "cycle_length": open_at_once,
        "record_nbytes": size,
        "beside": passes_alone + large,
        "allowed": int(1.1 * limit) + passes_alone + large,
        "warm": warm,
        "file": file,
        "copies": copies,
    }


def record(format: str, nbytes: int, number: int) -> bytes:
    """Return one record with its framing."""
    content = (b"%07d" % (number % 10_000_000) * (nbytes // 7 + 1))[:nbytes]
    if format == "text":
        return content + b"\n"
    if format != "tfrecord":
        return content
    length = nbytes.to_bytes(8, "little")
    return b"".join(
        [
            length,
            _native.masked_crc32c(length).to_bytes(4, "little"),
            content,
            _native.masked_crc32c(content).to_bytes(4, "little"),
        ]
    )


def pieces(format: str, record_nbytes: int, nbytes: int) -> Iterator[bytes]:
    """Yield the bytes of a file of about ``nbytes`` bytes: equal runs of records, so that it compresses well."""
    one = record(format, record_nbytes, 1)
    if format == "whole_file" or len(one) >= MIB:
        for _ in range(1 if format == "whole_file" else max(1, nbytes // len(one))):
            yield one
        return
    at_once = max(1, MIB // max(1, len(one)))
    run = b"".join(record(format, record_nbytes, number) for number in range(at_once))
    for _ in range(max(1, -(-nbytes // len(run)))):
        yield run


def write(path: Path, format: str, compression: str, record_nbytes: int, nbytes: int) -> str:
    """Write a file unless it is there; return its path."""
    if path.exists():
        return str(path)
    made = path.with_suffix(".part")
    with open(made, "wb") as file:
        compressor = _compressor(compression)
        if compressor is None:
            file.write(compressed_at_once(compression, b"".join(pieces(format, record_nbytes, nbytes))))
        else:
            for piece in pieces(format, record_nbytes, nbytes):
                file.write(compressor.compress(piece))
            file.write(compressor.flush())
    made.rename(path)
    return str(path)


def _compressor(compression: str) -> Any:
    import zstandard

    match compression:
        case "gzip":
            return zlib.compressobj(1, wbits=31)
        case "zlib":
            return zlib.compressobj(1)
        case "zstd":
            return zstandard.ZstdCompressor().compressobj()
        case "bz2" | "lz4" | "snappy":
            return compressor(compression)
        case "xz":
            return lzma.LZMACompressor(preset=0)
        case "zstd with a large window":
            large = zstandard.ZstdCompressionParameters(window_log=27, hash_log=17, chain_log=17, strategy=1)
            return zstandard.ZstdCompressor(compression_params=large).compressobj()
    return None


def compressed_at_once(compression: str, data: bytes) -> bytes:
    import zstandard

    if compression == "zstd of one segment":
        return zstandard.ZstdCompressor(1).compress(data)
    return gzip.compress(data, 1) if compression == "gzip" else data
