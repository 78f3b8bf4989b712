"""Find the files with the resource limits of this process, in cgroups (Linux control groups) of version 1 and 2."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Final

CGROUPS: Final = Path("/sys/fs/cgroup")
OWN_CGROUPS: Final = Path("/proc/self/cgroup")
_MOST_DIGITS: Final = 19


def read_text(path: Path) -> str:
    """Return the contents of a file, or "" if the file cannot be read because this cgroup version is not in use."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def number_in(word: str) -> int | None:
    """Parse a number from a cgroup file; return None for "max", "-1" and "".

    Checking the digits first avoids a ValueError from int(). In CPython, this ValueError can replace a
    KeyboardInterrupt.
    """
    return int(word) if word.isascii() and word.isdecimal() and len(word) <= _MOST_DIGITS else None


@lru_cache(maxsize=16)  # called whenever a loader is opened
def limit_files(own: str, controller: str, file_v1: str, file_v2: str) -> tuple[PurePosixPath, ...]:
    """Return the paths of files that can contain a limit, relative to the mount point of the cgroup file system.

    In a container, the cgroup of the process is usually the root of the mounted cgroup file system. In a service or
    batch job, ``own`` names the cgroup, and each parent cgroup can have its own limit.

    Args:
        own: Contents of ``/proc/self/cgroup``, with one line ``number:controllers:path`` per hierarchy.
        controller: Name of the cgroup controller, such as "memory".
        file_v1, file_v2: Names of the limit file in cgroups of version 1 and of version 2.
    """
    return tuple(_limit_files(own, controller, file_v1, file_v2))


def _limit_files(own: str, controller: str, file_v1: str, file_v2: str) -> Iterator[PurePosixPath]:
    mounts_v1 = dict.fromkeys([controller, *(listed for listed, _ in _lines(own) if controller in listed.split(","))])
    for mount in ("", "unified"):  # "unified" if both versions are mounted
        yield PurePosixPath(mount, file_v2)
    for mount in mounts_v1:
        yield PurePosixPath(mount, file_v1)
    for controllers, path in _lines(own):
        places = [place for place in _and_above(path) if ".." not in place.parts]
        if controllers == "":
            yield from (PurePosixPath(mount, place, file_v2) for mount in ("", "unified") for place in places)
        elif controller in controllers.split(","):
            yield from (PurePosixPath(mount, place, file_v1) for mount in mounts_v1 for place in places)


def _lines(own: str) -> Iterator[tuple[str, str]]:
    """Yield the controllers and the path of each cgroup hierarchy."""
    for line in own.splitlines():
        _, separator, rest = line.partition(":")
        controllers, other, path = rest.partition(":")
        if separator and other:
            yield controllers, path


def _and_above(path: str) -> list[PurePosixPath]:
    place = PurePosixPath(path.lstrip("/"))
    return [place, *place.parents][:-1]
