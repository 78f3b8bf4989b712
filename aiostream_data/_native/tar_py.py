"""Read the headers of tar archives: the pure-Python version of ``tar.pyx``."""

from __future__ import annotations

import os
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

BLOCK: Final = 512
"""Size in bytes of a header, and the unit of all positions in an archive."""

META_NBYTES: Final = 1 << 20
"""Maximum size in bytes of all extended headers (GNU long names and PAX headers) of one member."""

MORE, END, BAD_CHECKSUM, BAD_SIZE, BAD_EXTENDED, BAD_GLOBAL, LONE_EXTENDED = range(7)
"""Reasons why :func:`walk_tar` stops. ``MORE`` means that the next header is not in the range."""

SOUND, LINK, DEVICE, SPARSE, OTHER = range(5)
"""Kinds of members: a file that can be read, or the reason why it cannot be read."""

ROW, FIRST, DATA, NBYTES, NEXT, NAME, KEY_NBYTES, EXT_NBYTES, KEY_HASH, EXT_HASH, KIND = range(11)
"""Columns of a table of members; see :func:`walk_tar`."""
COLUMNS: Final = 11

WINDOW_NBYTES: Final = 4096
NAME_NBYTES: Final = 64
"""Bytes that :func:`walk_tar_file` reads for each member, and bytes for the names of members: this many for each."""

_AT_ONCE: Final[int | None] = getattr(os, "RWF_NOWAIT", None)
_MOST: Final = 1 << 62
_IGNORED: Final = -1
_DIRECTORY: Final = -2
_KINDS: Final = {
    **dict.fromkeys(b"07\0", SOUND),
    **dict.fromkeys(b"12", LINK),
    **dict.fromkeys(b"346", DEVICE),
    ord("S"): SPARSE,
    ord("5"): _DIRECTORY,
}


class TarWalk(NamedTuple):
    """Result of :func:`walk_tar`.

    Attributes:
        table: int64, one row per member and one column per constant above.
        names: Keys and lower-case extensions of the members.
        at: Index of the first header that was not read. It may lie after the end of the range.
        wanted: Index at which the range must end to make progress.
        verdict: Reason why the walk stopped.
        fault_at: Index of the header that is damaged.
    """

    table: NDArray[np.int64]
    names: NDArray[np.uint8]
    at: int
    wanted: int
    verdict: int
    fault_at: int


class _Stop(Exception):
    """Ends a walk: (verdict, position)."""


class _Entry:
    """One member as its headers describe it."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.path: bytes | None = None
        self.nbytes: int | None = None
        self.is_sparse = False
        self.kind = SOUND
        self.data = self.next = 0


def walk_tar(buffer: NDArray[np.uint8], starts: NDArray[np.int64], stops: NDArray[np.int64]) -> TarWalk:
    """Read all headers in the ranges ``buffer[starts[i]:stops[i]]``, each of which begins with a header.

    The checksum of every header is verified. The walk stops at the first range that is damaged or contains the end
    of an archive. Directories and global PAX headers get no row in the table.

    Returns:
        A :class:`TarWalk`. The columns of the table:

        - ``ROW``: index of the range.
        - ``FIRST``, ``DATA``, ``NEXT``: index of the member's first header, of its data, and of the next header. If
          the data extends beyond the range, ``NEXT`` is greater than the end of the range.
        - ``NBYTES``: size of the data.
        - ``NAME``, ``KEY_NBYTES``, ``EXT_NBYTES``: the key is at ``names[NAME:NAME + KEY_NBYTES]``; the extension
          begins one byte after the key. ``KEY_NBYTES`` is -1 if the member belongs to no sample.
        - ``KEY_HASH``, ``EXT_HASH``: hashes of key and extension.
        - ``KIND``: ``SOUND``, or why the member cannot be read.

    Raises:
        IndexError: A range is outside the buffer.
    """
    rows: list[tuple[int, ...]] = []
    names = bytearray()
    at = wanted = fault_at = 0
    verdict = MORE
    for row, (start, stop) in enumerate(zip(starts.tolist(), stops.tolist(), strict=True)):
        if not 0 <= start <= stop <= len(buffer):
            raise IndexError(f"bytes {start} to {stop} are outside a buffer of {len(buffer)}")
        at = start
        try:
            while True:
                entry = _read(buffer, at, stop)
                if entry.kind != _DIRECTORY:
                    rows.append(_row(row, entry, names))
                at = entry.next
        except _Stop as end:
            verdict, position = end.args
            wanted, fault_at = (position, 0) if verdict == MORE else (0, position)
        if verdict != MORE:
            break
    table = np.array(rows, np.int64).reshape(-1, COLUMNS)
    return TarWalk(table, np.frombuffer(bytes(names), np.uint8), at, wanted, verdict, fault_at)


def walk_tar_file(file: int, start: int, stop: int, most: int) -> TarWalk:
    """Read the headers of the members in bytes ``start`` to ``stop`` of an archive, but not their data.

    The walk stops before a header that is not in the page cache, before a member whose headers are longer than
    ``WINDOW_NBYTES`` or whose data ends after ``stop``, and after ``most`` members.

    Args:
        file: Descriptor of an open file.

    Returns:
        A :class:`TarWalk`, whose positions are relative to ``start`` and whose ``ROW`` is 0.

    Raises:
        ValueError: The arguments are invalid.
    """
    if start < 0 or stop < start or most < 1:
        raise ValueError(f"cannot read {most} members between bytes {start} and {stop}")
    rows: list[tuple[int, ...]] = []
    names = bytearray()
    at, verdict, fault_at = 0, MORE, 0
    while True:
        window = _cached(file, start + at, min(WINDOW_NBYTES, stop - start - at))
        try:
            entry = _read(window, 0, len(window))
        except _Stop as end:
            verdict, position = end.args
            fault_at = 0 if verdict == MORE else at + position
            break
        room = NAME_NBYTES * most + WINDOW_NBYTES - len(names)
        is_full = entry.kind != _DIRECTORY and (len(rows) == most or len(entry.path or b"") > room)
        if is_full or at + entry.next > stop - start:
            break
        if entry.kind != _DIRECTORY:
            row = list(_row(0, entry, names))
            for column in (FIRST, DATA, NEXT):
                row[column] += at
            rows.append(tuple(row))
        at += entry.next
    table = np.array(rows, np.int64).reshape(-1, COLUMNS)
    return TarWalk(table, np.frombuffer(bytes(names), np.uint8), at, 0, verdict, fault_at)


def _cached(file: int, at: int, nbytes: int) -> NDArray[np.uint8]:
    """Return bytes of a file that are in the page cache, or no bytes."""
    window = np.empty(max(0, nbytes), np.uint8)
    try:
        got = 0 if _AT_ONCE is None else os.preadv(file, [window.data], at, _AT_ONCE)
    except OSError:
        got = 0
    return window[:got]


def find_tar_header(buffer: NDArray[np.uint8], start: int, stop: int) -> int:
    """Return the index of the first header with a valid checksum at ``start``, ``start + 512`` and so on.

    The search covers only complete headers in ``buffer[start:stop]``. Without a header, return -1.

    Raises:
        IndexError: The range is outside the buffer.
    """
    if not 0 <= start <= stop <= len(buffer):
        raise IndexError(f"bytes {start} to {stop} are outside a buffer of {len(buffer)}")
    for at in range(start, stop - BLOCK + 1, BLOCK):
        header = buffer[at : at + BLOCK].tobytes()
        if header[0] and _is_header(header):
            return at
    return -1


def _read(buffer: NDArray[np.uint8], at: int, stop: int) -> _Entry:
    """Read the headers of the member at ``at``."""
    entry = _Entry(at)
    while True:
        if at > stop - BLOCK:
            raise _Stop(MORE, at + BLOCK)
        header = buffer[at : at + BLOCK].tobytes()
        if not any(header):
            raise _Stop(END, at) if at == entry.first else _Stop(LONE_EXTENDED, at)
        if not _is_header(header):
            raise _Stop(BAD_CHECKSUM, at)
        nbytes = _number(header[124:136])
        if nbytes is None:
            raise _Stop(BAD_SIZE, at)
        kind = header[156]
        if kind not in b"LKxXg":
            return _finished(entry, header, at, nbytes)
        if nbytes > META_NBYTES or at + BLOCK + nbytes - entry.first > META_NBYTES:
            raise _Stop(BAD_EXTENDED, at)
        after = at + BLOCK + _padded(nbytes)
        if after > stop:
            raise _Stop(MORE, after)
        _extend(entry, kind, buffer[at + BLOCK : at + BLOCK + nbytes].tobytes(), at)
        at = after


def _finished(entry: _Entry, header: bytes, at: int, nbytes: int) -> _Entry:
    kind = _KINDS.get(header[156], OTHER)
    if header[156] == 0 and _text(header[:100]).endswith(b"/"):
        kind = _DIRECTORY
    if entry.is_sparse and kind == SOUND:
        kind = SPARSE
    if entry.nbytes is None:
        entry.nbytes = nbytes
    has_data = kind in (SOUND, SPARSE, OTHER)
    entry.kind, entry.data = kind, at + BLOCK
    entry.next = at + BLOCK + (_padded(entry.nbytes) if has_data else 0)
    if entry.path is None:
        prefix = _text(header[345:500]) if header[257:263] == b"ustar\0" else b""
        entry.path = (prefix + b"/" if prefix else b"") + _text(header[:100])
    return entry


def _extend(entry: _Entry, kind: int, data: bytes, at: int) -> None:
    """Apply an extended header to the member that follows it."""
    if kind == ord("L"):
        entry.path = _text(data)
    if kind not in b"xXg":
        return
    start = 0
    while start < len(data) and data[start]:
        space = data.find(b" ", start, start + 10)
        length = data[start:space] if space > start else b""
        stop = start + int(length) if length.isdigit() else -1
        equals = data.find(b"=", space + 1, stop) if stop <= len(data) and stop > space + 1 else -1
        if equals < 0 or data[stop - 1 : stop] != b"\n":
            raise _Stop(BAD_EXTENDED, at)
        _apply(entry, kind, data[space + 1 : equals], data[equals + 1 : stop - 1], at)
        start = stop


def _apply(entry: _Entry, kind: int, name: bytes, value: bytes, at: int) -> None:
    is_sparse = name.startswith(b"GNU.sparse.")
    if kind == ord("g"):
        if is_sparse or name in (b"path", b"size"):
            raise _Stop(BAD_GLOBAL, at)
    elif is_sparse:
        entry.is_sparse = True
    elif name == b"path":
        entry.path = _text(value).rstrip(b"/") if value else None
    elif name == b"size" and value:
        if not value.isdigit() or len(value) > 19 or int(value) > _MOST:
            raise _Stop(BAD_SIZE, at)
        entry.nbytes = int(value)


def _row(row: int, entry: _Entry, names: bytearray) -> tuple[int, ...]:
    path = entry.path or b""
    nbytes = entry.nbytes or 0
    key, ext = split_name(path)
    where = (row, entry.first, entry.data, nbytes, entry.next)
    if key is None:
        return (*where, 0, _IGNORED, 0, 0, 0, entry.kind)
    name, ext = len(names), ext.lower()
    names += key + b"." + ext
    return (*where, name, len(key), len(ext), name_hash(key), name_hash(ext), entry.kind)


def split_name(path: bytes) -> tuple[bytes | None, bytes]:
    """Split a path into key and extension, as the WebDataset library does. The key is None for an ignored member."""
    first, _, _ = path.partition(b"/")
    if len(first) >= 4 and first.startswith(b"__") and first.endswith(b"__"):
        return None, b""
    base = path.rfind(b"/") + 1
    dot = path.find(b".", base)
    if dot < 0:
        return None, b""
    if dot == base:  # a hidden file: the key is its folder
        folder = path[path.rfind(b"/", 0, max(0, base - 1)) + 1 : base]
        if not folder or b"." in folder:
            return None, b""
    return path[:dot], path[dot + 1 :]


def _is_header(header: bytes) -> bool:
    stored = _octal(header[148:156])
    if stored is None:
        return False
    rest = header[:148] + b" " * 8 + header[156:]
    unsigned = sum(rest)
    return stored in (unsigned, unsigned - 256 * sum(byte > 127 for byte in rest))


def _number(field: bytes) -> int | None:
    """Return a number in octal digits or in base 256; None if it is invalid, negative or too large."""
    if field[0] < 128:
        return _octal(field)
    value = int.from_bytes(field[1:], "big")
    return value if field[0] == 128 and value <= _MOST else None


def _octal(field: bytes) -> int | None:
    digits = _text(field).strip(b" ")
    if any(digit not in b"01234567" for digit in digits):
        return None
    return int(digits or b"0", 8)


def _text(field: bytes) -> bytes:
    return field.partition(b"\0")[0]


def _padded(nbytes: int) -> int:
    return (nbytes + BLOCK - 1) // BLOCK * BLOCK


def name_hash(data: bytes) -> int:
    """Return the 64-bit FNV-1a hash as a signed integer."""
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value - (1 << 64) if value >> 63 else value
