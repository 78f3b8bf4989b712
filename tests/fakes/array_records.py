"""ArrayRecord files with any content, also such as no library writes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import zstandard

from aiostream_data import _native

BLOCK = 1 << 16
BLOCK_HEADER = 24
KEY = (0x2F696C6567656952, 0x0A7364726F636572, 0x2F696C6567656952, 0x0A7364726F636572)
MAGIC = 0x71930E704FDAE05E
COMPRESSIONS = {"": b"\0", "zstd": b"z", "brotli": b"b", "snappy": b"s"}


def array_record(groups: Sequence[Sequence[bytes]], compression: str = "zstd") -> bytes:
    """Return a file with one chunk per group of records."""
    file = RiegeliFile()
    listed = [(file.add(chunk(group, compression)), sum(map(len, group)), len(group)) for group in groups]
    return file.ended(listed, compression)


def in_groups(records: Sequence[bytes], size: int) -> list[Sequence[bytes]]:
    """Return groups of ``size`` records."""
    return [records[start : start + size] for start in range(0, len(records), size)]


def chunk(records: Sequence[bytes], compression: str = "") -> bytes:
    """Return a chunk of records without the headers of blocks."""
    sizes = packed(b"".join(varint(len(record)) for record in records), compression)
    data = COMPRESSIONS[compression] + varint(len(sizes)) + sizes + packed(b"".join(records), compression)
    return with_header(data, "r", len(records), sum(map(len, records)))


def with_header(data: bytes, kind: str, records: int, nbytes: int) -> bytes:
    """Return a chunk with this data, and with the hashes that fit."""
    rest = number(len(data)) + hash_of(data) + kind.encode() + records.to_bytes(7, "little") + number(nbytes)
    return hash_of(rest) + rest + data


def packed(data: bytes, compression: str) -> bytes:
    """Return a part of a chunk."""
    if not compression:
        return data
    if compression == "zstd":
        return varint(len(data)) + zstandard.compress(data, 1)
    made: bytes = pa.Codec(compression).compress(data).to_pybytes()
    return varint(len(data)) + made


def hash_of(data: bytes) -> bytes:
    hashes = _native.highway_spans(np.frombuffer(data, np.uint8), np.array([0]), np.array([len(data)]), KEY)
    return number(int(hashes[0]))


def number(value: int) -> bytes:
    return value.to_bytes(8, "little")


def varint(value: int) -> bytes:
    made = bytearray()
    while value >= 0x80:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*made, value])


def message(*fields: int | bytes) -> bytes:
    """Return a message of protocol buffers with the fields 1, 2, ..."""
    made = b""
    for place, value in enumerate(fields, 1):
        is_text = isinstance(value, bytes)
        made += varint(8 * place + 2 * is_text) + (
            varint(len(value)) + value if isinstance(value, bytes) else varint(value)
        )
    return made


def write_far(path: Path, records: Sequence[bytes], gap: int) -> None:
    """Write a file with one chunk, which stands behind a hole of ``gap`` bytes."""
    start = BLOCK_HEADER + len(with_header(b"", "s", 0, 0))
    footer = chunk([message(message(1, 1, len(records))), message(gap, sum(map(len, records)), len(records))])
    with path.open("wb") as out:
        out.write(array_record([])[:start])
        for place, content in enumerate((chunk(records), footer, chunk([message(gap + BLOCK, MAGIC)]))):
            out.seek(gap + place * BLOCK)
            out.write(bytes(BLOCK_HEADER) + content)
        out.truncate(gap + 3 * BLOCK)


class RiegeliFile:
    """A file with the headers of blocks."""

    def __init__(self) -> None:
        self._made = bytearray()
        self.add(with_header(b"", "s", 0, 0))

    def add(self, content: bytes) -> int:
        """Write a chunk, and return its offset."""
        begin = len(self._made)
        end = _end(begin, len(content), int.from_bytes(content[25:32], "little"))
        while content:
            at = len(self._made)
            if at % BLOCK == 0:
                places = number(at - begin) + number(end - at)
                self._made += hash_of(places) + places
            room = BLOCK - len(self._made) % BLOCK
            self._made += content[:room]
            content = content[room:]
        self._made += bytes(end - len(self._made))
        return begin

    def pad(self) -> None:
        """Fill the block with a chunk without records."""
        begin = len(self._made)
        room = -begin % BLOCK
        if room:
            room += 0 if room >= 40 else BLOCK - BLOCK_HEADER
            self.add(with_header(bytes(room - 40), "p", 0, 0))

    def ended(self, listed: Sequence[tuple[Any, ...]], compression: str = "", **changes: int) -> bytes:
        """Return the file with a footer that lists chunks: their offsets, sizes and numbers of records.

        Args:
            changes: Other values for ``version``, ``chunks``, ``rows``, ``footer`` and ``magic``.
        """
        values = {"version": 1, "chunks": len(listed), "rows": sum(one[2] for one in listed), **changes}
        described = message(message(values["version"], values["chunks"], values["rows"]))
        footer = chunk([described, *(message(*one) for one in listed)], compression)
        return self.ended_by(footer, **{name: changes[name] for name in ("footer", "magic") if name in changes})

    def ended_by(self, content: bytes, footer: int | None = None, magic: int = MAGIC) -> bytes:
        """Return the file with this chunk as its footer, and with a postscript that names it."""
        place = self.add(content)
        self.pad()
        self.add(chunk([message(place if footer is None else footer, magic)] * 3))
        self.pad()
        return bytes(self._made)


def _end(begin: int, nbytes: int, records: int) -> int:
    """Return the offset after a chunk that begins at ``begin``, with the headers of blocks and with its padding."""
    end = (
        begin + nbytes + (nbytes + (begin + BLOCK - BLOCK_HEADER - 1) % BLOCK) // (BLOCK - BLOCK_HEADER) * BLOCK_HEADER
    )
    least = begin + records
    return max(end, least + max(0, -least % BLOCK - (BLOCK - BLOCK_HEADER - 1)))
