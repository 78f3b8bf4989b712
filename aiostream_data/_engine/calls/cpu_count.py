"""Count the CPUs available to this process: the smaller of the CPU affinity and the cgroup quota."""

from __future__ import annotations

import os
from pathlib import Path

from aiostream_data._engine.memory.cgroups import CGROUPS, OWN_CGROUPS, limit_files, number_in, read_text


def cpu_count(cgroups: Path = CGROUPS, own_cgroups: Path = OWN_CGROUPS) -> int:
    """Return the number of CPUs that this process may use, at least 1.

    Args:
        cgroups: Mount point of the cgroup file systems.
        own_cgroups: File that lists the cgroups of this process.
    """
    quota = cgroup_cpus(cgroups, own_cgroups)
    return _affinity() if quota is None else min(_affinity(), quota)


def cgroup_cpus(cgroups: Path, own_cgroups: Path) -> int | None:
    """Return the smallest CPU quota of the process's cgroup and its ancestors, or None if no quota is set.

    Quotas are rounded up to whole CPUs: 1.5 CPUs counts as 2.
    """
    files = limit_files(read_text(own_cgroups), "cpu", "cpu.cfs_quota_us", "cpu.max")
    quotas = [_quota_in(cgroups / file) for file in files]
    return min((quota for quota in quotas if quota is not None), default=None)


def own_cores() -> frozenset[int]:
    """Return the indices of the CPU cores on which this process may run."""
    try:
        return frozenset(os.sched_getaffinity(0))
    except AttributeError:  # sched_getaffinity() is missing on macOS and Windows
        return frozenset(range(os.cpu_count() or 1))


def _affinity() -> int:
    return len(own_cores())


def _quota_in(file: Path) -> int | None:
    words = read_text(file).split()
    if file.name == "cpu.cfs_quota_us":  # cgroups v1 stores quota and period in two files
        words += read_text(file.with_name("cpu.cfs_period_us")).split()
    return _whole_cpus(words)


def _whole_cpus(words: list[str]) -> int | None:
    """Return quota / period, rounded up. Return None if ``words`` is not a [quota, period] pair or sets no limit."""
    if len(words) != 2:
        return None
    quota, period = map(number_in, words)
    return -(-quota // period) if quota and period else None


def at_most_cpus(count: int | None) -> int | None:
    """Return the number of CPUs if ``count`` is larger. None stays None."""
    return None if count is None else min(count, cpu_count())
