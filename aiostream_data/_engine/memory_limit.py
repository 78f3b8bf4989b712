"""How many bytes a loader may hold: what the user says, or a share of what the machine has."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from aiostream_data.metrics.sizes import as_nbytes

DEFAULT_FRACTION = 0.25
FALLBACK_LIMIT = 1 << 30

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")


def parse_nbytes(value: int | str) -> int:
    """Return a number of bytes from an int or a text such as ``"256MB"`` or ``"1.5 GiB"``.

    Raises:
        PlanError: It is not a positive number with a known unit.
    """
    return as_nbytes(value, "memory limit")


def default_limit() -> int:
    """Return the default budget: a quarter of the cgroup's limit, or of the machine's memory."""
    return max(64 << 20, int(_memory_of_this_process() * DEFAULT_FRACTION))


def _memory_of_this_process() -> int:
    try:
        own = OWN_CGROUPS.read_text()
    except OSError:
        own = ""  # not Linux
    limits = [_number_in(CGROUPS / file) for file in limit_files(own)]
    limits.append(_physical_memory())
    known = [limit for limit in limits if limit is not None and limit > 0]  # with 0 this process would not have started
    return min(known) if known else FALLBACK_LIMIT


def limit_files(own: str) -> Iterator[PurePosixPath]:
    """Yield the files that may say a memory limit, below where cgroups are mounted: of its cgroup and those above it.

    In a container its cgroup is usually the root. Elsewhere, as in a service or a batch job, it is named in ``own``,
    and every cgroup above it may have a limit, too.

    Args:
        own: The contents of ``/proc/self/cgroup``: a line ``number:controllers:path`` for each hierarchy.
    """
    yield PurePosixPath("memory.max")
    yield PurePosixPath("memory/memory.limit_in_bytes")
    for line in own.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        places = [place for place in _and_above(path) if ".." not in place.parts]
        if controllers == "":
            yield from (place / "memory.max" for place in places)
        elif "memory" in controllers.split(","):
            yield from ("memory" / place / "memory.limit_in_bytes" for place in places)


def _and_above(path: str) -> list[PurePosixPath]:
    place = PurePosixPath(path.lstrip("/"))
    return [place, *place.parents][:-1]


def _number_in(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None  # no cgroup of this version, or "max"


def _physical_memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
