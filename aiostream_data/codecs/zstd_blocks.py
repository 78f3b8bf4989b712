"""Split a zstd stream at the ends of its blocks, to limit the output of each decompression step.

The Python binding of zstd does not limit the output of one call, so a small input could exhaust the memory. A zstd
block decompresses to at most 128 KiB. This module therefore parses the block headers (RFC 8878, section 3.1) and splits
the stream where blocks end. The zstd library decompresses the resulting pieces.

The parser is a state machine that reads *fields* of known length. The handler function of each field selects the next
field. If the input ends inside a field, the parser buffers the partial field. The parser returns block contents as they
arrive, without buffering.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from aiostream_data.errors import AiostreamError

MAX_BLOCK_NBYTES = 128 << 10
_FRAME_MAGIC = 0xFD2FB528
_SKIPPABLE_MAGIC = 0x184D2A50
_DICTIONARY_ID_NBYTES = (0, 1, 2, 4)
_CONTENT_SIZE_NBYTES = (0, 2, 4, 8)


class ZstdFormatError(AiostreamError, ValueError):
    """The input is not a valid zstd stream."""


class ZstdPiece(NamedTuple):
    """Bytes of one zstd frame, with at most one block.

    Attributes:
        data: Compressed bytes for the decompressor.
        ends_frame: True if the zstd frame ends with this piece.
        begins_frame: True if this piece is a complete frame header and nothing else.
    """

    data: bytes
    ends_frame: bool
    begins_frame: bool = False


class BlockWalker:
    """Incremental parser of the structure of a zstd stream.

    Attributes:
        frames: Number of zstd frames that have begun, including skippable frames.
        content_nbytes: Decompressed size declared in the header of the latest frame, or None.
        window_nbytes: Window size of the latest frame: the maximum distance from which the frame can copy previous
            output.
    """

    def __init__(self) -> None:
        self.frames = 0
        self.content_nbytes: int | None = None
        self.window_nbytes = 0
        self._single_segment = False
        self._gathered = bytearray()
        self._header = b""  # received part of the frame header
        self._remaining = 4
        self._handle: Callable[[bytes], ZstdPiece | None] | None = self._magic
        self._in_frame = False
        self._has_checksum = False
        self._content_size_nbytes = 0
        self._last_block = False
        self._skipping = False

    @property
    def at_frame_boundary(self) -> bool:
        """True if the zstd stream may end after the input received so far."""
        return not self._in_frame and not self._gathered

    def feed(self, data: memoryview) -> Iterator[ZstdPiece]:
        """Yield, in order, the pieces that ``data`` (uint8) completes.

        Raises:
            ZstdFormatError: A frame header or block header is invalid.
        """
        at = 0
        while at < len(data):
            part = bytes(data[at : at + self._remaining])
            at += len(part)
            self._remaining -= len(part)
            piece = self._content(part) if self._handle is None else self._field(part)
            if piece is not None:
                yield piece

    def _field(self, part: bytes) -> ZstdPiece | None:
        self._gathered += part
        if self._remaining:
            return None
        field = bytes(self._gathered)
        self._gathered.clear()
        assert self._handle is not None
        return self._handle(field)

    def _content(self, part: bytes) -> ZstdPiece | None:
        if self._skipping:
            if not self._remaining:
                self._end_frame()
            return None
        return ZstdPiece(part, self._end_block() if not self._remaining else False)

    def _expect(self, nbytes: int, handle: Callable[[bytes], ZstdPiece | None] | None) -> None:
        self._remaining = nbytes
        self._handle = handle

    def _end_frame(self) -> None:
        self._in_frame = self._skipping = False
        self._expect(4, self._magic)

    def _end_block(self) -> bool:
        """Select the parser field after a block. Return True if the frame ends with this block."""
        if not self._last_block:
            self._expect(3, self._block_header)
        elif self._has_checksum:
            self._expect(4, self._checksum)
        else:
            self._end_frame()
            return True
        return False

    def _magic(self, field: bytes) -> ZstdPiece | None:
        magic = int.from_bytes(field, "little")
        self._in_frame = True
        self.frames += 1
        if magic & 0xFFFFFFF0 == _SKIPPABLE_MAGIC:
            self._skipping = True
            self._expect(4, self._skippable_size)
            return None
        if magic != _FRAME_MAGIC:
            raise ZstdFormatError("no zstd frame starts here")
        self._header = field
        self._expect(1, self._descriptor)
        return None

    def _skippable_size(self, field: bytes) -> None:
        size = int.from_bytes(field, "little")
        self._expect(size, None)
        if not size:
            self._end_frame()

    def _descriptor(self, field: bytes) -> None:
        flags = field[0]
        single_segment = flags >> 5 & 1
        self._single_segment = bool(single_segment)
        self._has_checksum = bool(flags >> 2 & 1)
        self._content_size_nbytes = _CONTENT_SIZE_NBYTES[flags >> 6] or single_segment
        rest = (1 - single_segment) + _DICTIONARY_ID_NBYTES[flags & 3] + self._content_size_nbytes
        self._header += field
        self._expect(rest, self._frame_header)

    def _frame_header(self, field: bytes) -> ZstdPiece:
        size_nbytes = self._content_size_nbytes
        declared = int.from_bytes(field[len(field) - size_nbytes :], "little")
        if size_nbytes == 2:
            declared += 256  # RFC 8878, 3.1.1.1.4: smaller sizes use one byte
        self.content_nbytes = declared if size_nbytes else None
        base = 1 << (10 + (field[0] >> 3))
        self.window_nbytes = declared if self._single_segment else base + (base >> 3) * (field[0] & 7)
        self._expect(3, self._block_header)
        return ZstdPiece(self._header + field, ends_frame=False, begins_frame=True)

    def _block_header(self, field: bytes) -> ZstdPiece:
        header = int.from_bytes(field, "little")
        kind, size = header >> 1 & 3, header >> 3
        if kind == 3 or size > MAX_BLOCK_NBYTES:
            raise ZstdFormatError("a block header is damaged")
        self._last_block = bool(header & 1)
        content = 1 if kind == 1 else size  # kind 1 stores one byte that is repeated
        self._expect(content, None)
        return ZstdPiece(field, self._end_block() if not content else False)

    def _checksum(self, field: bytes) -> ZstdPiece:
        self._end_frame()
        return ZstdPiece(field, True)
