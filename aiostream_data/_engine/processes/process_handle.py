"""Handle that the loader's process uses for a subprocess that runs a part of a plan.

A thread receives the messages of the subprocess (:mod:`~aiostream_data._engine.process_server`). The receiving thread
passes chunks to their runs and answers to the callers. When the subprocess dies, every run and every pending request
fails.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import count
from time import monotonic
from typing import Any, Final

from aiostream_data._engine.calls.cpu_count import at_most_cpus
from aiostream_data._engine.memory.budget import Budget
from aiostream_data._engine.processes.chunk_transfer import taken
from aiostream_data._engine.processes.job import Errand
from aiostream_data._engine.processes.namespace_map import Adopted, Alike
from aiostream_data._engine.processes.remote_run import Arrived, RemoteRun
from aiostream_data._engine.resume.position import State
from aiostream_data.errors import StageBuildError, WorkerDiedError
from aiostream_data.executors.child_process import Child
from aiostream_data.executors.failure import Failure

ASK_S: Final = 5.0
"""Maximum seconds to wait for an answer from a subprocess.

A user function that holds the GIL in the subprocess delays answers.
"""

LAST_ANSWER_S: Final = 0.02
"""Minimum seconds to wait for an answer even after the deadline, because most subprocesses answer immediately."""

END_S: Final = 0.5
"""Seconds that a subprocess has to exit by itself after the loader no longer needs it."""

NO_STATS: Final[Mapping[str, Any]] = {
    "stages": [],
    "storage": {},
    "memory": (0, 0, 0.0),
    "holders": {},
    "seconds": 0.0,
    "cpu_s": 0.0,
    "loop_cpu_s": 0.0,
}
"""Statistics used for a subprocess that has not reported any statistics."""


class HostingProcess:
    """Handle of one subprocess that runs a plan. The methods are thread-safe unless stated otherwise.

    Args:
        errand: Plan and options for the subprocess; the first message sent to it.
        alike: Namespaces (runs of sources) shared by all processes of the same ``in_subprocess()`` node.
        budget: Memory budget that counts the received chunks.

    Attributes:
        child: Process of the operating system, with its message channel.
        last_stats: Statistics that the subprocess reported last.
    """

    def __init__(self, errand: Errand, name: str, alike: Alike, budget: Budget) -> None:
        self._adopted = Adopted(alike, self.ask)
        self._budget = budget
        self._runs: dict[int, RemoteRun] = {}
        self._questions: dict[int, _Question] = {}
        self._numbers = count()
        self._lock = threading.Lock()
        self._later: deque[tuple[Any, ...]] = deque()
        self._over: str | None = None
        self._closing = False
        self._answers_until: float | None = None
        self.last_stats: Mapping[str, Any] = NO_STATS
        target = "aiostream_data._engine.process_server:serve"
        self.child = Child(target, name, 2 * errand.window_nbytes, at_most_cpus(errand.run.native_threads))
        self._send_errand(errand)
        self._thread = threading.Thread(target=self._receive, name=f"{name}-link", daemon=True)
        self._thread.start()

    def _send_errand(self, errand: Errand) -> None:
        try:
            self.child.exchange.send(errand)
        except EOFError:
            raise self.child.obituary() from None
        except Exception as error:
            self.child.kill()
            self.child.bury()
            raise StageBuildError(
                f"cannot send the chain to the process of in_subprocess(): {error}. Install aiostream-data[process] "
                "for lambdas and local functions, or use only picklable values in the chain."
            ) from error

    def begin(self, epoch: int, state: State, on_drained: Callable[[], None]) -> RemoteRun:
        """Start a run. Call this method on the event loop that reads the chunks of the run."""
        number = next(self._numbers)
        run = RemoteRun(self, number, on_drained)
        with self._lock:
            self._check_not_over()
            self._runs[number] = run
        self.tell("begin", number, epoch, state)
        return run

    def stats(self) -> Mapping[str, Any]:
        """Request the statistics of the subprocess. If the subprocess does not answer, return its last report."""
        with suppress(WorkerDiedError):
            self.last_stats = self.ask("stats", timeout_s=END_S)
        return self.last_stats

    def hurry(self, deadline: float) -> None:
        """Set the time, from ``monotonic()``, at which all waits for answers end."""
        self._answers_until = deadline

    def ask(self, question: str, *args: Any, timeout_s: float | None = None) -> Any:
        """Send a request and return the answer; see :class:`~aiostream_data._engine.process_server.HostedEngine`.

        Args:
            timeout_s: Maximum wait in seconds; None means ``ASK_S`` seconds.

        Raises:
            WorkerDiedError: The subprocess has ended or did not answer in time.
        """
        number, asked = next(self._numbers), _Question()
        with self._lock:
            self._check_not_over()
            self._questions[number] = asked
        try:
            self.tell("ask", number, question, *args)
            return asked.wait(self._patience_s(ASK_S if timeout_s is None else timeout_s))
        finally:
            with self._lock:
                self._questions.pop(number, None)

    def _patience_s(self, most_s: float) -> float:
        if self._answers_until is None:
            return most_s
        if self.child.is_stopped:
            return 0.0
        return min(most_s, max(LAST_ANSWER_S, self._answers_until - monotonic()))

    def _check_not_over(self) -> None:
        if self._over is not None:
            raise WorkerDiedError(f"the process of in_subprocess() has ended: {self._over}")

    def tell(self, *message: Any) -> None:
        """Send a message. If the process has ended, do nothing, because the receiving thread notifies all waiters."""
        with suppress(EOFError):
            while self._later:
                with suppress(IndexError):  # another thread sent it first
                    self.child.exchange.send(self._later.popleft())
            self.child.exchange.send(message)

    def drop(self, number: int) -> None:
        """Forget a run, and queue a notification that is sent to the subprocess with the next message. Never blocks."""
        self._runs.pop(number, None)
        self._later.append(("drop", number))

    def end_soon(self) -> None:
        """Ask the subprocess to exit; do not wait for the exit."""
        self._closing = True
        self.child.exchange.close()

    def close(self, grace_s: float = END_S) -> None:
        """Stop the subprocess and wait a limited time for its exit. Idempotent.

        Args:
            grace_s: Seconds that the subprocess has to exit by itself before it is killed.
        """
        self.end_soon()
        self.child.bury(grace_s)
        self._thread.join(END_S)

    # -- on the receiving thread

    def _receive(self) -> None:
        try:
            while True:
                received = self.child.exchange.receive()
                received.lease.release()
                kind, *args = received.message
                if kind == "chunk":
                    args.append(received.written)  # arrays sent beside the message
                del received
                self._hear(kind, *args)
                del args
        except EOFError:
            self._end(WorkerDiedError("the process of in_subprocess() was ended") if self._closing else self._died())
        except BaseException as error:  # noqa: BLE001 - raised to the waiter
            self._end(error)

    def _died(self) -> BaseException:
        return self.child.obituary()

    def _hear(self, kind: str, *args: Any) -> None:
        if kind == "answer":
            with self._lock:
                asked = self._questions.get(args[0])
            if asked is not None:
                asked.answer(args[1])
            return
        if kind == "refused":
            raise _as_error(args[0])
        number, *rest = args
        run = self._runs.get(number)
        if kind == "chunk":
            self._adopted.learn(rest[1])
        if run is None:
            return  # the run was dropped
        if kind == "chunk":
            sent, _, written = rest
            chunk = taken(self._adopted.renamed(sent), written).with_lease(self._budget.charge(sent.nbytes))
            run.hear(Arrived(chunk, sent.nbytes))
        elif kind == "failed":
            run.hear(_as_error(rest[0]))
        else:
            run.hear(None if kind == "drained" else rest[0])

    def _end(self, error: BaseException) -> None:
        with self._lock:
            self._over = str(error)
            runs, questions = list(self._runs.values()), list(self._questions.values())
        for run in runs:
            run.hear(error)
        for asked in questions:
            asked.answer(WorkerDiedError(f"the process of in_subprocess() has ended: {error}"))


class _Question:
    """Pending request to a subprocess. A caller can wait for the answer."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._answer: Any = None

    def answer(self, value: Any) -> None:
        self._answer = value
        self._event.set()

    def wait(self, timeout_s: float) -> Any:
        if not self._event.wait(timeout_s):
            raise WorkerDiedError(
                f"the process of in_subprocess() did not answer within {timeout_s:g} s. Check if a function blocks it."
            )
        if isinstance(self._answer, Failure):
            raise _as_error(self._answer)
        if isinstance(self._answer, BaseException):
            raise self._answer
        return self._answer


def _as_error(failure: Failure) -> BaseException:
    """Return the exception of another process with its traceback as a note, or a substitute if it cannot be pickled."""
    error = failure.as_error()
    original = error.__cause__
    if original is None:
        return error
    for note in getattr(error, "__notes__", ()):
        if note not in getattr(original, "__notes__", ()):
            original.add_note(note)
    return original
