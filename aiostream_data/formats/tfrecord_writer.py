"""Write TFRecord files: local ones, and through fsspec any other."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Protocol, Self

from aiostream_data import _native
from aiostream_data.codecs.compression import canonical, compressor
from aiostream_data.errors import MissingExtraError
from aiostream_data.formats.tfrecord import FOOTER, HEADER

_LENGTH_NBYTES = 8
_WRITE_NBYTES = 1 << 20


def frame(record: bytes) -> bytes:
    """Return ``record`` as it stands in a TFRecord file: length, checksum, payload, checksum."""
    length = len(record).to_bytes(_LENGTH_NBYTES, "little")
    header = HEADER.pack(len(record), _native.masked_crc32c(length))
    return b"".join((header, record, FOOTER.pack(_native.masked_crc32c(record))))


class TFRecordWriter:
    """Writes one TFRecord file; the counterpart of ``tf.io.TFRecordWriter``. Not thread-safe.

    Use it as a context manager. The file appears under its name only when it is complete: leaving the
    block with an exception discards what was written, for a file cut between two records could not be
    told from a complete one. Stores that cannot hold an upload back are the exception.

    Args:
        path_or_url: A local path, ``file://`` URL, or any URL that fsspec can write.
        compression: ``""``, ``"gzip"``, ``"zlib"`` or ``"zstd"``, in upper or lower case.
        storage_options: For fsspec.

    Raises:
        PlanError: There is no such compression.
        MissingExtraError: fsspec or the compression's package is not installed.
        OSError: The file cannot be written.
    """

    def __init__(
        self,
        path_or_url: str | os.PathLike[str],
        compression: str = "",
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self._compressor = compressor(canonical(compression))
        self._waiting = bytearray()
        self._target: Target | None = open_target(os.fspath(path_or_url), storage_options or {})

    def write(self, record: bytes) -> None:
        """Append one record.

        Raises:
            ValueError: The writer was closed.
        """
        if self._target is None:
            raise ValueError("this TFRecordWriter was closed")
        self._waiting += self._compressor.compress(frame(record))
        if len(self._waiting) >= _WRITE_NBYTES:
            self._target.write(bytes(self._waiting))
            self._waiting.clear()

    def close(self) -> None:
        """Finish the file and give it its name. Idempotent."""
        if self._target is None:
            return
        target, self._target = self._target, None
        try:
            target.write(bytes(self._waiting) + self._compressor.flush())
            target.commit()
        except BaseException:
            target.discard()
            raise

    def discard(self) -> None:
        """Drop the file instead of finishing it. Idempotent."""
        if self._target is not None:
            target, self._target = self._target, None
            target.discard()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()


class Target(Protocol):
    """A file that is either committed whole or leaves no trace."""

    def write(self, data: bytes) -> None: ...

    def commit(self) -> None: ...

    def discard(self) -> None: ...


def open_target(url: str, storage_options: Mapping[str, Any]) -> Target:
    """Begin a file that appears under its name when it is committed.

    Raises:
        MissingExtraError: fsspec is needed for this URL, and not installed.
        OSError: It cannot be written.
    """
    if "://" not in url or url.startswith("file://"):
        return _LocalTarget(Path(url.removeprefix("file://")))
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise MissingExtraError(
            f"{url}: writing there needs the extra: pip install 'aiostream-data[fsspec]'"
        ) from error
    filesystem, path = url_to_fs(url, **storage_options)
    return _FsspecTarget(filesystem.open(path, "wb", autocommit=False))


class _LocalTarget:
    """Written beside its place, then renamed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
        self._file: BinaryIO = self._partial.open("wb")

    def write(self, data: bytes) -> None:
        self._file.write(data)

    def commit(self) -> None:
        self._file.close()
        self._partial.replace(self._path)

    def discard(self) -> None:
        self._file.close()
        self._partial.unlink(missing_ok=True)


class _FsspecTarget:
    """Uploaded in parts, which become an object on commit. The file is fsspec's ``AbstractBufferedFile``."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, data: bytes) -> None:
        self._file.write(data)

    def commit(self) -> None:
        self._file.close()
        self._file.commit()

    def discard(self) -> None:
        # Whoever discards has an error of their own to report, and stores drop unfinished uploads in time.
        with suppress(Exception):
            self._file.discard()
        self._file.closed = True  # or the garbage collector would finish the upload
