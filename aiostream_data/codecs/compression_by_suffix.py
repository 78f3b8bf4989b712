"""Infer the compression of an object that is too short for detection, from its name and first bytes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from aiostream_data.codecs.compression import COMPRESSIONS, LIBRARY_STARTS, Compression, detect

MARK_NBYTES = 4
"""Length in bytes of the longest magic number. A shorter object may contain only the beginning of a magic number."""

_ZSTD_MAGICS = (b"\x28\xb5\x2f\xfd", *(bytes([0x50 + number]) + b"\x2a\x4d\x18" for number in range(16)))
_MAGICS: dict[Compression, tuple[bytes, ...]] = {"gzip": (b"\x1f\x8b\x08",), "zstd": _ZSTD_MAGICS}
_LIBRARY_MAGICS = (b"BZh", b"\xfd7zX", b"\x04\x22\x4d\x18", b"\xff\x06\x00\x00")  # see LIBRARY_STARTS
FIRST_PAIRS = frozenset(magic[:2] for magics in (*_MAGICS.values(), _LIBRARY_MAGICS) for magic in magics)
"""First two bytes of all compressed streams, except zlib."""

_SUFFIXES: dict[str, Compression] = {
    "gz": "gzip",
    "gzip": "gzip",
    "tgz": "gzip",
    "zst": "zstd",
    "zstd": "zstd",
    "tzst": "zstd",
    "zz": "zlib",
    "zlib": "zlib",
    "bz2": "bz2",
    "tbz2": "bz2",
    "xz": "xz",
    "txz": "xz",
    "lz4": "lz4",
    "sz": "snappy",
    "snappy": "snappy",
}


class Evidence(NamedTuple):
    """Compression inferred from the name of an object or from other objects, not from its first bytes.

    Attributes:
        compression: The inferred compression.
        reason: Clause for error messages, such as "its name ends with .gz".
    """

    compression: Compression
    reason: str


def suffix_of(url: str) -> str:
    """Return the lower-case suffix of a URL or path without the dot.

    Return ``""`` if the suffix is missing or numeric.
    """
    path = url
    if url[:8].lower().startswith(("http://", "https://")):
        path = url.partition("#")[0].partition("?")[0]
    stem, dot, suffix = path.rpartition("/")[2].rpartition(".")
    return suffix.lower() if dot and stem and not suffix.isdigit() else ""


def named_compressed(url: str) -> bool:
    """Return True if a URL ends with a suffix of compressed files, in lower case. Faster than :func:`by_name`."""
    return url.rpartition(".")[2] in _SUFFIXES


def by_name(url: str) -> Evidence | None:
    """Infer the compression from the suffix of a URL or path. Return None for an unknown suffix."""
    suffix = suffix_of(url)
    named = _SUFFIXES.get(suffix)
    return None if named is None else Evidence(named, f"its name ends with .{suffix}")


def chosen(evidence: Iterable[Evidence | None], first_bytes: bytes) -> Evidence | None:
    """Return the first entry of ``evidence`` whose compression is consistent with ``first_bytes``, or None."""
    return next((one for one in evidence if one is not None and may_begin(one.compression, first_bytes)), None)


def may_begin_any(first_bytes: bytes) -> bool:
    """Return True if a compressed stream can begin with ``first_bytes``."""
    return any(may_begin(name, first_bytes) for name in COMPRESSIONS if name)


def may_begin(name: Compression, first_bytes: bytes) -> bool:
    """Return True if a stream of this compression can begin with ``first_bytes``, which may be empty."""
    if name == "zlib":
        if len(first_bytes) >= 2:
            return detect(first_bytes) == "zlib"
        return not first_bytes or first_bytes[0] & 0x8F == 0x08
    if name in LIBRARY_STARTS:
        return LIBRARY_STARTS[name](first_bytes)
    return any(magic.startswith(first_bytes[: len(magic)]) for magic in _MAGICS.get(name, ()))
