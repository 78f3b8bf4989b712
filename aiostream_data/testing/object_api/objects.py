"""Objects stored by a test server.

Each object version is stored in a file, so that the kernel can send the version directly.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from aiostream_data._native import crc32c

_INVERTED = bytes(255 - value for value in range(256))


@dataclass(frozen=True, slots=True)
class StoredObject:
    """Immutable version of a stored object. A replaced version stays readable while a reference to this version exists.

    Attributes:
        name: Object name: ``bucket/key``, or a path.
        path: File that contains this object version; None for the server's own file.
        offset: Offset of this object version in its file.
        nbytes: Size in bytes.
        etag: ETag of this object version, including the quotes.
        generation: Version number; each new version of any object gets a higher number.
        md5, crc32, crc32c: Checksums of the content, or None if they were not computed.
        modified_s: Time of the last modification in seconds since the Unix epoch.
    """

    name: str
    path: Path | None
    offset: int
    nbytes: int
    etag: str
    generation: int
    modified_s: float
    md5: bytes | None = None
    crc32: int | None = None
    crc32c: int | None = None


@dataclass(frozen=True, slots=True)
class Slice:
    """Slice of an object: the bytes from ``start`` (inclusive) to ``stop`` (exclusive)."""

    stored: StoredObject
    start: int
    stop: int

    @property
    def nbytes(self) -> int:
        return self.stop - self.start


class Objects:
    """All objects of a test server. This class is thread-safe. :meth:`close` releases the server's unnamed file."""

    def __init__(self) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - open for the life of this object
        self._end = 0
        self._lock = threading.Lock()
        self._generation = int(time.time() * 1e6)
        self._found: dict[str, StoredObject] = {}
        self._keys: dict[str, list[str]] | None = None
        self.buckets: set[str] = set()

    def put(self, name: str, data: bytes) -> StoredObject:
        """Store ``data`` as a new version of object ``name``; create the bucket if it is missing."""
        digest = hashlib.md5(data, usedforsecurity=False)
        with self._lock:
            offset, self._end = self._end, self._end + len(data)
        rest, place = memoryview(data), offset
        while rest:
            written = os.pwrite(self._file.fileno(), rest, place)
            rest, place = rest[written:], place + written
        stored = StoredObject(
            name, None, offset, len(data), f'"{digest.hexdigest()}"', self._next_generation(), float(int(time.time())),
            digest.digest(), zlib.crc32(data), crc32c(data),
        )  # fmt: skip
        return self._keep(stored)

    def put_file(self, name: str, path: Path) -> StoredObject:
        """Serve the file at ``path`` as object ``name`` without reading it.

        The ETag is derived from the size and modification time of the file.
        """
        told = path.stat()
        etag = f'"{told.st_mtime_ns:x}-{told.st_size:x}"'
        stored = StoredObject(name, path, 0, told.st_size, etag, self._next_generation(), float(int(told.st_mtime)))
        return self._keep(stored)

    def put_folder(self, bucket: str, folder: Path) -> int:
        """Serve every file under ``folder`` as ``bucket/relative/path``; return the number of files."""
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        for path in files:
            self.put_file(f"{bucket}/{path.relative_to(folder).as_posix()}", path)
        return len(files)

    def invert(self, name: str) -> StoredObject:
        """Replace an object by an object of equal size with all bytes inverted."""
        stored = self._found[name]
        return self.put(name, self.read(Slice(stored, 0, stored.nbytes)).translate(_INVERTED))

    def delete(self, name: str) -> None:
        """Delete an object; deleting a missing object is not an error."""
        with self._lock:
            self._found.pop(name, None)
            self._keys = None

    def get(self, name: str) -> StoredObject | None:
        """Return the newest version of an object."""
        return self._found.get(name)

    def keys(self, bucket: str) -> Sequence[str]:
        """Return the keys of a bucket in byte order, ready for binary search."""
        with self._lock:
            if self._keys is None:
                self._keys = {}
                for name in sorted(self._found):
                    found, _, key = name.partition("/")
                    self._keys.setdefault(found, []).append(key)
            return self._keys.get(bucket, ())

    def read(self, part: Slice) -> bytes:
        """Read and return the bytes of an object slice."""
        with self.opened(part.stored) as descriptor:
            return os.pread(descriptor, part.nbytes, part.stored.offset + part.start)

    @contextmanager
    def opened(self, stored: StoredObject) -> Iterator[int]:
        """Yield the descriptor of the file that contains an object."""
        if stored.path is None:
            yield self._file.fileno()
            return
        descriptor = os.open(stored.path, os.O_RDONLY)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._file.close()

    def _keep(self, stored: StoredObject) -> StoredObject:
        with self._lock:
            if stored.name not in self._found:
                self._keys = None
            self.buckets.add(stored.name.partition("/")[0])
            self._found[stored.name] = stored
        return stored

    def _next_generation(self) -> int:
        with self._lock:
            self._generation += 1
            return self._generation
