"""Readings of the machine and of threads: who took a core from whom. Each is None, or zero, where nothing tells."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection
from contextlib import suppress
from typing import Final, NamedTuple

if sys.platform != "win32":
    import resource

    _OF_THREAD: Final[int | None] = getattr(resource, "RUSAGE_THREAD", None)
else:
    _OF_THREAD = None

_PRESSURE: Final = "/proc/pressure/cpu"
_SCHEDULED: Final = "/proc/thread-self/schedstat"
_MACHINE: Final = "/proc/stat"

_IDLE: Final = (3, 4)
_GUESTS: Final = 8
"""Columns of a core in ``/proc/stat``: its idle times, and the first of those that are part of others."""


class Switches(NamedTuple):
    """How often a thread left its core.

    Attributes:
        yields: Because it waited: for a lock such as the GIL, for a disk, or for time to pass.
        preemptions: Because another thread took the core.
    """

    yields: int
    preemptions: int


class CoreTime(NamedTuple):
    """Seconds of a thread that had something to do.

    Attributes:
        had_s: It was on a core.
        waited_s: It waited for a core, as other threads had them.
    """

    had_s: float = 0.0
    waited_s: float = 0.0


def thread_switches() -> Switches:
    """Count the switches of the calling thread since it started. Takes half a microsecond."""
    if _OF_THREAD is None:
        return Switches(0, 0)
    used = resource.getrusage(_OF_THREAD)
    return Switches(used.ru_nvcsw, used.ru_nivcsw)


def thread_core_s() -> CoreTime | None:
    """Read how long the calling thread was on a core, and how long it waited for one (Linux). Takes 15 microseconds."""
    with suppress(OSError, ValueError), open(_SCHEDULED, encoding="ascii") as file:
        on_core, waited, _ = map(int, file.readline().split())
        return CoreTime(on_core / 1e9, waited / 1e9) if on_core else None
    return None


def machine_cpu_s(cores: Collection[int], cpus: int) -> float | None:
    """Read the CPU seconds of all programs on the cores that this process may use, since boot (Linux).

    Args:
        cores: Their numbers.
        cpus: How many cores the process may use at once. Where that is less than all of them, as with a quota of a
            cgroup, their use says nothing of this process, and the result is None.
    """
    with suppress(OSError, ValueError), open(_MACHINE, encoding="ascii") as file:
        own = {f"cpu{number}" for number in cores}
        told = [line.split() for line in file if line.startswith("cpu")]
        ticks = [_busy_ticks([*map(int, numbers)]) for name, *numbers in told if name in own]
        return sum(ticks) / os.sysconf("SC_CLK_TCK") if len(ticks) == len(own) == cpus else None
    return None


def _busy_ticks(columns: list[int]) -> int:
    return sum(ticks for number, ticks in enumerate(columns[:_GUESTS]) if number not in _IDLE)


def cpu_pressure_s() -> float | None:
    """Read the seconds since boot in which some thread of the machine waited for a core (Linux with PSI)."""
    with suppress(OSError, ValueError), open(_PRESSURE, encoding="ascii") as file:
        some = file.readline()
        if some.startswith("some "):
            return int(some.rpartition("total=")[2]) / 1e6
    return None
