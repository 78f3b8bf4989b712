"""Processes that import a client once, and then fork a fresh child for each cell of a table.

A parent starts the processes and exchanges lines of JSON with their children: one request, one reply. The child of a
cell has the imports and nothing else, so a table of many cells imports each client only once.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from benchmarks.machine import living_children

END_S = 10.0
"""Time for a process to end after its input was closed, in seconds."""


class ForkedProcess:
    """Parent's side of one process.

    Attributes:
        error: Why the process cannot answer; None while it can.
        versions: Versions of the packages that the process has imported.
    """

    def __init__(self, module: str, name: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", module, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.error: str | None = None
        self.versions: dict[str, str] = {}

    def send(self, line: str) -> None:
        """Send one line."""
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        """Wait for one reply. The reply of a process that has ended is an error."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        reply: dict[str, Any] = json.loads(line) if line else {"error": "the process has ended"}
        return reply

    def request(self, line: str) -> dict[str, Any] | None:
        """Send one line and return the reply, or None after an error."""
        if self.error is not None:
            return None
        self.send(line)
        reply = self.receive()
        self.error = reply.get("error") or reply.get("cannot")
        return reply if self.error is None else None

    def end_cell(self) -> None:
        """End the child of this cell, unless an error has ended it."""
        if self.error is None:
            self.send("")
            self.receive()

    def close(self) -> None:
        """End the process, and the child of an interrupted cell."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            for each in [*living_children(self._process.pid), self._process.pid]:
                with suppress(ProcessLookupError):
                    os.kill(each, signal.SIGKILL)
            self._process.wait()
        self._process.stdout.close()


@contextmanager
def forked_processes(module: str, names: Sequence[str]) -> Iterator[list[ForkedProcess]]:
    """Start one process per name for the block: ``python -m module name``.

    A process whose client is not installed has an :attr:`~ForkedProcess.error`.
    """
    with ExitStack() as ending:
        started = []
        for name in names:
            started.append(ForkedProcess(module, name))
            ending.callback(started[-1].close)
        for each in started:
            reply = each.receive()
            each.error, each.versions = reply.get("error"), reply.get("versions", {})
        yield started


# -- in the process


def serve(run_cell: Callable[[dict[str, Any]], None]) -> None:
    """Fork a child for every cell that the parent sends, and run ``run_cell(cell)`` in it."""
    for sent in iter(next_line, ""):
        child = os.fork()
        if child:
            _, status = os.waitpid(child, 0)
            if status:  # the parent still waits for its reply
                reply({"error": f"the child of the cell ended with status {os.waitstatus_to_exitcode(status)}"})
            continue
        code = 1
        try:
            run_cell(json.loads(sent))
            code = 0
        finally:
            sys.stderr.flush()
            os._exit(code)


def next_line() -> str:
    """Return the next line of the parent, or "" for an empty line and at the end.

    The function reads no byte after the line, because another process may read the following lines.
    """
    line = bytearray()
    while (byte := os.read(0, 1)) not in (b"", b"\n"):
        line += byte
    return line.decode()


def reply(content: dict[str, Any]) -> None:
    """Send one reply to the parent."""
    os.write(1, json.dumps(content).encode() + b"\n")


def message_of(error: BaseException) -> str:
    """Return the type and message of an error; of a group, those of its first error."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"[:300]
