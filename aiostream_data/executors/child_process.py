"""A child process that calls one function with its end of an :class:`.exchange.Exchange` as the argument.

The child process is a new Python interpreter that imports the function by name. A fork is not possible, because this
process has threads and an event loop. The child process does not run the user's program. The program therefore needs no
``if __name__ == "__main__"``. The parent and the child have three links. The exchange carries messages. A pipe closes
when the parent ends, and then ends the child (:mod:`.lifeline`). A socket transfers requests for the stacks of the
child process. A forked copy of either process closes its copies of the links. Each process therefore detects
immediately when the other process ends.

A process that was stopped by SIGSTOP runs no code, so it cannot detect the end of a link. A stopped process handles
SIGTERM only after SIGCONT, so :meth:`Child.stop` sends both signals. SIGKILL also ends a stopped process.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic

from aiostream_data.errors import WorkerDiedError
from aiostream_data.executors.child_main import STACKS_HEAD
from aiostream_data.executors.exchange import Exchange
from aiostream_data.executors.forks import keep_from_forks
from aiostream_data.executors.lifeline import end_with
from aiostream_data.executors.native_threads import limited_environment

JOIN_S = 1.0
"""Maximum time in seconds for a child process to end after a signal."""

TERM_S = 0.5
"""Maximum time in seconds for several child processes to end after SIGTERM. A user function may handle this signal."""

_PROGRAM = (
    "import sys; sys.path[:] = sys.argv.pop().split('\\n'); "
    "from aiostream_data.executors.child_main import main; main()"
)
_HINTS = {9: ", likely out of memory", 11: ", a crash in native code", 7: ", which means that memory ran out"}


class Child:
    """One child process. Any thread may call the methods of a ``Child``.

    Args:
        target: ``module:function`` to call in the child process. The argument of the function is the child's end of the
            exchange. The child process ends when the target function returns.
        name: Name of the child process in process lists.
        max_nbytes: Maximum number of bytes of shared memory that each end of the exchange lends at the same time.
        native_threads: Maximum number of threads of native libraries in the child process; None for no limit.

    Raises:
        WorkerDiedError: The system could not start a process.
    """

    def __init__(self, target: str, name: str, max_nbytes: int, native_threads: int | None = None) -> None:
        self._burying = threading.Lock()
        self._asking = threading.Lock()
        self._asked = 0
        self._answers = bytearray()
        self._buried = False
        link, their_link = socket.socketpair()
        self._watch, their_watch = socket.socketpair()
        their_lifeline, self._lifeline = os.pipe()
        self.exchange = Exchange(link, max_nbytes)
        theirs = [their_link.fileno(), their_watch.fileno(), their_lifeline]
        try:
            with _interrupts_held_back():
                self._process = subprocess.Popen(
                    _command(target, name, max_nbytes, theirs),
                    stdin=subprocess.DEVNULL,
                    pass_fds=theirs,
                    env=limited_environment(native_threads),
                )
            end_with(their_lifeline, self._process.pid)
        except OSError as error:
            self.exchange.close()
            self._close()
            raise WorkerDiedError(f"a worker process could not be started: {error}") from error
        finally:
            their_link.close()
            their_watch.close()
            os.close(their_lifeline)
        keep_from_forks(self)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        """True until the child process has ended."""
        return self._process.poll() is None

    @property
    def is_stopped(self) -> bool:
        """True while a signal such as SIGSTOP prevents the child process from running.

        The result is always False on systems without ``/proc``.
        """
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text(errors="replace")
        except OSError:
            return False
        return stat.rpartition(")")[2].split()[0] in ("T", "t")

    def stop(self) -> None:
        """Send SIGTERM without waiting. If SIGSTOP had stopped the process, the process continues and then ends."""
        self._process.terminate()
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Send SIGKILL without waiting."""
        self._process.kill()

    def bury(self, grace_s: float = 0.0) -> int | None:
        """End the child process, release its resources, and return its exit code.

        Args:
            grace_s: Time in seconds for the target function to return after the exchange was closed. SIGTERM and
                SIGKILL follow.

        Returns:
            Exit code of the process; negative if a signal ended the process, None if the process did not end.
        """
        with self._burying:
            if not self._buried:
                self._buried = True
                self.exchange.close()
                self._end(grace_s)
                self._close()
            return self._process.returncode

    def _end(self, grace_s: float) -> None:
        if not self.wait(grace_s):
            self.stop()
        if not self.wait(JOIN_S):
            self.kill()
        self.wait(JOIN_S)

    def wait(self, timeout_s: float) -> bool:
        """Wait up to ``timeout_s`` seconds for the process to end. Return True if the process has ended."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, timeout_s))
        return self._process.returncode is not None

    def obituary(self) -> WorkerDiedError:
        """Release the resources of a child process after its link has ended.

        Return an error that describes why the process ended.
        """
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(JOIN_S)
        code = self.bury()
        if code is not None and code < 0:
            return WorkerDiedError(f"a worker process was killed by signal {-code}{_HINTS.get(-code, '')}")
        return WorkerDiedError(
            f"a worker process ended with exit code {code}. Its standard error shows the cause, unless a function "
            "called os._exit()"
        )

    def stacks(self, timeout_s: float) -> str:
        """Return the stacks of all threads of the child as text, even while the child runs a function."""
        silence = f"(process {self.pid} returned no stacks within {timeout_s:g} s"
        with self._asking:
            self._asked += 1
            try:
                self._watch.settimeout(timeout_s)
                self._watch.sendall(b"?")
                answer = self._answer(monotonic() + timeout_s)
            except TimeoutError:
                if self.is_stopped:
                    return f"{silence}: a signal such as SIGSTOP has stopped it)\n"
                return f"{silence}: its native code holds the interpreter's lock, or the process is still starting)\n"
            except OSError:
                answer = None
        return f"(process {self.pid} has ended)\n" if answer is None else answer

    def _answer(self, deadline: float) -> str | None:
        """Read replies from the child process until the reply to the latest request arrives.

        Return None if the child process has ended.
        """
        while True:
            while len(self._answers) >= STACKS_HEAD.size:
                number, nbytes = STACKS_HEAD.unpack_from(self._answers)
                end = STACKS_HEAD.size + nbytes
                if len(self._answers) < end:
                    break
                text = self._answers[STACKS_HEAD.size : end].decode(errors="replace")
                del self._answers[:end]
                if number == self._asked:
                    return text
            self._watch.settimeout(max(1e-3, deadline - monotonic()))
            heard = self._watch.recv(1 << 16)
            if not heard:
                return None
            self._answers += heard

    def let_go(self) -> None:
        """Close the links in a forked copy of this process, which does not own the child process."""
        self._buried = True
        self._process.returncode = 0
        self._watch.close()
        self._close_lifeline()

    def _close(self) -> None:
        with self._asking:
            self._watch.close()
        self._close_lifeline()

    def _close_lifeline(self) -> None:
        lifeline, self._lifeline = self._lifeline, -1
        if lifeline >= 0:  # close only once: the system may have reused the number
            os.close(lifeline)


def bury_all(children: Sequence[Child], grace_s: float = 0.0) -> None:
    """End several child processes at the same time, and release their resources.

    Args:
        grace_s: Seconds for which all processes together may continue, before they receive SIGTERM and later SIGKILL.
    """
    for child in children:
        if child.is_stopped:  # a stopped process cannot end by itself
            child.kill()
    left = _left(children, grace_s)
    for child in left:
        child.stop()
    left = _left(left, TERM_S)
    for child in left:
        child.kill()
    _left(left, JOIN_S)
    for child in children:
        child.bury()


def _left(children: Sequence[Child], patience_s: float) -> list[Child]:
    """Wait up to ``patience_s`` seconds for all processes to end. Return the processes that have not ended."""
    deadline = monotonic() + patience_s
    return [child for child in children if not child.wait(deadline - monotonic())]


def _command(target: str, name: str, max_nbytes: int, descriptors: list[int]) -> list[str]:
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    arguments = [name, target, str(max_nbytes), *map(str, descriptors)]
    path = "\n".join(entry for entry in sys.path if isinstance(entry, str))
    return [sys.executable, *flags, "-c", _PROGRAM, *arguments, path]


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Block SIGINT in this thread, so that SIGINT is also blocked in a process that this thread starts.

    The parent handles Ctrl-C.

    A signal handler in the child would be too late for a Ctrl-C while the child starts.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
