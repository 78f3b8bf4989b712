"""Time messages to another process over an exchange, beside a pipe: ``python -m benchmarks.micro.exchange``.

A batch of 38 MB is 64 images of 224 x 224 x 3 float32. "one way" is a stream of batches that the receiver
drops at once, as a training loop does; "there and back" is one request at a time, as a pool of processes makes them.
CPU time is that of both processes.
"""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from time import perf_counter
from typing import Any, Protocol

import numpy as np

from aiostream_data.executors.exchange import Exchange

MAX_NBYTES = 256 << 20
SMALL, IMAGE, BATCH = 100, 224 * 224 * 3, 64 * 224 * 224 * 3 * 4
SECONDS = 2.0


class Link(Protocol):
    """What both kinds of link can do."""

    def send(self, message: Any, /) -> Any: ...

    def receive(self) -> Any: ...


class Pipe:
    """A pipe of multiprocessing, which pickles everything into one string of bytes."""

    def __init__(self, connection: Connection) -> None:
        self.send = connection.send
        self.receive = connection.recv


class Shared:
    """An exchange."""

    def __init__(self, link: socket.socket) -> None:
        self._exchange = Exchange(link, MAX_NBYTES)
        self.send = self._exchange.send

    def receive(self) -> Any:
        return self._exchange.receive().message


def answer(link: Link) -> None:
    """Do as the other process says: echo a message, or send that many of some size."""
    while (request := link.receive()) is not None:
        if isinstance(request, tuple):
            count, nbytes = request
            message = np.ones(nbytes, np.uint8)
            for _ in range(count):
                link.send(message)
        else:
            link.send(request)
        del request


def linked(kind: str) -> tuple[Link, subprocess.Popen[bytes]]:
    """Return a link to another process."""
    ours, theirs = socket.socketpair()
    program = [sys.executable, "-m", "benchmarks.micro.exchange", kind, str(theirs.fileno())]
    process = subprocess.Popen(program, pass_fds=[theirs.fileno()])
    theirs.close()
    return _link(kind, ours), process


def _link(kind: str, end: socket.socket) -> Link:
    return Shared(end) if kind == "exchange" else Pipe(Connection(os.dup(end.detach())))


def there_and_back(link: Link, nbytes: int) -> Callable[[], int]:
    message = np.ones(nbytes, np.uint8)

    def once() -> int:
        link.send(message)
        link.receive()
        return 1

    return once


def one_way(link: Link, nbytes: int) -> Callable[[], int]:
    count = max(4, min(500, (256 << 20) // nbytes))

    def once() -> int:
        link.send((count, nbytes))
        for _ in range(count):
            link.receive()
        return count

    return once


def rate(once: Callable[[], int]) -> float:
    """Return messages a second."""
    once()
    started, messages = perf_counter(), 0
    while perf_counter() - started < SECONDS:
        messages += once()
    return messages / (perf_counter() - started)


def main() -> None:
    """Print a row per kind of link, size and pattern."""
    print(f"{'link':12}{'pattern':18}{'bytes':>12}{'messages/s':>14}{'MB/s':>12}{'CPU us each':>14}")
    for kind in ("exchange", "pipe"):
        for pattern in (there_and_back, one_way):
            for nbytes in (SMALL, IMAGE, BATCH):
                _row(kind, pattern, nbytes)


def _row(kind: str, pattern: Callable[[Link, int], Callable[[], int]], nbytes: int) -> None:
    link, process = linked(kind)
    before = _cpu_s()
    started = perf_counter()
    messages = rate(pattern(link, nbytes))
    spent = perf_counter() - started
    link.send(None)
    process.wait(10)
    cpu = (_cpu_s() - before) / (messages * spent)
    name = pattern.__name__.replace("_", " ")
    print(f"{kind:12}{name:18}{nbytes:12,}{messages:14,.0f}{messages * nbytes / 1e6:12,.0f}{cpu * 1e6:14,.0f}")


def _cpu_s() -> float:
    """Return CPU seconds of this process and of children that have ended."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        answer(_link(sys.argv[1], socket.socket(fileno=int(sys.argv[2]))))
    else:
        main()
