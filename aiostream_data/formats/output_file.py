"""Output files that appear under their name complete, or not at all."""

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
"""Codes of file systems without fsync."""

_LOCAL_PREFIXES: Final = ("file://", "local://")
_STORES: Final = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs"}
"""By scheme: the store whose options are checked."""


class OutputTarget(Protocol):
    """A file that is either committed whole or leaves no trace."""

    def write(self, data: bytes) -> None: ...

    def commit(self) -> None: ...

    def discard(self) -> None:
        """Remove the unfinished file. Idempotent; do nothing after a commit."""


def open_target(url: str, storage_options: Mapping[str, Any]) -> OutputTarget:
    """Open a file that appears under its name when it is committed.

    Raises:
        PlanError: An option has the name that another library has for it.
        MissingExtraError: fsspec is needed for this URL, and not installed.
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
            f"{safe_url(url)}: writing there needs the extra: pip install 'aiostream-data[fsspec]'"
        ) from error
    with _library_errors(url, storage_options):
        filesystem, path = url_to_fs(url, **storage_options)
        if isinstance(filesystem, MemoryFileSystem):  # it shows a file from the moment it is opened
            return _MemoryTarget(filesystem, path)
        return _FsspecTarget(filesystem.open(path, "wb", autocommit=False), url, storage_options)


class LocalTarget:
    """A local file: written under a temporary name beside its place, then renamed.

    The file is unbuffered, so a failed write leaves nothing that a later close could write.

    Raises:
        WriteError: Something other than a regular file has that name, or the temporary file cannot be created.
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
    """A file of fsspec's memory file system, stored in one step."""

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
    """An upload in parts, which become an object on commit. The file is fsspec's ``AbstractBufferedFile``."""

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
        # The caller has an error of its own to raise, and stores expire unfinished uploads.
        with suppress(Exception):
            self._file.discard()
        try:
            self._file.closed = True  # otherwise the garbage collector would finish the upload
        except AttributeError:
            with suppress(Exception):
                self._file.close()


def _check_replaceable(path: Path) -> None:
    """Refuse a directory, device or pipe: renaming the complete file would fail, or would replace it."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return
    if stat.S_ISDIR(mode):
        raise WriteError(str(path), "is a directory; write to a new name", errno.EISDIR)
    if not stat.S_ISREG(mode):
        raise WriteError(str(path), "not a regular file; write to a new name", errno.EINVAL)


def _sync(file: FileIO) -> None:
    """Write the file to its disk, so that neither a full disk nor a power cut is found after the rename."""
    try:
        os.fsync(file.fileno())
    except OSError as error:
        if error.errno not in _NO_FSYNC:
            raise


@contextmanager
def _library_errors(url: str, storage_options: Mapping[str, Any]) -> Iterator[None]:
    """Raise WriteError for any exception of fsspec, without the secrets of the URL and the options."""
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
