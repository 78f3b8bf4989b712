"""A file of JSON lines, one for each record that was skipped or replaced, each of them once."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Sequence
from typing import Any, Final

from aiostream_data.errors import DeadLetterError

MAX_LINE_NBYTES: Final = 64 << 20
"""Longest line that is read; a record of a batch of any size is far shorter."""


class DeadLetterLog:
    """Appends entries to a file. One thread at a time appends; any may close.

    An entry goes by its ``name``. One that the file holds already is not written again, so that a run that is taken up
    again, or repeated, leaves every record in the log once.
    """

    def __init__(self, path: str) -> None:
        """Do nothing yet: the file is made with the first entry."""
        self._path = path
        self._file: int | None = None
        self._names: set[str] = set()
        self._appending = threading.Lock()
        self._closed = False

    def append(self, entries: Sequence[dict[str, Any]]) -> None:
        """Write the entries that are not there yet, in order, in one write; nothing once it was closed.

        Raises:
            DeadLetterError: The file cannot be written, or holds something else.
        """
        try:
            with self._appending:
                if not self._closed:
                    self._append(entries)
        finally:
            if self._closed:  # meanwhile, which left the file to this thread
                self.close()

    def _append(self, entries: Sequence[dict[str, Any]]) -> None:
        if self._file is None:
            self._open()
        lines = []
        for entry in entries:
            name = _name_of(entry)
            if name not in self._names:
                self._names.add(name)
                lines.append(json.dumps(entry, default=str) + "\n")
        self._write("".join(lines).encode())

    def close(self) -> None:
        """Close the file, as soon as nobody writes to it. Idempotent, and never waits."""
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
        self._names = {_name_of(entry) for entry in read_entries(self._path)}
        size = os.fstat(self._file).st_size
        if size and os.pread(self._file, 1, size - 1) != b"\n":  # cut short by a kill in the middle of a write
            self._write(b"\n")

    def _write(self, data: bytes) -> None:
        assert self._file is not None
        try:
            while data:
                data = data[os.write(self._file, data) :]
        except OSError as error:
            raise DeadLetterError(f"the dead-letter log {self._path} cannot be written: {error}") from error


def read_entries(path: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    """Yield the entries of a log, in order; a line that a kill has cut short is passed over.

    Raises:
        DeadLetterError: There is no such file, or it is no dead-letter log; names the line.
    """
    try:
        with open(path, "rb") as file:
            number = 0
            while line := file.readline(MAX_LINE_NBYTES + 1):
                number += 1
                if len(line) > MAX_LINE_NBYTES:
                    raise DeadLetterError(f"{path} is no dead-letter log: line {number} is too long")
                entry = _parsed(line)
                if entry is not None:
                    yield entry
                elif _may_be_cut_short(line):
                    continue
                else:
                    raise DeadLetterError(f"{path} is no dead-letter log: line {number} is not an entry")
    except OSError as error:
        raise DeadLetterError(f"the dead-letter log {path} cannot be read: {error}") from error


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    known = isinstance(entry, dict) and isinstance(entry.get("name"), list) and isinstance(entry.get("row"), dict)
    return entry if known else None


def _may_be_cut_short(line: bytes) -> bool:
    return line.startswith(b'{"url": ') or not line.strip()


def _name_of(entry: dict[str, Any]) -> str:
    return json.dumps(entry["name"])
