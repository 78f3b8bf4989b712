"""Incremental decompression. Each decompression step returns a bounded number of bytes.

The offset in an error is the number of *decompressed* bytes before the damage. Record readers replace this offset with
the offset of the lost record, using :func:`damage_at`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Any, Final, Literal, Protocol, TypeAlias

from aiostream_data.codecs.deflate_stream import DeflateStream
from aiostream_data.codecs.library_streams import (
    LibraryStreams,
    may_begin_bz2,
    may_begin_lz4,
    may_begin_xz,
)
from aiostream_data.codecs.snappy_chunks import SnappyChunks, may_begin_snappy
from aiostream_data.codecs.zstd_blocks import MAX_BLOCK_NBYTES, BlockWalker, ZstdFormatError
from aiostream_data.errors import CorruptRecordError, MissingExtraError, PlanError

Compression: TypeAlias = Literal["", "gzip", "zlib", "zstd", "bz2", "xz", "lz4", "snappy"]

COMPRESSIONS: Final[tuple[Compression, ...]] = ("", "gzip", "zlib", "zstd", "bz2", "xz", "lz4", "snappy")
"""Names of the compression formats; "" is no compression."""

MAX_STEP_NBYTES = 1 << 20
"""Maximum output size of one decompression step, in bytes."""

ZSTD_NBYTES = 96 << 10
"""Memory in bytes of the tables in one zstd decompressor. The window and block buffers are not included."""

MAPPED_NBYTES = 32 << 20
"""malloc maps allocations above this size (in bytes) separately. Unwritten pages of such allocations use no memory."""

FILLING_NBYTES = 1 << 20
"""The reported memory of a separately mapped allocation grows in steps of this many bytes, ahead of the data."""

_ZSTD_MAX_WINDOW_NBYTES = 128 << 20
MAX_DECOMPRESSOR_NBYTES = _ZSTD_MAX_WINDOW_NBYTES + (2 << 20)
"""Maximum memory of one decompressor in bytes: the largest accepted window of zstd or xz, tables and blocks."""

_ALIASES: dict[str, Compression] = {"none": "", **{name: name for name in COMPRESSIONS}}


def canonical(name: str) -> Compression:
    """Normalize the name of a compression format. The function ignores case, so tf.data's name ``"GZIP"`` is accepted.

    Raises:
        PlanError: The compression format is unknown.
    """
    try:
        return _ALIASES[name.lower()]
    except KeyError:
        names = ", ".join(map(repr, COMPRESSIONS[:-1]))
        raise PlanError(f"compression must be {names} or {COMPRESSIONS[-1]!r}, got {name!r}") from None


def may_need_window(asked: str) -> bool:
    """Return True if the value of the ``compression`` argument allows streams with a large window: zstd and xz."""
    return asked.lower() in ("auto", "zstd", "xz")


def detect(first_bytes: bytes) -> Compression:
    """Detect the compression of a stream from the magic number in its first bytes.

    Pass the first 64 bytes, or the complete stream if it is shorter. Uncompressed data can begin with the two bytes of
    a zlib header by accident. The bytes after a zlib header must therefore also be valid.
    """
    if first_bytes.startswith(b"\x1f\x8b\x08"):
        return "gzip"
    if first_bytes.startswith(b"\x28\xb5\x2f\xfd") or (
        first_bytes[1:4] == b"\x2a\x4d\x18" and first_bytes[0] & 0xF0 == 0x50
    ):
        return "zstd"
    if len(first_bytes) >= 4:
        for name, may_begin in LIBRARY_STARTS.items():
            if may_begin(first_bytes):
                return name
    return "zlib" if _starts_zlib(first_bytes) else ""


LIBRARY_STARTS: Final[dict[Compression, Callable[[bytes], bool]]] = {
    "bz2": may_begin_bz2,
    "xz": may_begin_xz,
    "lz4": may_begin_lz4,
    "snappy": may_begin_snappy,
}
"""Functions that tell whether a stream of a format can begin with some bytes."""


def is_zlib_header(pair: Any) -> Any:
    """Return True if two bytes are a zlib header. Accepts a big-endian number, or an array of such numbers."""
    return (pair & 0x8F00 == 0x0800) & (pair % 31 == 0)


def _starts_zlib(first_bytes: bytes) -> bool:
    if len(first_bytes) < 2 or not is_zlib_header(int.from_bytes(first_bytes[:2], "big")):
        return False
    try:
        zlib.decompressobj().decompress(first_bytes, 1 << 16)
    except zlib.error:
        return False
    return True


class Decompressor(Protocol):
    """Decompressor of one stream. The class is not thread-safe; it releases the GIL during each decompression step."""

    @property
    def held_nbytes(self) -> int:
        """Memory in bytes for buffers and for the window of previous output, including memory about to be allocated."""

    def feed(self, data: memoryview) -> Iterator[bytes]:
        """Decompress ``data`` (uint8) and yield pieces of at most ``MAX_STEP_NBYTES`` bytes.

        Before the decompressor allocates more memory, the iterator yields an empty piece. ``held_nbytes`` then includes
        the new memory. Exhaust the iterator before the next call of ``feed``.

        Raises:
            CorruptRecordError: The compressed stream is damaged. The iterator has yielded all output before the damage.
        """

    def finish(self) -> None:
        """Check that the compressed stream is complete.

        Raises:
            CorruptRecordError: The compressed stream is truncated.
        """

    def discard(self) -> None:
        """Free all memory. Do not use this object afterwards."""


def decompressor(name: Compression, url: str, step_nbytes: int = MAX_STEP_NBYTES) -> Decompressor:
    """Create a decompressor for a new stream.

    Args:
        name: Compression format of the stream.
        url: URL of the object, for error messages.
        step_nbytes: Maximum output of one decompression step in bytes. A zstd block (up to 128 KiB) is always one step,
            and so are 64 KiB of the formats bz2, xz, lz4 and snappy.

    Raises:
        MissingExtraError: The package for this compression is not installed.
    """
    return Decompressors().begin(name, url, step_nbytes)


class Decompressors:
    """Creates decompressors of many short streams, one after another.

    The streams share the tables and buffers of zstd, which take longer to allocate than a short stream to decompress.
    Before the next stream begins, the last one must have ended.
    """

    def __init__(self) -> None:
        self._zstd = _ZstdLibrary()

    def begin(self, name: Compression, url: str, step_nbytes: int = MAX_STEP_NBYTES) -> Decompressor:
        """Create a decompressor for a new stream. See :func:`decompressor`."""
        if name == "zstd":
            return _Zstd(url, self._zstd)
        if name == "gzip" or name == "zlib":
            return DeflateStream(name, url, min(step_nbytes, MAX_STEP_NBYTES))
        if name == "snappy":
            return SnappyChunks(url)
        return LibraryStreams(name, url) if name else _Plain()


def damage_at(offset: int, error: CorruptRecordError) -> CorruptRecordError:
    """Convert an error of a compressed stream to an error of the record that begins at decompressed byte ``offset``."""
    if error.offset == offset:
        return error
    return CorruptRecordError(error.url, offset, f"{error.reason}, after {error.offset} decompressed bytes")


class _Plain:
    held_nbytes = 0

    def feed(self, data: memoryview) -> Iterator[bytes]:
        for at in range(0, len(data), MAX_STEP_NBYTES):
            yield bytes(data[at : at + MAX_STEP_NBYTES])

    def finish(self) -> None:
        """Do nothing, because an uncompressed stream can end anywhere."""

    def discard(self) -> None:
        """Do nothing, because this class uses no memory buffers."""


class _ZstdLibrary:
    """The zstd library with the tables and buffers that frames share, one frame after another."""

    _context: Any = None  # created with the first frame, after its memory is reserved

    @property
    def errors(self) -> type[Exception]:
        """Class of the library's errors."""
        found: type[Exception] = zstandard_library().ZstdError
        return found

    def new_frame(self) -> Any:
        """Return a decompressor object of the library for the next frame."""
        if self._context is None:
            self._context = zstandard_library().ZstdDecompressor(max_window_size=_ZSTD_MAX_WINDOW_NBYTES)
        return self._context.decompressobj()

    def discard(self) -> None:
        """Free the tables and buffers."""
        self._context = None


class _Zstd:
    """Decompressor for a sequence of zstd frames, including skippable frames.

    The zstd library accepts a frame with less content than the frame header declares. This class therefore compares the
    two sizes.
    """

    def __init__(self, url: str, library: _ZstdLibrary) -> None:
        self._library = library
        self._errors = library.errors
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
        except (ZstdFormatError, self._errors) as error:
            raise CorruptRecordError(self._url, self._produced, f"the zstd stream is damaged ({error})") from None

    def _begin_frame(self) -> None:
        self._frame, self._frame_nbytes = self._library.new_frame(), 0

    def _holds_more(self) -> bool:
        """Update ``held_nbytes`` for the current frame. Return True if ``held_nbytes`` has increased."""
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
        self._frame = None
        self._library.discard()

    def _check_size(self, *, complete: bool) -> None:
        """Compare the size of the frame's output so far with the size declared in the frame header."""
        declared, held = self._walker.content_nbytes, self._frame_nbytes
        if declared is not None and (held > declared or (complete and held < declared)):
            raise ZstdFormatError(f"a frame declares {declared} bytes and has {held}")

    def finish(self) -> None:
        if not self._walker.at_frame_boundary or not self._walker.frames:
            raise CorruptRecordError(self._url, self._produced, "the zstd stream is cut short")


def zstandard_library() -> Any:
    """Return the module ``zstandard``.

    Raises:
        MissingExtraError: The package is not installed.
    """
    try:
        import zstandard
    except ImportError as error:
        raise MissingExtraError("zstd streams need the extra: pip install 'aiostream-data[zstd]'") from error
    return zstandard
