"""Compressed streams, block by block: every step gives a bounded number of bytes, whatever comes in.

Offsets in errors count bytes of the *decompressed* stream: where the last good byte ended. Readers of records raise
such errors with the offset of the record that is lost, by :func:`damage_at`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, Literal, Protocol, TypeAlias

from aiostream_data.codecs.zstd_blocks import MAX_BLOCK_NBYTES, BlockWalker, ZstdFormatError
from aiostream_data.errors import CorruptRecordError, MissingExtraError, PlanError

Compression: TypeAlias = Literal["", "gzip", "zlib", "zstd"]

MAX_STEP_NBYTES = 256 << 10
"""No step of a decompressor gives more than this."""

DEFLATE_NBYTES = 64 << 10
"""Memory of one inflating stream: 32 KiB of window, and tables."""

ZSTD_NBYTES = 96 << 10
"""Tables of one zstd stream; beside them it has a window, and room for blocks."""

MAPPED_NBYTES = 32 << 20
"""malloc maps a block of more than this by itself, so that only what was written to takes memory."""

FILLING_NBYTES = 1 << 20
"""What is held of such a block is told in steps of this size, each before it is filled."""

# The input is taken in small pieces because zlib copies what it has not used yet after every step.
_PIECE_NBYTES = 16 << 10
_ZSTD_MAX_WINDOW_NBYTES = 128 << 20
MAX_ZSTD_NBYTES = _ZSTD_MAX_WINDOW_NBYTES + (1 << 20)
"""Most that one zstd stream holds: the largest window that is accepted, tables, and blocks."""

_WINDOW_BITS = {"gzip": 31, "zlib": 15}
_ALIASES: dict[str, Compression] = {"": "", "none": "", "gzip": "gzip", "zlib": "zlib", "zstd": "zstd"}


def canonical(name: str) -> Compression:
    """Return the name of a compression as used here; case does not matter, so tf.data's ``"GZIP"`` fits.

    Raises:
        PlanError: There is no such compression.
    """
    try:
        return _ALIASES[name.lower()]
    except KeyError:
        raise PlanError(f"compression must be 'auto', '', 'gzip', 'zlib' or 'zstd', got {name!r}") from None


def may_be_zstd(asked: str) -> bool:
    """Return whether streams asked for as this compression, or as ``"auto"``, may be zstd."""
    return asked.lower() in ("auto", "zstd")


def detect(first_bytes: bytes) -> Compression:
    """Return what a stream that starts with these bytes is compressed with, going by its magic number.

    Give it 64 bytes where there are so many: zlib's mark is two bytes that plain data may well begin
    with, so the data behind it must hold, too.
    """
    if first_bytes.startswith(b"\x1f\x8b\x08"):
        return "gzip"
    if first_bytes.startswith(b"\x28\xb5\x2f\xfd") or (
        first_bytes[1:4] == b"\x2a\x4d\x18" and first_bytes[0] & 0xF0 == 0x50
    ):
        return "zstd"
    return "zlib" if _starts_zlib(first_bytes) else ""


def _starts_zlib(first_bytes: bytes) -> bool:
    if len(first_bytes) < 2 or first_bytes[0] & 0x8F != 0x08 or int.from_bytes(first_bytes[:2], "big") % 31:
        return False
    try:
        zlib.decompressobj().decompress(first_bytes, 1 << 16)
    except zlib.error:
        return False
    return True


class Decompressor(Protocol):
    """Decompresses one stream. Not thread-safe; releases the GIL in its steps."""

    @property
    def held_nbytes(self) -> int:
        """Bytes of memory held, or about to be: buffers, and the window of output to which the input may refer."""

    def feed(self, data: memoryview) -> Iterator[bytes]:
        """Give what ``data`` (uint8) decompresses to, at most ``MAX_STEP_NBYTES`` at a time.

        An empty piece is given before more memory is allocated: ``held_nbytes`` includes it already.
        Must be iterated to its end before the next call.

        Raises:
            CorruptRecordError: The stream is damaged; all that came before the damage was given.
        """

    def finish(self) -> None:
        """Check that the stream was complete.

        Raises:
            CorruptRecordError: It was cut short.
        """

    def discard(self) -> None:
        """Free all memory. Nothing else may be called any more."""


def decompressor(name: Compression, url: str, step_nbytes: int = MAX_STEP_NBYTES) -> Decompressor:
    """Return a decompressor at the start of a stream.

    Args:
        url: For messages.
        step_nbytes: Most bytes that one step gives; a block of a zstd stream (128 KiB) is always one step.

    Raises:
        MissingExtraError: The package for it is not installed.
    """
    if name == "zstd":
        return _Zstd(url)
    return _Deflate(name, url, min(step_nbytes, MAX_STEP_NBYTES)) if name else _Plain()


def damage_at(offset: int, error: CorruptRecordError) -> CorruptRecordError:
    """Return damage of a compressed stream as damage of the record that begins at byte ``offset`` of its content."""
    if error.offset == offset:
        return error
    return CorruptRecordError(error.url, offset, f"{error.reason}, after {error.offset} decompressed bytes")


class _Plain:
    held_nbytes = 0

    def feed(self, data: memoryview) -> Iterator[bytes]:
        for at in range(0, len(data), MAX_STEP_NBYTES):
            yield bytes(data[at : at + MAX_STEP_NBYTES])

    def finish(self) -> None:
        """There is nothing that could be missing."""

    def discard(self) -> None:
        """There is nothing to free."""


class _Deflate:
    """gzip, with as many members as there are and zero bytes behind the last, or one zlib stream."""

    held_nbytes = DEFLATE_NBYTES

    def __init__(self, name: Literal["gzip", "zlib"], url: str, step_nbytes: int) -> None:
        self._name = name
        self._url = url
        self._step_nbytes = step_nbytes
        self._state: zlib._Decompress | None = self._fresh()  # None behind the end of a member
        self._padding = False
        self._produced = 0

    def feed(self, data: memoryview) -> Iterator[bytes]:
        for at in range(0, len(data), _PIECE_NBYTES):
            rest = bytes(data[at : at + _PIECE_NBYTES])
            pending = False
            while rest or pending:
                if self._state is None:
                    rest = self._next_member(rest)
                    continue
                out, rest, damage = self._step(self._state, rest)
                # A full step may have left output inside zlib with no input left to ask for it.
                pending = len(out) == self._step_nbytes and self._state is not None
                self._produced += len(out)
                if out:
                    yield out
                if damage:
                    raise self._corrupt(f"the {self._name} stream is damaged ({damage})")

    def finish(self) -> None:
        if self._state is not None:
            raise self._corrupt(f"the {self._name} stream is cut short")

    def discard(self) -> None:
        self._state = None

    def _step(self, state: zlib._Decompress, data: bytes) -> tuple[bytes, bytes, str]:
        """Return output, input left over, and what is wrong with the stream behind the output, if anything."""
        before = state.copy()
        try:
            out = state.decompress(data, self._step_nbytes)
        except zlib.error as error:
            return _until_damage(before, data), b"", str(error).rpartition(": ")[2]
        if state.eof:
            self._state = None
            return out, state.unused_data, ""
        return out, state.unconsumed_tail, ""

    def _next_member(self, rest: bytes) -> bytes:
        """Decide what the bytes behind a complete member are; return those that are still to be read."""
        if self._name == "gzip" and not rest.strip(b"\0"):
            self._padding = True
            return b""
        if self._padding or self._name != "gzip" or rest[0] != 0x1F:
            raise self._corrupt(f"garbage after the end of the {self._name} stream")
        self._state = self._fresh()
        return rest

    def _fresh(self) -> zlib._Decompress:
        return zlib.decompressobj(_WINDOW_BITS[self._name])

    def _corrupt(self, reason: str) -> CorruptRecordError:
        return CorruptRecordError(self._url, self._produced, reason)


def _until_damage(state: zlib._Decompress, data: bytes) -> bytes:
    """Return what comes out before the damage, which zlib withholds when the damage is in the same step."""
    out = bytearray()
    try:
        for at in range(len(data)):
            out += state.decompress(data[at : at + 1])
    except zlib.error:
        pass
    return bytes(out)


class _Zstd:
    """zstd frames, one after another, skippable ones among them.

    The library accepts a frame that holds fewer bytes than its header declares, so sizes are compared here.
    """

    def __init__(self, url: str) -> None:
        self._library = _zstandard()
        self._factory: Any = None  # made with the first frame, so that its memory can be reserved before
        self._frame: Any = None
        self._walker = BlockWalker()
        self._url = url
        self._produced = 0
        self._frame_nbytes = 0
        self.held_nbytes = 0

    def feed(self, data: memoryview) -> Iterator[bytes]:
        try:
            for piece in self._walker.feed(data):
                if piece.begins_frame:
                    if self._holds_more():
                        yield b""
                    self._begin_frame()
                out = self._frame.decompress(piece.data)
                self._frame_nbytes += len(out)
                self._check_size(complete=False)
                self._produced += len(out)
                self._holds_more()
                if out:
                    yield out
                if piece.ends_frame:
                    self._check_size(complete=True)
        except (ZstdFormatError, self._library.ZstdError) as error:
            raise CorruptRecordError(self._url, self._produced, f"the zstd stream is damaged ({error})") from None

    def _begin_frame(self) -> None:
        if self._factory is None:
            self._factory = self._library.ZstdDecompressor(max_window_size=_ZSTD_MAX_WINDOW_NBYTES)
        self._frame, self._frame_nbytes = self._factory.decompressobj(), 0

    def _holds_more(self) -> bool:
        """Note what the library holds for the frame at hand; return whether that is more than before."""
        before, walker = self.held_nbytes, self._walker
        block = min(walker.window_nbytes, MAX_BLOCK_NBYTES)
        output = walker.window_nbytes + 2 * block
        if walker.content_nbytes is not None:
            output = min(output, walker.content_nbytes)
        if output > MAPPED_NBYTES:
            filled = (self._frame_nbytes + block) // FILLING_NBYTES + 1
            output = min(output, filled * FILLING_NBYTES)
        self.held_nbytes = max(before, ZSTD_NBYTES + block + output)  # the library keeps buffers for further frames
        return self.held_nbytes > before

    def discard(self) -> None:
        self._frame = self._factory = None

    def _check_size(self, *, complete: bool) -> None:
        """Compare the frame's output so far with the size that its header declares."""
        declared, held = self._walker.content_nbytes, self._frame_nbytes
        if declared is not None and (held > declared or (complete and held < declared)):
            raise ZstdFormatError(f"a frame declares {declared} bytes and holds {held}")

    def finish(self) -> None:
        if not self._walker.at_frame_boundary or not self._walker.frames:
            raise CorruptRecordError(self._url, self._produced, "the zstd stream is cut short")


def _zstandard() -> Any:
    try:
        import zstandard
    except ImportError as error:
        raise MissingExtraError("zstd streams need the extra: pip install 'aiostream-data[zstd]'") from error
    return zstandard


class Compressor(Protocol):
    """Compresses one stream."""

    def compress(self, data: bytes, /) -> bytes:
        """Take ``data``; return what can be written so far, which may be empty."""

    def flush(self) -> bytes:
        """End the stream; return its last bytes."""


def compressor(name: Compression) -> Compressor:
    """Return a compressor for a new stream. Equal data give equal bytes: no time stamps.

    Raises:
        MissingExtraError: The package for it is not installed.
    """
    if name == "zstd":
        made: Compressor = _zstandard().ZstdCompressor(write_checksum=True).compressobj()
        return made
    return zlib.compressobj(wbits=_WINDOW_BITS[name]) if name else _PlainCompressor()


class _PlainCompressor:
    def compress(self, data: bytes, /) -> bytes:
        return data

    def flush(self) -> bytes:
        return b""
