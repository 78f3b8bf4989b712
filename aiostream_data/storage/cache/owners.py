"""Identify the process that created a file in a shared folder, and detect whether the process still runs."""

from __future__ import annotations

import hashlib
import os
import platform
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

ABANDONED_S: Final = 900.0
"""Seconds without a write after which a file from another host counts as abandoned."""


def new_owner() -> str:
    """Create a unique name for this process from host, process number, start time and a random token."""
    pid = os.getpid()
    return f"{this_host()}-{pid}-{_began(pid)}-{secrets.token_hex(4)}"


def is_abandoned(owner: str, age_s: float, host: str) -> bool:
    """Return True if the process that created a file has ended and can no longer finish the file.

    Args:
        owner: Name of the owner, taken from the name of the file.
        age_s: Seconds since the last write to the file, by the clock of the file system.
        host: Name of this host, as returned by :func:`this_host`.
    """
    where, pid, began, _ = owner.split("-")
    if where != host:
        return age_s > ABANDONED_S
    return not _is_alive(int(pid)) or _began(int(pid)) != int(began)


def this_host() -> str:
    """Return 12 hexadecimal digits that identify this host, boot and container.

    Process numbers are unique only within one container of one boot of a host.
    """
    said = [platform.node(), _text("/proc/sys/kernel/random/boot_id")]
    with suppress(OSError):  # systems other than Linux have a single process number space
        said.append(os.readlink("/proc/self/ns/pid"))
    return hashlib.sha256("\n".join(said).encode()).hexdigest()[:12]


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):  # OverflowError: no process number is that large
        return False
    except PermissionError:
        return True  # a process of another user
    return _state(pid) != "Z"


def _began(pid: int) -> int:
    """Return the start time of a process in ticks since boot, or 0 if the system does not report it."""
    fields = _text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return int(fields[19]) if len(fields) > 19 else 0


def _state(pid: int) -> str:
    return _text(f"/proc/{pid}/stat").rpartition(")")[2].strip()[:1]


def _text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""
