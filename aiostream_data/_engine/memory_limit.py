"""How many bytes a loader may hold: what the user says, or a share of what the machine has."""

from __future__ import annotations

import os
from pathlib import Path

DEFAULT_FRACTION = 0.25
FALLBACK_LIMIT = 1 << 30


def parse_nbytes(value: int | str) -> int:
    """Return a number of bytes from an int or a text such as ``"256MB"`` or ``"1.5 GiB"``.

    Raises:
        ValueError: It is not a positive number with a known unit.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        number = float(value)
    else:
        text = str(value).strip().upper().removesuffix("B").removesuffix("I")
        scale = {"K": 10, "M": 20, "G": 30, "T": 40}.get(text[-1:], 0)
        try:
            number = float(text[:-1] if scale else text) * (1 << scale)
        except ValueError:
            raise ValueError(f"memory limit must be bytes or a text like '256MB', got {value!r}") from None
    if not number >= 1:
        raise ValueError(f"memory limit must be at least 1 byte, got {value!r}")
    return int(number)


def default_limit() -> int:
    """Return the default budget: a quarter of the cgroup's limit, or of the machine's memory."""
    return max(64 << 20, int(_memory_of_this_process() * DEFAULT_FRACTION))


def _memory_of_this_process() -> int:
    limits = [_number_in("/sys/fs/cgroup/memory.max"), _number_in("/sys/fs/cgroup/memory/memory.limit_in_bytes")]
    limits.append(_physical_memory())
    known = [limit for limit in limits if limit is not None]
    return min(known) if known else FALLBACK_LIMIT


def _number_in(path: str) -> int | None:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):
        return None  # no cgroup of this version, or "max"


def _physical_memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
