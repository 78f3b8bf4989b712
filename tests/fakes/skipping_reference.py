"""What is left of a damaged stream: by the shortest program that says it, and by the package in any blocks."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, NamedTuple

from aiostream_data._native.framing_py import masked_crc32c
from aiostream_data.formats.base import Format, Loss
from aiostream_data.formats.skipping_stream import SkippingStream
from aiostream_data.formats.stream import StreamStep
from aiostream_data.rows.columns import VarColumn
from aiostream_data.testing.formats import blocks_of


class Left(NamedTuple):
    """Records with their offsets, and what lies between them: (offset, bytes or None)."""

    records: list[Any]
    losses: list[tuple[int, int | None]]


class Reading:
    """Reads a stream with losses skipped; ``offsets`` are None where the stream cannot be read from there."""

    def __init__(self, description: Format, stream: bytes, compression: str = "", offset: int = 0) -> None:
        self.given: list[Any] = []
        self.offsets: list[int | None] = []
        self.losses: list[Loss] = []
        self._columns: list[VarColumn | None] = []
        step = StreamStep(nbytes=64, headroom_nbytes=16, rows=5)
        self.stream = SkippingStream(
            description, "memory://stream", compression, offset, step, report=self._lost, nbytes=len(stream)
        )
        self._bytes = stream[offset:]

    def _lost(self, loss: Loss) -> None:
        self.losses.append(loss)
        self._columns.append(None)

    def run(self, sizes: Iterable[int] = (), headroom: int = 0) -> Left:
        """Read everything in blocks of these sizes."""
        for block in blocks_of(self._bytes, sizes, headroom):
            for column in self.stream.feed(block, headroom):
                self._take(column)
        for column in self.stream.finish():
            self._take(column)
        # Only now, so that a framer that writes into columns it has given out is found out.
        records = [record for column in self._columns if column is not None for record in column.elements()]
        return Left(records, [loss[:2] for loss in self.losses])

    @property
    def order(self) -> str:
        """Records as r, losses as x, in the order in which they came."""
        return "".join("x" if column is None else "r" * len(column) for column in self._columns)

    def _take(self, column: VarColumn) -> None:
        self._columns.append(column)
        self.offsets += [self.stream.offset_of(int(start)) for start in column.starts]


def tfrecords(stream: bytes, verify: bool = True, most_nbytes: int = 1 << 30) -> Left:
    """Return what is left of a TFRecord stream."""

    def header(at: int) -> int | None:
        """Return where the record at a header ends, whether or not the stream has so many bytes."""
        if at + 12 > len(stream):
            return None
        length, checksum = struct.unpack_from("<QI", stream, at)
        is_good = masked_crc32c(stream[at : at + 8]) == checksum and length <= most_nbytes
        return at + 16 + int(length) if is_good else None

    def is_sound(at: int, end: int) -> bool:
        return masked_crc32c(stream[at + 12 : end - 4]) == int.from_bytes(stream[end - 4 : end], "little")

    def is_framed(end: int) -> bool:
        return end == len(stream) or header(end) is not None

    def is_found(at: int) -> bool:
        end = header(at)
        return end is not None and end <= len(stream) and (is_sound(at, end) or is_framed(end))

    left = Left([], [])
    at = 0
    while at < len(stream):
        end = header(at)
        if at + 12 > len(stream) or (end is not None and end > len(stream)):
            left.losses.append((at, None))
            break
        if end is not None and (not verify or is_sound(at, end)):
            left.records.append(stream[at + 12 : end - 4])
            at = end
        elif end is not None and is_framed(end):
            left.losses.append((at, end - at))
            at = end
        else:
            found = next((place for place in range(at + 1, len(stream)) if is_found(place)), None)
            left.losses.append((at, None if found is None else found - at))
            at = len(stream) if found is None else found
    return left


def lines(stream: bytes, encoding: str | None, most_nbytes: int) -> Left:
    """Return what is left of a stream of text."""
    left = Left([], [])
    at = 0
    while at < len(stream):
        newline = stream.find(b"\n", at)
        end = len(stream) if newline < 0 else newline + 1
        line = stream[at:end]
        if newline >= 0:
            line = line[:-1].removesuffix(b"\r")
        if at == 0 and encoding == "utf-8":
            line = line.removeprefix(b"\xef\xbb\xbf")
        try:
            record = line if encoding is None else line.decode(encoding)
            if len(line) > most_nbytes:
                left.losses.append((at, None if newline < 0 else end - at))
            elif line or newline >= 0:
                left.records.append(record)
        except UnicodeDecodeError:
            left.losses.append((at, None if newline < 0 else end - at))
        at = end
    return left
