"""Readings of the machine and of threads: who took a core from whom. Each is None, or zero, where nothing tells."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Final, NamedTuple

if sys.platform != "win32":
    import resource

    _OF_THREAD: Final[int | None] = getattr(resource, "RUSAGE_THREAD", None)
else:
    _OF_THREAD = None

_PRESSURE: Final = "/proc/pressure/cpu"


class Switches(NamedTuple):
    """How often a thread left its core.

    Attributes:
        yields: Because it waited: for a lock such as the GIL, for a disk, or for time to pass.
        preemptions: Because another thread took the core.
    """

    yields: int
    preemptions: int


def thread_switches() -> Switches:
    """Count the switches of the calling thread since it started. Takes half a microsecond."""
    if _OF_THREAD is None:
        return Switches(0, 0)
    used = resource.getrusage(_OF_THREAD)
    return Switches(used.ru_nvcsw, used.ru_nivcsw)


def cpu_pressure_s() -> float | None:
    """Read the seconds since boot in which some thread of the machine waited for a core (Linux with PSI)."""
    with suppress(OSError, ValueError), open(_PRESSURE, encoding="ascii") as file:
        some = file.readline()
        if some.startswith("some "):
            return int(some.rpartition("total=")[2]) / 1e6
    return None
