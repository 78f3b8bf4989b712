"""The other end of ``kill_program.py``: starts trainers, kills them, and says how they ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

PROGRAM = Path(__file__).with_name("kill_program.py")


class Supervisor:
    """A process whose children are trainers, one at a time. Use it in a ``with`` block; it blocks.

    Args:
        errors: A file for what trainers and supervisor write to standard error.
    """

    def __init__(self, errors: Path) -> None:
        self._errors = errors
        with errors.open("ab") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, str(PROGRAM)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
            )
        self._pid: int | None = None

    def start(self, request: dict[str, Any]) -> None:
        """Start a trainer."""
        self._write(json.dumps(request).encode() + b"\n")
        self._pid = int(self._read(8))

    def wait(self, marks: int) -> bool:
        """Wait until the trainer has said so often that it began or has saved; False if it ended before."""
        return all(self._read(1) == b"." for _ in range(marks))

    def kill(self) -> bool:
        """Kill the trainer; return True when it had come to its end by itself.

        Raises:
            AssertionError: It had failed.
        """
        assert self._pid is not None
        os.kill(self._pid, signal.SIGKILL)
        return self._exit_code() == 0

    def wait_for_the_end(self) -> None:
        """Wait until the trainer has read everything.

        Raises:
            AssertionError: It has failed.
        """
        assert self._exit_code() == 0, self._errors.read_text()

    def _exit_code(self) -> int:
        """Wait until the trainer has ended, in one of the two ways that are right."""
        self._write(b"\n")
        while self._read(1) != b"=":
            pass
        self._pid = None
        exit_code = int(self._read(4))
        assert exit_code in (0, -signal.SIGKILL), self._errors.read_text()
        return exit_code

    def _write(self, line: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line)
        self._process.stdin.flush()

    def _read(self, count: int) -> bytes:
        assert self._process.stdout is not None
        read = self._process.stdout.read(count)
        assert len(read) == count, f"the supervisor has ended: {self._errors.read_text()}"
        return read

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._pid is not None:
            os.kill(self._pid, signal.SIGKILL)
        self._process.kill()
        with self._process:
            pass
