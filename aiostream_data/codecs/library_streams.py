"""Decompressor for bz2, xz and lz4 streams, whose libraries return a bounded number of bytes per call.

How this works. The libraries lose the output of a call that meets damage. Therefore output is returned in units of
``UNIT_NBYTES`` decompressed bytes, and a unit that is not complete when damage is found is discarded. So the output
before the damage does not depend on how the compressed bytes arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from aiostream_data.errors import CorruptRecordError, MissingExtraError

LibraryFormat: TypeAlias = Literal["bz2", "xz", "lz4"]

UNIT_NBYTES: Final = 64 << 10
"""Number of decompressed bytes that a decompressor returns at once; fewer at the end of a stream."""

MOST_WINDOW_NBYTES: Final = 128 << 20
"""Largest accepted window of an xz stream, in bytes."""

_PIECE_NBYTES: Final = 16 << 10  # the libraries copy the input that a call leaves over
_SMALL_NBYTES: Final = 1 << 20
_BZ2_LEVEL_NBYTES: Final = 400_000
_LZ4_BLOCK_NBYTES: Final = {4: 64 << 10, 5: 256 << 10, 6: 1 << 20, 7: 4 << 20}
_XZ_HEADER_NBYTES: Final = 12
_XZ_LZMA2: Final = 0x21


class HeaderError(ValueError):
    """The header of a stream is damaged, or asks for too much memory."""


class _Library(NamedTuple):
    """What differs between the formats.

    Attributes:
        begin: Function (memory in bytes) -> the library's decompressor of one stream.
        errors: Exceptions of the library.
        header_nbytes: Function (first bytes) -> number of bytes that ``memory`` needs, at most.
        memory: Function (header) -> memory in bytes of the library's decompressor.
        starts: Function (first bytes) -> False if no stream can begin with these bytes.
        padding: True if zero bytes may follow a stream.
    """

    begin: Callable[[int], Any]
    errors: tuple[type[Exception], ...]
    header_nbytes: Callable[[bytes], int]
    memory: Callable[[bytes], int]
    starts: Callable[[bytes], bool]
    padding: bool = False


class LibraryStreams:
    """Decompressor for any number of streams of one format, one directly after another."""

    def __init__(self, name: LibraryFormat, url: str) -> None:
        self._name = name
        self._url = url
        self._library = _library(name)
        self._stream: Any = None  # None between two streams
        self._header = b""
        self._unit = bytearray()
        self._streams = 0
        self._produced = 0
        self.held_nbytes = 0

    def feed(self, data: memoryview) -> Iterator[bytes]:
        for at in range(0, len(data), _PIECE_NBYTES):
            rest = bytes(data[at : at + _PIECE_NBYTES])
            while rest or self._has_more():
                if self._stream is None:
                    begins = self._complete_header(rest)
                    if begins is None:
                        break
                    if self._holds_more(begins):
                        yield b""
                    self._stream, rest = self._library.begin(self.held_nbytes), begins
                    self._streams += 1
                out, rest = self._step(rest)
                if out:
                    self._produced += len(out)
                    yield out

    def finish(self) -> None:
        if self._stream is not None or self._header or not self._streams:
            raise self._corrupt(f"the {self._name} stream is cut short")

    def discard(self) -> None:
        self._stream = None
        self._unit.clear()

    def _has_more(self) -> bool:
        return self._stream is not None and not self._stream.needs_input

    def _step(self, data: bytes) -> tuple[bytes, bytes]:
        """Return a unit of output, or nothing, and the input behind the end of the stream."""
        stream, rest = self._stream, b""
        try:
            self._unit += stream.decompress(data, UNIT_NBYTES - len(self._unit))
        except self._library.errors as error:
            raise self._damaged(error) from None
        if stream.eof:
            self._stream, rest = None, stream.unused_data or b""
        elif len(self._unit) < UNIT_NBYTES:
            return b"", b""
        out = bytes(self._unit)
        self._unit.clear()
        return out, rest

    def _complete_header(self, rest: bytes) -> bytes | None:
        """Return the first bytes of the next stream, or None while its header is not complete."""
        if self._library.padding and self._streams and not self._header:
            rest = rest.lstrip(b"\0")
        self._header += rest
        if not self._library.starts(self._header):
            if self._streams:
                raise self._corrupt(f"garbage after the end of the {self._name} stream")
            raise self._corrupt(f"the {self._name} stream is damaged (it begins with other bytes)")
        if not self._header or len(self._header) < self._library.header_nbytes(self._header):
            return None
        found, self._header = self._header, b""
        return found

    def _holds_more(self, header: bytes) -> bool:
        """Update ``held_nbytes`` for the next stream. Return True if ``held_nbytes`` has increased."""
        try:
            needed = self._library.memory(header) + UNIT_NBYTES
        except HeaderError as error:
            raise self._damaged(error) from None
        before, self.held_nbytes = self.held_nbytes, max(self.held_nbytes, needed)
        return self.held_nbytes > before

    def _damaged(self, error: Exception) -> CorruptRecordError:
        return self._corrupt(f"the {self._name} stream is damaged ({error})")

    def _corrupt(self, reason: str) -> CorruptRecordError:
        return CorruptRecordError(self._url, self._produced, reason)


def new_compressor(name: LibraryFormat) -> Any:
    """Return an object with the methods ``compress(data)`` and ``flush()``."""
    if name == "bz2":
        import bz2

        return bz2.BZ2Compressor()
    if name == "xz":
        import lzma

        return lzma.LZMACompressor(lzma.FORMAT_XZ)
    return _Lz4Compressor()


class _Lz4Compressor:
    def __init__(self) -> None:
        self._frame = _lz4_frame().LZ4FrameCompressor(content_checksum=True)
        self._begun: bytes = self._frame.begin()

    def compress(self, data: bytes, /) -> bytes:
        begun, self._begun = self._begun, b""
        out: bytes = self._frame.compress(data)
        return begun + out

    def flush(self) -> bytes:
        begun, self._begun = self._begun, b""
        out: bytes = self._frame.flush()
        return begun + out


def _library(name: LibraryFormat) -> _Library:
    return {"bz2": _bz2, "xz": _xz, "lz4": _lz4}[name]()


# -- bz2


def may_begin_bz2(first_bytes: bytes) -> bool:
    """Return True if a bz2 stream can begin with ``first_bytes``."""
    if not _agree(first_bytes, b"BZh") or not first_bytes[3:4] <= b"9" or first_bytes[3:4] == b"0":
        return False
    blocks = (b"\x31\x41\x59\x26\x53\x59", b"\x17\x72\x45\x38\x50\x90")  # of the first block, of an empty stream
    return len(first_bytes) < 4 or (first_bytes[3:4] >= b"1" and any(_agree(first_bytes[4:], mark) for mark in blocks))


def _bz2() -> _Library:
    import bz2

    return _Library(
        begin=lambda memory: bz2.BZ2Decompressor(),
        errors=(OSError, ValueError),
        header_nbytes=lambda first_bytes: 4,
        memory=lambda header: int(header[3:4]) * _BZ2_LEVEL_NBYTES + _SMALL_NBYTES // 4,
        starts=may_begin_bz2,
    )


# -- xz


def may_begin_xz(first_bytes: bytes) -> bool:
    """Return True if an xz stream can begin with ``first_bytes``."""
    return _agree(first_bytes, b"\xfd7zXZ\0")


def _xz() -> _Library:
    import lzma

    return _Library(
        begin=lambda memory: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=memory),
        errors=(lzma.LZMAError, EOFError),
        header_nbytes=_xz_header_nbytes,
        memory=lambda header: _xz_window_nbytes(header[_XZ_HEADER_NBYTES:]) + _SMALL_NBYTES,
        starts=may_begin_xz,
        padding=True,
    )


def _xz_header_nbytes(first_bytes: bytes) -> int:
    """Return the size of the header of the stream and of its first block, in bytes."""
    blocks = first_bytes[_XZ_HEADER_NBYTES : _XZ_HEADER_NBYTES + 1]
    return _XZ_HEADER_NBYTES + (4 * blocks[0] + 4 if blocks and blocks[0] else 1)


def _xz_window_nbytes(block: bytes) -> int:
    """Return the size of the window that the header of a block declares, in bytes; 0 if the library must explain it."""
    if not block[0]:
        return 0  # a stream without blocks
    try:
        at = 2
        for flag in (0x40, 0x80):
            if block[1] & flag:
                _, at = _xz_number(block, at)
        for _ in range((block[1] & 3) + 1):
            kind, at = _xz_number(block, at)
            nbytes, at = _xz_number(block, at)
            if kind == _XZ_LZMA2 and nbytes == 1:
                return _checked_window(block[at])
            at += nbytes
    except IndexError:
        pass
    return 0


def _checked_window(bits: int) -> int:
    if bits > 40:
        raise HeaderError("its header is invalid")
    window = (2 | bits & 1) << (bits // 2 + 11)
    if window > MOST_WINDOW_NBYTES:
        raise HeaderError(f"it needs a window of {window} bytes, and at most {MOST_WINDOW_NBYTES} bytes are allowed")
    return window


def _xz_number(block: bytes, at: int) -> tuple[int, int]:
    """Return a number of variable length, and the position behind it."""
    number = shift = 0
    while True:
        byte = block[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return number, at


# -- lz4


def may_begin_lz4(first_bytes: bytes) -> bool:
    """Return True if an lz4 frame can begin with ``first_bytes``."""
    if not _agree(first_bytes, b"\x04\x22\x4d\x18"):
        return False
    return len(first_bytes) < 5 or first_bytes[4] & 0xC2 == 0x40  # version 1, and a bit that is 0


def _may_begin_any_lz4(first_bytes: bytes) -> bool:
    return may_begin_lz4(first_bytes) or _is_skippable(first_bytes)


def _is_skippable(first_bytes: bytes) -> bool:
    """Return True if ``first_bytes`` can begin a frame that readers skip."""
    return _agree(first_bytes[1:], b"\x2a\x4d\x18") and all(byte & 0xF0 == 0x50 for byte in first_bytes[:1])


def _lz4() -> _Library:
    frame = _lz4_frame()
    return _Library(
        begin=lambda memory: frame.LZ4FrameDecompressor(),
        errors=(RuntimeError, ValueError, EOFError),
        header_nbytes=lambda first_bytes: 4 if first_bytes[1:2] == b"\x2a" else 6,
        memory=_lz4_nbytes,
        starts=_may_begin_any_lz4,
    )


def _lz4_nbytes(header: bytes) -> int:
    """Return the memory of a frame: two blocks, and the window of linked blocks."""
    if header[1:2] == b"\x2a":
        return _SMALL_NBYTES // 4
    block = _LZ4_BLOCK_NBYTES.get(header[5] >> 4 & 7)
    if block is None:
        raise HeaderError("its header declares an invalid block size")
    return 2 * block + _SMALL_NBYTES // 4


def _lz4_frame() -> Any:
    try:
        import lz4.frame
    except ImportError as error:
        raise MissingExtraError("lz4 streams need the extra: pip install 'aiostream-data[lz4]'") from error
    return lz4.frame


def _agree(data: bytes, mark: bytes) -> bool:
    """Return True if the shorter one is the beginning of the longer one."""
    length = min(len(data), len(mark))
    return data[:length] == mark[:length]
