"""Measure CPU use of the machine and of single threads.

Functions return None or 0 if the operating system does not provide the data.
"""

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
"""Columns of a core's line in ``/proc/stat``: the idle times, and the first guest time, which other columns already
include."""


class Switches(NamedTuple):
    """Number of context switches of a thread.

    Attributes:
        yields: Number of voluntary switches: the thread waited for a lock such as the GIL, for a disk, or for a timer.
        preemptions: Number of involuntary switches: the system gave the thread's core to another thread.
    """

    yields: int
    preemptions: int


class CoreTime(NamedTuple):
    """Time that a thread was ready to run: running on a core, or waiting for a core.

    Attributes:
        had_s: Seconds during which the thread ran on a core.
        waited_s: Seconds during which the thread waited for a core while other threads used the cores.
    """

    had_s: float = 0.0
    waited_s: float = 0.0


def thread_switches() -> Switches:
    """Return the number of context switches of the calling thread since the thread started.

    Takes 0.5 microseconds.
    """
    if _OF_THREAD is None:
        return Switches(0, 0)
    used = resource.getrusage(_OF_THREAD)
    return Switches(used.ru_nvcsw, used.ru_nivcsw)


def thread_core_s() -> CoreTime | None:
    """Return the seconds that the calling thread ran on a core, and the seconds that it waited for a core (Linux).

    Takes 15 microseconds.
    """
    with suppress(OSError, ValueError), open(_SCHEDULED, encoding="ascii") as file:
        on_core, waited, _ = map(int, file.readline().split())
        return CoreTime(on_core / 1e9, waited / 1e9) if on_core else None
    return None


def machine_cpu_s(cores: Collection[int], cpus: int) -> float | None:
    """Return the CPU seconds of all programs since boot, on the cores available to this process (Linux).

    Args:
        cores: Numbers of the cores available to this process.
        cpus: Number of cores that this process may use at the same time. If ``cpus`` is smaller than the number of
            ``cores`` (cgroup quota), the result is None because it would be misleading.
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
    """Return the seconds since boot during which any thread of the machine waited for a core (Linux with PSI)."""
    with suppress(OSError, ValueError), open(_PRESSURE, encoding="ascii") as file:
        some = file.readline()
        if some.startswith("some "):
            return int(some.rpartition("total=")[2]) / 1e6
    return None
