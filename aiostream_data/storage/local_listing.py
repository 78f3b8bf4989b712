"""Find local files and return their size and version. All functions block."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice
from typing import Final

from aiostream_data.arguments import shown
from aiostream_data.errors import ObjectNotFoundError
from aiostream_data.rows.records import ShardRef
from aiostream_data.rows.shard_table import ShardTable, ShardTableWriter
from aiostream_data.storage.near_names import nearest_names
from aiostream_data.storage.patterns import compile_pattern, escaped, hint_of, plan_listing

NAMED_FILES: Final = 5
"""Maximum number of files in the folder that the message of a NoMatchError lists."""

LISTED_FILES: Final = 10_000
"""Maximum number of directory entries read for a NoMatchError message. A folder may contain millions of entries."""


def file_info(path: str) -> ShardRef:
    """Return the size and version of a file.

    Raises:
        OSError: The file does not exist or is a directory.
        ObjectNotFoundError: The path is a pipe, a device or a socket.
    """
    status = os.stat(path)
    check_regular(path, status)
    return _shard(path, status)


def file_infos(paths: Sequence[str]) -> list[ShardRef | None]:
    """Return the size and version of each file; None if :func:`file_info` raises an error."""
    found: list[ShardRef | None] = []
    for path in paths:
        try:
            status = os.stat(path)
        except (OSError, ValueError):
            found.append(None)
            continue
        found.append(_shard(path, status) if stat.S_ISREG(status.st_mode) else None)
    return found


def check_regular(path: str, status: os.stat_result) -> None:
    """Check that a path is a regular file.

    Raises:
        IsADirectoryError: The path is a directory.
        ObjectNotFoundError: The path is a pipe, a device or a socket.
    """
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError
    if not stat.S_ISREG(status.st_mode):
        raise ObjectNotFoundError(path, "is not a regular file")


def file_version(status: os.stat_result) -> str:
    """Return the version of a file: its modification time and size.

    Copies with the same modification time have the same version.
    """
    return f"{status.st_mtime_ns:x}-{status.st_size:x}"


def mtime_of(version: str) -> int:
    """Return the modification time in a file's version, in nanoseconds; -1 if the version is unknown."""
    mtime, _, size = version.partition("-")
    try:
        return int(mtime, 16) if size else -1
    except ValueError:
        return -1


def match_files(pattern: str) -> ShardTable:
    """Return the regular files matching ``pattern``, sorted by path. Wildcards do not match names of hidden files."""
    root = plan_listing(pattern).prefix.rpartition("/")[0]
    root = root or ("/" if pattern.startswith("/") else "")
    below = pattern[len(root) :].lstrip("/").split("/")
    if "**" in below:
        found = _walk(root, compile_pattern(pattern, skip_hidden=True))
    else:
        found = _descend(root, [compile_pattern(segment, skip_hidden=True) for segment in below])
    start = _as_prefix(root)
    files = ShardTableWriter(start)
    for path in found:
        _add_file(files, start, path)
    return files.table()


def match_folders(pattern: str) -> ShardTable:
    """Return the folders matching a pattern such as ``root/*/``. Links to folders count, hidden folders do not."""
    found = _descend(pattern.removesuffix("*/"), [compile_pattern("*", skip_hidden=True)])
    return ShardTable.of(ShardRef(path + "/", 0) for path in found if os.path.isdir(path))


def why_missing(path: str) -> str:
    """Explain why a path without wildcards was not found, for an error message. Return "" if the path exists."""
    return "" if os.path.exists(path) else why_no_match(path)


def why_no_match(pattern: str) -> str:
    """Explain why no file matches a pattern, for an error message. Return "" if the reason is unknown."""
    if os.path.exists(pattern):
        return f"; a file with this exact name exists: escape its wildcards *, ? and [ as {escaped(pattern)}"
    root = plan_listing(pattern).prefix.rpartition("/")[0]
    if root and not os.path.isdir(root):
        return f"; folder {root} does not exist"
    wanted = pattern[len(root) :].lstrip("/").partition("/")[0]
    return hint_of(pattern) or _holds(root or ("/" if pattern.startswith("/") else "."), wanted)


def _holds(folder: str, wanted: str) -> str:
    """For an error message, list the folder's file names most similar to ``wanted``, and count the other files."""
    try:
        with os.scandir(folder) as listing:
            names = [entry.name + "/" * entry.is_dir() for entry in islice(listing, LISTED_FILES)]
    except OSError:
        return ""
    if not names:
        return "; the folder is empty"
    near = nearest_names(wanted, names, NAMED_FILES)
    others = len(names) - len(near)
    at_least = "at least " if len(names) == LISTED_FILES else ""
    return f"; the folder contains {', '.join(map(shown, near))}{f' and {at_least}{others:,} more' if others else ''}"


def _shard(path: str, status: os.stat_result) -> ShardRef:
    return ShardRef(path, status.st_size, file_version(status))


def _descend(directory: str, segments: list[re.Pattern[str]]) -> Iterator[str]:
    """Yield the matching paths in order, one directory level after another.

    Only directories with matching names are scanned.
    """
    first, rest = segments[0], segments[1:]

    def is_wanted(entry: os.DirEntry[str]) -> bool:
        return bool(first.fullmatch(entry.name)) and (not rest or entry.is_dir())

    for path in _entries(directory, is_wanted, None if rest else ()):
        if rest:
            yield from _descend(path, rest)
        else:
            yield path


def _walk(directory: str, matches: re.Pattern[str]) -> Iterator[str]:
    """Yield the matching paths of a directory tree in order.

    Links to directories may form cycles and are not followed.
    """
    directories: set[str] = set()
    prefix = _as_prefix(directory)

    def is_wanted(entry: os.DirEntry[str]) -> bool:
        if entry.is_dir(follow_symlinks=False):
            directories.add(prefix + entry.name)
            return True
        return bool(matches.fullmatch(prefix + entry.name))

    for path in _entries(directory, is_wanted, directories):
        if path in directories:
            yield from _walk(path, matches)
        else:
            yield path


def _entries(
    directory: str, is_wanted: Callable[[os.DirEntry[str]], bool], directories: Collection[str] | None = None
) -> Iterator[str]:
    """Yield the paths of the wanted entries of a directory, so that the paths below them are in order too.

    Only the names are kept, because a directory may have millions of entries.

    Args:
        directories: Paths of the entries that are directories, known after the directory was scanned; None for all.
    """
    prefix = _as_prefix(directory)
    try:
        with os.scandir(directory or ".") as listing:
            names = [entry.name for entry in listing if is_wanted(entry)]
    except (FileNotFoundError, NotADirectoryError):
        return  # a missing directory contains no match
    names.sort(key=lambda name: name + "/" if directories is None or prefix + name in directories else name)
    for name in names:
        yield prefix + name


def _as_prefix(directory: str) -> str:
    """Return the text before the names of the entries of a directory."""
    return directory if not directory or directory.endswith("/") else directory + "/"


def _add_file(files: ShardTableWriter, prefix: str, path: str) -> None:
    """Add the file ``path``, which begins with ``prefix``, unless it is not a regular file."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return  # a dangling link
    if stat.S_ISREG(status.st_mode):
        files.add(path[len(prefix) :], status.st_size, file_version(status))
