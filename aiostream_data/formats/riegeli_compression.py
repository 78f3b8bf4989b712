"""Decompress the parts of Riegeli chunks. The size of each part after decompression is known before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeAlias

import numpy as np

from aiostream_data.codecs.compression import zstandard_library
from aiostream_data.formats.arrow_rows import load_pyarrow

NOT_COMPRESSED: Final = 0
"""Byte that stands for parts without compression."""

MAX_WINDOW_NBYTES: Final = 8 << 20
"""Maximum window of a zstd part that does not declare its size. Other parts need no window."""

_UNKNOWN: Final = -1


class UnreadablePart(Exception):
    """A part cannot be decompressed.

    Attributes:
        part: Number of the part, from 0.
        reason: Description of the damage.
    """

    def __init__(self, part: int, reason: str) -> None:
        super().__init__(part, reason)
        self.part = part
        self.reason = reason


Parts: TypeAlias = Sequence[memoryview]
Sizes: TypeAlias = Sequence[int]
Decompress: TypeAlias = Callable[[int, Parts, Sizes], Any]
"""Type of :func:`decompressed` and :func:`each_decompressed`."""


class DecompressParts(Protocol):
    """Decompresses parts, and returns a buffer for each.

    Many small parts are decompressed with one call if the library can, but into memory that must be copied.
    """

    def __call__(self, parts: Parts, sizes: Sizes, *, are_small: bool) -> Sequence[Any]: ...


def decompressed(compression: int, parts: Parts, sizes: Sizes) -> Any:
    """Return the decompressed bytes of all parts, joined, as a buffer.

    Args:
        compression: Byte that stands for the compression of all parts.
        parts: The compressed parts, at least one.
        sizes: Number of bytes of each part after decompression.

    Raises:
        UnreadablePart: A part is damaged, or has another size. Or the compression is unknown.
        MissingExtraError: The library for the compression is not installed.
    """
    found = _decompress_with(compression)(parts, sizes, are_small=True)
    return found[0] if len(found) == 1 else b"".join(found)


def each_decompressed(compression: int, parts: Parts, sizes: Sizes) -> list[bytes]:
    """Return the decompressed bytes of each part. See :func:`decompressed` for arguments and errors."""
    return [bytes(each) for each in _decompress_with(compression)(parts, sizes, are_small=False)]


def _decompress_with(compression: int) -> DecompressParts:
    decompress = _BY_BYTE.get(compression)
    if decompress is None:
        raise UnreadablePart(0, f"the compression {chr(compression)!r} is unknown")
    return decompress


def _zstd(parts: Parts, sizes: Sizes, *, are_small: bool) -> Sequence[Any]:
    library = zstandard_library()
    begin = library.ZstdDecompressor(max_window_size=MAX_WINDOW_NBYTES)
    declared = _declared(library, parts, sizes)
    has_empty = 0 in sizes  # the library would write beyond its memory if all parts are empty
    if are_small and not has_empty and _UNKNOWN not in declared and hasattr(begin, "multi_decompress_to_buffer"):
        # The loop below names the damaged part.
        with suppress(library.ZstdError):
            together = begin.multi_decompress_to_buffer(parts, decompressed_sizes=np.array(sizes, "<u8").tobytes())
            return [*together]

    def decompress(part: memoryview, size: int) -> Any:
        return begin.decompress(part, max_output_size=max(1, size), allow_extra_data=False)

    return _one_by_one(parts, sizes, decompress, (library.ZstdError,))


def _declared(library: Any, parts: Parts, sizes: Sizes) -> list[int]:
    """Return the sizes that zstd frames declare, which are the known sizes or ``_UNKNOWN``."""
    found = []
    for number, (part, size) in enumerate(zip(parts, sizes, strict=True)):
        try:
            declared = library.frame_content_size(part)
        except library.ZstdError as error:
            raise UnreadablePart(number, f"a compressed part is damaged ({error})") from error
        if declared != size and declared != _UNKNOWN:
            raise UnreadablePart(number, f"a zstd frame declares {declared} bytes, and the chunk {size}")
        found.append(declared)
    return found


def _brotli(parts: Parts, sizes: Sizes, *, are_small: bool) -> Sequence[Any]:
    pyarrow = load_pyarrow("lib", "ArrayRecord files with brotli compression", "arrow")

    def decompress(part: memoryview, size: int) -> Any:
        with pyarrow.CompressedInputStream(pyarrow.py_buffer(part), "brotli") as stream:
            return stream.read(size + 1)  # a stream may have more bytes than the chunk declares

    return _one_by_one(parts, sizes, decompress, (OSError, pyarrow.ArrowException))


def _snappy(parts: Parts, sizes: Sizes, *, are_small: bool) -> Sequence[Any]:
    pyarrow = load_pyarrow("lib", "ArrayRecord files with snappy compression", "arrow")
    codec = pyarrow.Codec("snappy")

    def decompress(part: memoryview, size: int) -> Any:
        if not bytes(part[:10]).startswith(_varint(size)):
            return b""  # the part has another size
        return codec.decompress(part, decompressed_size=size)

    return _one_by_one(parts, sizes, decompress, (OSError, pyarrow.ArrowException))


def _one_by_one(
    parts: Parts, sizes: Sizes, decompress: Callable[[memoryview, int], Any], errors: tuple[type[Exception], ...]
) -> list[Any]:
    found = []
    for number, (part, size) in enumerate(zip(parts, sizes, strict=True)):
        try:
            out = decompress(part, size)
        except errors as error:
            raise UnreadablePart(number, f"a compressed part is damaged ({error})") from error
        if len(out) != size:
            raise UnreadablePart(number, f"a compressed part does not have the {size} bytes that it declares")
        found.append(out)
    return found


def _varint(number: int) -> bytes:
    """Return a number as a varint."""
    made = bytearray()
    while number >= 0x80:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*made, number])


_BY_BYTE: Final[Mapping[int, DecompressParts]] = MappingProxyType(
    {ord("z"): _zstd, ord("b"): _brotli, ord("s"): _snappy}
)
