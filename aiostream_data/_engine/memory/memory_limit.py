"""Determine the memory limit of a loader: the value set by the user, or a fraction of the machine's memory."""

from __future__ import annotations

import os

from aiostream_data._engine.memory.cgroups import CGROUPS, OWN_CGROUPS, limit_files, number_in, read_text
from aiostream_data.metrics.sizes import as_nbytes

DEFAULT_FRACTION = 0.25
FALLBACK_LIMIT = 1 << 30


def parse_nbytes(value: int | str) -> int:
    """Parse a number of bytes from an int or a string such as ``"256MB"`` or ``"1.5 GiB"``.

    Raises:
        PlanError: The value is not a positive number with a known unit.
    """
    return as_nbytes(value, "memory limit")


def default_limit() -> int:
    """Return the default memory limit in bytes: a quarter of the cgroup's memory limit or of the machine's memory."""
    return max(64 << 20, int(_memory_of_this_process() * DEFAULT_FRACTION))


def _memory_of_this_process() -> int:
    files = limit_files(read_text(OWN_CGROUPS), "memory", "memory.limit_in_bytes", "memory.max")
    limits = [number_in(read_text(CGROUPS / file).strip()) for file in files]
    limits.append(_physical_memory())
    known = [limit for limit in limits if limit is not None and limit > 0]  # a real limit is never 0
    return min(known) if known else FALLBACK_LIMIT


def _physical_memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
