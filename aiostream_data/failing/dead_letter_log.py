"""Dead-letter log: a file with one JSON line per skipped or replaced record."""

from __future__ import annotations

import json
import os
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, Final

from aiostream_data.arguments import local_path
from aiostream_data.errors import DeadLetterError
from aiostream_data.safe_url import safe_url

if sys.platform != "win32":
    import fcntl

MAX_LINE_NBYTES: Final = 64 << 20
"""Maximum length in bytes of one line of a dead-letter log.

The lines that this module writes are far shorter than this limit.
"""

_LINE_START: Final = b'{"url": '

LOCK_S: Final = 30.0
"""Maximum time in seconds to wait while another loader or process has locked the file."""

LOCK_RETRY_S: Final = 0.01
"""Seconds between two attempts to lock the file."""


class DeadLetterLog:
    """Append-only log file of the records that failed. Thread-safe.

    Each entry has a unique ``name``. An entry is not written if the file already contains its name. Each record is
    logged only once, even if a run is resumed or repeated, or if several loaders or ranks share the file.
    """

    def __init__(self, path: str) -> None:
        """Set the path of the dead-letter log. The file is created when the first entry is written."""
        self._path = os.path.abspath(_local(path))  # user functions may change the working directory
        self._file: int | None = None
        self._read_to = 0
        self._names: set[str] = set()
        self._appending = threading.Lock()
        self._closed = False
        self._failure: BaseException | None = None

    def append(self, entries: Sequence[dict[str, Any]]) -> None:
        """Write the entries that the file does not contain yet, in order and with one write.

        Do nothing after :meth:`close`.

        Raises:
            DeadLetterError: The file cannot be written or is not a dead-letter log, or an earlier call failed.
        """
        try:
            with self._appending:
                if not self._closed:
                    self._append_or_fail(entries)
        finally:
            if self._closed:  # close() was called during the write and left closing the file to this thread
                self.close()

    def _append_or_fail(self, entries: Sequence[dict[str, Any]]) -> None:
        """Append the entries.

        After a failed write, every call raises an error, because the file may not match the names in memory.
        """
        if self._failure is not None:
            raise DeadLetterError(
                f"cannot write the dead-letter log {self._path} after an earlier failure "
                f"({type(self._failure).__name__}). Open the dataset again"
            ) from self._failure
        try:
            self._append(entries)
        except BaseException as error:
            self._failure = error
            raise

    def _append(self, entries: Sequence[dict[str, Any]]) -> None:
        if self._file is None:
            self._open()
        assert self._file is not None
        with _locked(self._file, self._path, lambda: self._closed):
            self._read_others()
            lines = []
            for entry in entries:
                name = _name_of(entry)
                if name not in self._names:
                    self._names.add(name)
                    lines.append(json.dumps(entry, default=str) + "\n")
            self._write("".join(lines).encode())

    def close(self) -> None:
        """Close the file.

        If a thread is writing to the file, that thread closes the file after the write. Idempotent; never blocks.
        """
        self._closed = True
        if self._appending.acquire(blocking=False):
            try:
                file, self._file = self._file, None
                if file is not None:
                    os.close(file)
            finally:
                self._appending.release()

    def _open(self) -> None:
        try:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0), 0o644)
        except OSError as error:
            raise DeadLetterError(f"the dead-letter log {self._path} cannot be opened: {error}") from error

    def _read_others(self) -> None:
        """Read the names of entries that other writers appended to the file.

        The caller must hold the lock of the file.
        """
        assert self._file is not None
        found = os.fstat(self._file)
        if not stat.S_ISREG(found.st_mode) or found.st_size == self._read_to:  # a pipe cannot be read back
            return
        if found.st_size < self._read_to:  # the file was truncated
            self._names, self._read_to = set(), 0
        self._names.update(map(_name_of, read_entries(self._path, self._read_to)))
        self._read_to = found.st_size
        if found.st_size and os.pread(self._file, 1, found.st_size - 1) != b"\n":  # a killed process wrote half a line
            self._write(b"\n")

    def _write(self, data: bytes) -> None:
        """Write either all bytes of ``data`` or none. An incomplete line would corrupt the next line."""
        assert self._file is not None
        left = data
        try:
            while left:
                left = left[os.write(self._file, left) :]
        except BaseException as error:
            self._take_back(len(data) - len(left))
            if isinstance(error, OSError):
                raise DeadLetterError(f"the dead-letter log {self._path} cannot be written: {error}") from error
            raise
        self._read_to += len(data)

    def _take_back(self, written: int) -> None:
        """Remove the last ``written`` bytes of the log file, unless another process has appended to the file."""
        assert self._file is not None
        with suppress(OSError):  # a pipe cannot be truncated; readers skip the partial line
            size = os.fstat(self._file).st_size
            if written and size == self._read_to + written:
                os.ftruncate(self._file, self._read_to)


@contextmanager
def _locked(file: int, path: str, given_up: Callable[[], bool]) -> Iterator[None]:
    """Lock a file, so that other loaders and processes cannot write into the file.

    On systems without file locks, the function does nothing.
    """
    until = time.monotonic() + LOCK_S
    while not _takes_lock(file):
        if given_up() or time.monotonic() > until:  # flock() has no timeout, so poll
            raise DeadLetterError(
                f"cannot lock the dead-letter log {path}: another process holds its lock. Use a separate path"
            )
        time.sleep(LOCK_RETRY_S)
    try:
        yield
    finally:
        _unlock(file)


def _takes_lock(file: int) -> bool:
    if sys.platform == "win32":
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def _unlock(file: int) -> None:
    if sys.platform == "win32":
        return
    with suppress(OSError):
        fcntl.flock(file, fcntl.LOCK_UN)


def read_entries(path: str | os.PathLike[str], start: int = 0) -> Iterator[dict[str, Any]]:
    """Yield the entries of a dead-letter log in their order in the file.

    If a process was killed during a write, the reader skips the incomplete line.

    Args:
        start: Byte offset at which reading starts; must be the beginning of a line.

    Raises:
        DeadLetterError: The file cannot be read, or is not a dead-letter log. The error message names the invalid line.
    """
    path = _local(path)
    try:
        with _opened(path) as file:
            file.seek(start)
            number = 0
            while line := file.readline(MAX_LINE_NBYTES + 1):
                number += 1
                if len(line) > MAX_LINE_NBYTES:
                    raise DeadLetterError(f"{path} is not a dead-letter log: line {number} is too long")
                entry = _parsed(line)
                if entry is not None:
                    yield entry
                elif _may_be_cut_short(line):
                    continue
                else:
                    raise DeadLetterError(f"{path} is not a dead-letter log: line {number} is not an entry")
    except OSError as error:
        raise DeadLetterError(f"the dead-letter log {path} cannot be read: {error}") from error


def _local(path: str | os.PathLike[str]) -> str:
    text = local_path("log", path)
    if "://" in text:
        raise DeadLetterError(f"a dead-letter log must be a local file, got {safe_url(path)}. Pass a path")
    return text


def _opened(path: str | os.PathLike[str]) -> BinaryIO:
    if not stat.S_ISREG(os.stat(path).st_mode):  # opening a pipe would block
        raise DeadLetterError(f"cannot read the dead-letter log {os.fspath(path)}: it is not a regular file")
    return open(path, "rb")


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    known = isinstance(entry, dict) and isinstance(entry.get("name"), list) and isinstance(entry.get("row"), dict)
    return entry if known else None


def _may_be_cut_short(line: bytes) -> bool:
    return line.startswith(_LINE_START) or _LINE_START.startswith(line.rstrip(b"\n")) or not line.strip()


def _name_of(entry: dict[str, Any]) -> str:
    return json.dumps(entry["name"])
