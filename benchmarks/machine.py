"""What a result depends on and a reader must know: the machine, the versions, the commit."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any


def circumstances() -> dict[str, Any]:
    """Return machine, interpreter, commit, time and load, as JSON-safe data."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _git("rev-parse", "HEAD"),
        "uncommitted_changes": bool(_git("status", "--porcelain", "--untracked-files=no", "aiostream_data")),
        "cpu_model": _cpu_model(),
        "cpus": sorted(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30), 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load_average": [round(load, 2) for load in os.getloadavg()],
    }


def versions_of(packages: Iterable[str]) -> dict[str, str]:
    """Return the installed version of each distribution that is there."""
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def cpu_s() -> float:
    """Return CPU seconds of this process, its threads, and all its children: those it waited for, and those alive."""
    usage = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(part.ru_utime + part.ru_stime for part in usage) + sum(map(_cpu_s_of, living_children(os.getpid())))


def living_children(parent: int) -> Iterator[int]:
    """Yield the processes that a process has started, and theirs."""
    for listed in Path(f"/proc/{parent}/task").glob("*/children"):
        for child in map(int, _read(listed).split()):
            yield child
            yield from living_children(child)


def busy_s(process: int) -> float:
    """Return CPU seconds of a process and its threads to the nanosecond; 0 when it is gone."""
    told = (_read(task / "schedstat").split() for task in Path(f"/proc/{process}/task").glob("*"))
    return sum(int(fields[0]) for fields in told if fields) / 1e9


def _cpu_s_of(process: int) -> float:
    """Return CPU seconds of a process and of the children it waited for; 0 when it is gone."""
    fields = _read(Path(f"/proc/{process}/stat")).rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # the process has ended meanwhile, and its parent has its seconds
        return ""


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:  # a machine to which only the files were copied
        return ""
    return done.stdout.strip()


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
