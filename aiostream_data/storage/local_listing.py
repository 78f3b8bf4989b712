"""Find local files, and tell their size and version. Blocking."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from itertools import islice
from typing import Final

from aiostream_data.arguments import shown
from aiostream_data.errors import ObjectNotFoundError
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.near_names import nearest_names
from aiostream_data.storage.patterns import compile_pattern, escaped, hint_of, plan_listing

NAMED_FILES: Final = 5
"""Files of a folder that the message names in which nothing matches."""

LISTED_FILES: Final = 10_000
"""Files of such a folder that are looked at; a folder may hold millions."""


def file_info(path: str) -> ShardRef:
    """Return size and version of a file.

    Raises:
        OSError: There is none, or it is a directory.
        ObjectNotFoundError: It is a pipe, a device or a socket.
    """
    status = os.stat(path)
    check_regular(path, status)
    return _shard(path, status)


def check_regular(path: str, status: os.stat_result) -> None:
    """Refuse what is not a file with content of its own.

    Raises:
        IsADirectoryError, ObjectNotFoundError: It is something else.
    """
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError
    if not stat.S_ISREG(status.st_mode):
        raise ObjectNotFoundError(path, "is not a regular file")


def file_version(status: os.stat_result) -> str:
    """Return what changes when the file is written to, and stays when it is copied with its times."""
    return f"{status.st_mtime_ns:x}-{status.st_size:x}"


def match_files(pattern: str) -> list[ShardRef]:
    """Return the regular files matching ``pattern``, sorted by path, wildcards not matching hidden names."""
    root = plan_listing(pattern).prefix.rpartition("/")[0]
    root = root or ("/" if pattern.startswith("/") else "")
    below = pattern[len(root) :].lstrip("/").split("/")
    if "**" in below:
        found = _walk(root, compile_pattern(pattern, skip_hidden=True))
    else:
        found = _descend(root, [compile_pattern(segment, skip_hidden=True) for segment in below])
    return sorted(found, key=lambda shard: shard.url)


def why_missing(path: str) -> str:
    """Return the same for a path without wildcards; "" where something is there."""
    return "" if os.path.exists(path) else why_no_match(path)


def why_no_match(pattern: str) -> str:
    """Return a clause that says why no file matches a pattern, or "" where that is not known."""
    if os.path.exists(pattern):
        return f"; there is a file of this very name: write {escaped(pattern)} for it, since *, ? and [ are wildcards"
    root = plan_listing(pattern).prefix.rpartition("/")[0]
    if root and not os.path.isdir(root):
        return f"; there is no folder {root}"
    wanted = pattern[len(root) :].lstrip("/").partition("/")[0]
    return hint_of(pattern) or _holds(root or ("/" if pattern.startswith("/") else "."), wanted)


def _holds(folder: str, wanted: str) -> str:
    """Return a clause that names the files of a folder that are most like a name or pattern, and counts the others."""
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
    return f"; the folder holds {', '.join(map(shown, near))}{f' and {at_least}{others:,} more' if others else ''}"


def _shard(path: str, status: os.stat_result) -> ShardRef:
    return ShardRef(path, status.st_size, file_version(status))


def _descend(directory: str, segments: list[re.Pattern[str]]) -> Iterator[ShardRef]:
    """Look level by level, only into directories whose names match."""
    first, rest = segments[0], segments[1:]
    for path, entry in _entries(directory):
        if not first.fullmatch(entry.name):
            continue
        if rest:
            if entry.is_dir():
                yield from _descend(path, rest)
        else:
            yield from _file(path, entry)


def _walk(directory: str, matches: re.Pattern[str]) -> Iterator[ShardRef]:
    """Look everywhere. Links to directories are not followed, because they may form a circle."""
    for path, entry in _entries(directory):
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(path, matches)
        elif matches.fullmatch(path):
            yield from _file(path, entry)


def _entries(directory: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    prefix = directory if not directory or directory.endswith("/") else directory + "/"
    try:
        with os.scandir(directory or ".") as listing:
            entries = list(listing)
    except (FileNotFoundError, NotADirectoryError):
        return  # gone, or never there: it holds no match
    for entry in entries:
        yield prefix + entry.name, entry


def _file(path: str, entry: os.DirEntry[str]) -> Iterator[ShardRef]:
    try:
        status = entry.stat()
    except FileNotFoundError:
        return  # a dangling link
    if stat.S_ISREG(status.st_mode):
        yield _shard(path, status)
