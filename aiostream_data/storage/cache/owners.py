"""Which process made a file in a folder that several processes and hosts share, and whether it still runs."""

from __future__ import annotations

import hashlib
import os
import platform
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

ABANDONED_S: Final = 900.0
"""A file of a process on another host, of which nobody here knows whether it runs, is left over after this time."""


def new_owner() -> str:
    """Return a name for this process, which says where and since when it runs, and is never given twice."""
    pid = os.getpid()
    return f"{this_host()}-{pid}-{_began(pid)}-{secrets.token_hex(4)}"


def is_abandoned(owner: str, age_s: float, host: str) -> bool:
    """Return True if nobody is going to finish a file.

    Args:
        owner: Of the file, from its name.
        age_s: Seconds since it was written to, by the clock of the file system.
        host: From :func:`this_host`.
    """
    where, pid, began, _ = owner.split("-")
    if where != host:
        return age_s > ABANDONED_S
    return not _is_alive(int(pid)) or _began(int(pid)) != int(began)


def this_host() -> str:
    """Return 12 hexadecimal digits for the scope of process numbers: this boot and this container."""
    said = [platform.node(), _text("/proc/sys/kernel/random/boot_id")]
    with suppress(OSError):  # not Linux: there is one space of process numbers
        said.append(os.readlink("/proc/self/ns/pid"))
    return hashlib.sha256("\n".join(said).encode()).hexdigest()[:12]


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):  # no process has a number that large
        return False
    except PermissionError:
        return True  # somebody else's
    return _state(pid) != "Z"


def _began(pid: int) -> int:
    """Return when a process began, in ticks since boot; 0 where the system does not tell."""
    fields = _text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return int(fields[19]) if len(fields) > 19 else 0


def _state(pid: int) -> str:
    return _text(f"/proc/{pid}/stat").rpartition(")")[2].strip()[:1]


def _text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""
