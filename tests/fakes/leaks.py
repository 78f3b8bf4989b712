"""Prove that a block of code leaves nothing behind: no thread, process, descriptor, mapping, file, or lost task."""

from __future__ import annotations

import gc
import logging
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from pathlib import Path

_POLL_S = 0.005
_TASKS = Path("/proc/self/task")


@dataclass(frozen=True)
class Holdings:
    """What this process holds at one instant.

    Attributes:
        threads: Identifier and name of every Python thread.
        children: Process id and command line of every child process; empty where there is no ``/proc``.
        descriptors: Number and target of every open file and socket; empty where there is no ``/proc``.
        mappings: How often each piece of shared memory is mapped, by its name and inode; empty where there is no
            ``/proc``. It stays mapped, and so takes memory, after its descriptor was closed.
        files: Paths in the folders that are watched.
    """

    threads: dict[int, str]
    children: dict[int, str]
    descriptors: dict[int, str]
    mappings: Counter[str]
    files: frozenset[str]

    @staticmethod
    def now(folders: Sequence[str | os.PathLike[str]] = ()) -> Holdings:
        """Return what is held now."""
        threads = {thread.ident or 0: thread.name for thread in threading.enumerate()}
        files = frozenset(str(path) for folder in folders for path in Path(folder).rglob("*"))
        return Holdings(threads, _children(), _descriptors(), _mappings(), files)

    def beyond(self, before: Holdings) -> list[str]:
        """Return a line for everything held here and not ``before``."""
        lines = [f"thread {name}" for ident, name in self.threads.items() if ident not in before.threads]
        lines += [f"process {pid}: {name}" for pid, name in self.children.items() if pid not in before.children]
        lines += [f"descriptor of {target}" for target in _surplus(self.descriptors, before.descriptors)]
        lines += [f"mapping of {name}" for name in (self.mappings - before.mappings).elements()]
        return lines + [f"file {path}" for path in sorted(self.files - before.files)]


@contextmanager
def leaves_nothing(*, within_s: float = 2.0, folders: Sequence[str | os.PathLike[str]] = ()) -> Iterator[None]:
    """Raise AssertionError unless everything that the block began is gone soon after it.

    Looked at: threads, child processes, open descriptors (sockets are some), mapped shared memory, new files in
    ``folders``, and what asyncio logs of tasks destroyed or exceptions never retrieved. A block that raises is not
    looked at: its own error matters more. Use it around ``asyncio.run``, not inside a running loop.

    Args:
        within_s: Seconds that whatever is ending may still take.
        folders: Where new files count as left behind, such as the folder for temporary files.

    Example::

        from aiostream_data import Dataset
        from leaks import leaves_nothing

        with leaves_nothing():
            with Dataset.range(100).open() as loader:
                next(iter(loader))
    """
    _start_what_stays()
    before = Holdings.now(folders)
    with _asyncio_log() as complaints:
        yield
        gc.collect()
        deadline = time.monotonic() + within_s
        left = Holdings.now(folders).beyond(before)
        while left and time.monotonic() < deadline:
            time.sleep(_POLL_S)  # the end of a process or a thread announces itself to nobody here
            gc.collect()
            left = Holdings.now(folders).beyond(before)
    left += complaints
    if left:
        raise AssertionError(f"{len(left)} left behind after {within_s:g} s:\n  " + "\n  ".join(left))


def _start_what_stays() -> None:
    """Start what lives as long as the process by design, so that it is not counted."""
    resource_tracker.ensure_running()  # of multiprocessing: one process and a pipe to it
    try:
        import uvloop
    except ImportError:
        return
    uvloop.new_event_loop().close()  # libuv keeps one pipe for signals


@contextmanager
def _asyncio_log() -> Iterator[list[str]]:
    complaints: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            complaints.append(f"asyncio: {record.getMessage()}")

    handler = Keep(logging.ERROR)
    logger = logging.getLogger("asyncio")
    logger.addHandler(handler)
    try:
        yield complaints
    finally:
        logger.removeHandler(handler)


def _children() -> dict[int, str]:
    found: dict[int, str] = {}
    for task in _TASKS.glob("*/children"):
        try:
            pids = [int(pid) for pid in task.read_text().split()]
        except OSError:
            continue  # the thread ended while it was looked at
        found.update((pid, _command(pid)) for pid in pids)
    return found


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return "ended meanwhile"


def _descriptors() -> dict[int, str]:
    found: dict[int, str] = {}
    try:
        names = os.listdir("/proc/self/fd")
    except OSError:
        return found
    for name in names:
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue  # the descriptor of the listing itself
    return found


def _surplus(now: dict[int, str], before: dict[int, str]) -> list[str]:
    """Return targets of descriptors that were not open before, or stand for something else now."""
    new = [(number, target) for number, target in now.items() if before.get(number) != target]
    return [f"{_with_ends(number, target)} (number {number})" for number, target in new]


def _with_ends(number: int, target: str) -> str:
    """Return a descriptor's target, of a socket also what it connects."""
    if not target.startswith("socket:"):
        return target
    try:
        with socket.socket(fileno=os.dup(number)) as end:
            return f"{target} {end.family.name} {end.getsockname()!r} to {_peer(end)}"
    except OSError:
        return target  # closed meanwhile


def _peer(end: socket.socket) -> str:
    try:
        return repr(end.getpeername())
    except OSError:
        return "nobody"


def _mappings() -> Counter[str]:
    try:
        lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    except OSError:
        return Counter()
    fields = [line.split(maxsplit=5) for line in lines]  # addresses, permissions, offset, device, inode, name
    return Counter(f"{field[5]} (inode {field[4]})" for field in fields if len(field) == 6 and _is_shared(*field[1::4]))


def _is_shared(permissions: str, name: str) -> bool:
    """Tell memory that processes share from files that libraries map for reading, as tables of characters."""
    return permissions[3] == "s" and (permissions[1] == "w" or name.startswith(("/memfd:", "/dev/shm/")))
