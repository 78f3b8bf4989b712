"""Atomic output files: an output file appears under its name only when the file is complete."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import FileIO
from itertools import count
from pathlib import Path
from typing import Any, Final, Protocol

from aiostream_data.errors import MissingExtraError, WriteError
from aiostream_data.option_names import check_options
from aiostream_data.redaction import hiding
from aiostream_data.safe_url import safe_url, shorten

_numbers = count()
_NO_FSYNC: Final = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
"""Error codes from file systems that do not support fsync."""

_LOCAL_PREFIXES: Final = ("file://", "local://")
_STORES: Final = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs"}
"""Store type for each URL scheme, used to validate the storage options."""


class OutputTarget(Protocol):
    """An output file that is stored completely on commit. Without a commit, no output file is stored."""

    def write(self, data: bytes) -> None: ...

    def commit(self) -> None: ...

    def discard(self) -> None:
        """Remove the unfinished file. Calling :meth:`discard` again, or after a commit, has no effect."""


def open_target(url: str, storage_options: Mapping[str, Any]) -> OutputTarget:
    """Open an output file that appears under its name when the file is committed.

    Args:
        url: Local path, or any URL that fsspec can write.
        storage_options: Options for fsspec.

    Raises:
        PlanError: An option uses another library's name for this option.
        MissingExtraError: This URL requires the package fsspec, which is not installed.
        OSError: The file cannot be created.
    """
    prefix = next((prefix for prefix in _LOCAL_PREFIXES if url.startswith(prefix)), "")
    if prefix or "://" not in url:
        return LocalTarget(Path(os.path.expanduser(url.removeprefix(prefix))))
    if (store := _STORES.get(url.partition("://")[0])) is not None:
        check_options(store, storage_options)
    try:
        from fsspec.core import url_to_fs
        from fsspec.implementations.memory import MemoryFileSystem
    except ImportError as error:
        raise MissingExtraError(
            f"cannot write {safe_url(url)} without fsspec: pip install 'aiostream-data[fsspec]'"
        ) from error
    with _library_errors(url, storage_options):
        filesystem, path = url_to_fs(url, **storage_options)
        if isinstance(filesystem, MemoryFileSystem):  # this file system would show an unfinished file
            return _MemoryTarget(filesystem, path)
        return _FsspecTarget(filesystem.open(path, "wb", autocommit=False), url, storage_options)


class LocalTarget:
    """Local output file that is written under a temporary name in the target folder and then renamed.

    Writes are unbuffered, so closing the file after a failed write does not write remaining data.

    Raises:
        WriteError: The path exists and is not a regular file, or the temporary file cannot be created.
    """

    def __init__(self, path: Path) -> None:
        _check_replaceable(path)
        self._path = path
        self._partial = path.with_name(f"{path.name}.{os.getpid()}-{next(_numbers)}.partial")
        with _os_errors(path):
            self._file = FileIO(self._partial, "xb")

    def write(self, data: bytes) -> None:
        with _os_errors(self._path):
            left = memoryview(data)
            while left:
                left = left[self._file.write(left) :]

    def commit(self) -> None:
        with _os_errors(self._path):
            _sync(self._file)
            self._file.close()
            self._partial.replace(self._path)

    def discard(self) -> None:
        try:
            self._file.close()
        finally:
            self._partial.unlink(missing_ok=True)


class _MemoryTarget:
    """Output file in fsspec's memory file system, stored in one step on commit."""

    def __init__(self, filesystem: Any, path: str) -> None:
        self._filesystem = filesystem
        self._path = path
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> None:
        self._parts.append(data)

    def commit(self) -> None:
        self._filesystem.pipe_file(self._path, b"".join(self._parts))

    def discard(self) -> None:
        self._parts.clear()


class _FsspecTarget:
    """Multipart upload to a store; the object appears on commit. ``file`` is fsspec's ``AbstractBufferedFile``."""

    def __init__(self, file: Any, url: str, storage_options: Mapping[str, Any]) -> None:
        self._file = file
        self._url = url
        self._storage_options = storage_options

    def write(self, data: bytes) -> None:
        with _library_errors(self._url, self._storage_options):
            self._file.write(data)

    def commit(self) -> None:
        with _library_errors(self._url, self._storage_options):
            self._file.close()
            self._file.commit()

    def discard(self) -> None:
        # Ignore failures: the caller raises another error, and stores delete unfinished uploads after some time.
        with suppress(Exception):
            self._file.discard()
        try:
            self._file.closed = True  # prevents the garbage collector from finishing the upload
        except AttributeError:
            with suppress(Exception):
                self._file.close()


def _check_replaceable(path: Path) -> None:
    """Raise an error if the path is a directory, device or pipe, which the final rename cannot or must not replace."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return
    if stat.S_ISDIR(mode):
        raise WriteError(str(path), "is a directory; write to a new name", errno.EISDIR)
    if not stat.S_ISREG(mode):
        raise WriteError(str(path), "not a regular file; write to a new name", errno.EINVAL)


def _sync(file: FileIO) -> None:
    """Flush the file to disk before the rename, so that a full disk or a power failure cannot damage the new file."""
    try:
        os.fsync(file.fileno())
    except OSError as error:
        if error.errno not in _NO_FSYNC:
            raise


@contextmanager
def _library_errors(url: str, storage_options: Mapping[str, Any]) -> Iterator[None]:
    """Convert any fsspec exception to a WriteError that contains no secrets from the URL or the options."""
    with hiding(storage_options, url):
        try:
            yield
        except Exception as error:
            told = shorten(str(error))
            reason = f"cannot write the file: {type(error).__name__}{': ' if told else ''}{told}"
            number = error.errno if isinstance(error, OSError) else None
            raise WriteError(url, f"{reason}; nothing was stored under this name", number) from error


@contextmanager
def _os_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = f"cannot write the file: {error.strerror or error}; nothing was stored under this name"
        raise WriteError(str(path), reason, error.errno) from error
