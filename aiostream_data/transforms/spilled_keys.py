"""Set of keys in an unnamed temporary file, for ``unique(spill=)``.

How this works. SQLite stores a 128-bit hash of each key in the primary key of a table. Its page cache is the only part
of the table in memory. All keys belong to one transaction without a journal, because nobody reads the file again. The
file has no name after it was opened, so the system deletes it when the process ends, even after a crash.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import suppress
from hashlib import blake2b
from itertools import chain
from tempfile import mkstemp
from typing import Any, Final

from aiostream_data.errors import SpillError

DIGEST_NBYTES: Final = 16

LEAST_CACHE_NBYTES: Final = 1 << 20
"""Minimum size in bytes of the page cache."""

ROW_NBYTES: Final = 40
"""Approximate size of a key in the file, in bytes: its hash, and the free space in pages of a tree."""

_INSERT: Final = "INSERT OR IGNORE INTO keys VALUES (?)"


def digest_of(key: Any) -> bytes:
    """Return a 128-bit hash of a small key. Keys that are equal in Python, such as 1 and 1.0, have equal hashes."""
    return blake2b(b"".join(_parts(key)), digest_size=DIGEST_NBYTES).digest()


def _parts(key: Any) -> Iterator[bytes]:
    """Yield bytes that differ between keys that differ. The length comes first, so parts cannot be confused."""
    if isinstance(key, tuple):
        yield b"t%d:" % len(key)
        yield from chain.from_iterable(map(_parts, key))
        return
    kind, content = _content(key)
    yield b"%b%d:" % (kind, len(content))
    yield content


def _content(key: Any) -> tuple[bytes, bytes]:
    if isinstance(key, str):
        return b"s", key.encode("utf-8", "surrogatepass")
    if isinstance(key, bytes):
        return b"b", key
    if key is None:
        return b"n", b""
    if isinstance(key, (int, float, complex)):
        return b"d", _number(key).encode()
    return b"m", repr((key.kind, key.digest)).encode()


def _number(number: complex) -> str:
    """Return the text of a number. Equal numbers of several types have equal texts."""
    if isinstance(number, complex):
        if number.imag:
            return f"{_number(number.real)} {_number(number.imag)}"
        number = number.real
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    return f"{number:x}" if isinstance(number, int) else repr(number)


class SpilledKeys:
    """Set of keys on disk. May be used from several threads, one after another. The owner must close it.

    Args:
        folder: Folder for the file.
        cache_nbytes: Maximum size in bytes of the part of the set that is in memory.

    Raises:
        SpillError: The folder does not exist, the disk is full, or the file cannot be read.
    """

    def __init__(self, folder: str, cache_nbytes: int) -> None:
        self._folder = folder
        self._cache_nbytes = max(LEAST_CACHE_NBYTES, cache_nbytes)
        self._count = 0
        try:
            self._table = _opened(folder, self._cache_nbytes)
        except (sqlite3.Error, OSError) as error:
            raise self._failed("cannot create the file", error) from error

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        """Size in bytes of the part of the set that is in memory."""
        return min(self._cache_nbytes, self._count * ROW_NBYTES)

    def add_all(self, keys: Iterable[Any]) -> None:
        """Add small keys, which differ from each other and from all keys of the set.

        Raises:
            SpillError: The disk is full, or the file cannot be read.
        """
        try:
            added = self._table.executemany(_INSERT, ((digest_of(key),) for key in keys))
        except sqlite3.Error as error:
            raise self._failed("cannot write keys", error) from error
        self._count += added.rowcount

    def add(self, key: Any) -> bool:
        """Add a small key. Return True if the key is new.

        Raises:
            SpillError: The disk is full, or the file cannot be read.
        """
        digest = digest_of(key)
        try:
            is_new = self._table.execute(_INSERT, (digest,)).rowcount > 0
        except sqlite3.Error as error:
            raise self._failed("cannot write keys", error) from error
        self._count += is_new
        return is_new

    def close(self) -> None:
        """Delete the file. Idempotent."""
        self._table.close()

    def _failed(self, what: str, error: Exception) -> SpillError:
        cure = "free space in the folder, or pass another folder as spill="
        return SpillError(self._folder, self._count * ROW_NBYTES, f"{what}: {error}", cure)


def _opened(folder: str, cache_nbytes: int) -> sqlite3.Connection:
    descriptor, path = mkstemp(prefix="aiostream_data-spill-", dir=folder)
    os.close(descriptor)
    table = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        for setting in ("locking_mode=EXCLUSIVE", "journal_mode=OFF", "synchronous=OFF", "temp_store=MEMORY"):
            table.execute(f"PRAGMA {setting}")
        table.execute(f"PRAGMA cache_size=-{cache_nbytes >> 10}")
        table.execute("CREATE TABLE keys (key BLOB PRIMARY KEY) WITHOUT ROWID")
        table.execute("BEGIN")
    except BaseException:
        table.close()
        raise
    finally:
        with suppress(OSError):  # Windows does not delete a file that is open
            os.unlink(path)
    return table
