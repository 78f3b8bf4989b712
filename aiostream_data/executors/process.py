"""Worker processes, each served by one thread that speaks to it over a pipe.

How this works. The threads of a :class:`ThreadExecutor` each own one child, started with ``spawn``
(never fork: this process has threads and an event loop). A hop is sent as a pickle and its outcome
comes back as one. Because exactly one thread waits on each pipe, a child that dies is noticed at
once: its end of the pipe closes. A parent that dies is noticed by its children the same way.
"""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from time import perf_counter, process_time
from typing import Any

from aiostream_data.errors import RecordError, WorkerDiedError
from aiostream_data.executors.base import Outcome
from aiostream_data.executors.thread import ThreadExecutor

JOIN_S = 1.0


class ProcessExecutor(ThreadExecutor):
    """Up to ``max_threads`` worker processes; see :class:`.base.Executor`.

    Functions, arguments and results must pickle. An exception comes back as a ``RecordError`` that
    also has the original's type; a worker that dies as a ``WorkerDiedError``, and is replaced.
    """

    def __init__(self, max_workers: int, name: str) -> None:
        super().__init__(max_workers, name)
        self._children: dict[int, _Child] = {}

    def _call(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Outcome:
        started = perf_counter()
        me = threading.get_ident()
        try:
            request = pickle.dumps((function, args), protocol=5)
            child = self._children.get(me) or self._start_child(me)
            reply = child.ask(request)
            if reply is None:
                del self._children[me]
                raise child.obituary()
            value, failure, busy_s, cpu_s = pickle.loads(reply)
        except Exception as error:  # noqa: BLE001 - delivered to the caller as a value
            return Outcome(None, error, perf_counter() - started)
        return Outcome(value, None if failure is None else failure.as_error(), busy_s, cpu_s)

    def _start_child(self, me: int) -> _Child:
        if self._closed:
            raise WorkerDiedError("the workers are being closed")
        child = self._children[me] = _Child(self._name)
        return child

    def close(self, timeout_s: float) -> bool:
        self._closed = True
        for child in list(self._children.values()):
            child.stop()  # a thread that waits for a busy child is released by this
        ended = super().close(timeout_s)
        for child in list(self._children.values()):
            child.bury()
        return ended


class _Child:
    """One worker process and the parent's end of its pipe."""

    def __init__(self, name: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._lock = threading.Lock()  # two threads must not wait for one process at once, nor after it was closed
        self._buried = False
        self._exit_code: int | None = None
        self._pipe, theirs = context.Pipe()
        self._process: BaseProcess = context.Process(target=serve, args=(theirs,), name=name, daemon=True)
        with theirs, _interrupts_held_back():
            self._process.start()

    def ask(self, request: bytes) -> bytes | None:
        """Send a request and wait for the reply; None when the worker died."""
        try:
            self._pipe.send_bytes(request)
            return self._pipe.recv_bytes()
        except (EOFError, OSError):
            return None

    def obituary(self) -> WorkerDiedError:
        """Return the error that says how the worker ended."""
        with self._lock:
            if not self._buried:
                self._process.join(JOIN_S)
        code = self.bury()
        if code is not None and code < 0:
            hint = ", likely out of memory" if code == -9 else ""
            return WorkerDiedError(f"a worker process was killed by signal {-code}{hint}")
        return WorkerDiedError(
            f"a worker process ended by itself with exit code {code}; its standard error says why. A script that "
            "uses worker processes needs the guard: if __name__ == '__main__'"
        )

    def stop(self) -> None:
        """Ask the process to end, without waiting."""
        with self._lock:
            if not self._buried:
                self._process.terminate()

    def bury(self) -> int | None:
        """End the process for certain, let go of everything it held, and return its exit code."""
        with self._lock:
            if not self._buried:
                self._buried = True
                self._process.terminate()
                self._process.join(JOIN_S)
                if self._process.is_alive():
                    self._process.kill()
                    self._process.join(JOIN_S)
                self._exit_code = self._process.exitcode
                self._pipe.close()
                self._process.close()
            return self._exit_code


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Block SIGINT in this thread, and so in a process started by it: Ctrl-C is the parent's business.

    A signal handler set by the child would come too late for an interrupt while it still starts.
    """
    if not hasattr(signal, "pthread_sigmask"):  # not on every platform
        yield
        return
    resource_tracker.ensure_running()  # its start would unblock the signal
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


class Failure:
    """What a worker tells of an exception: always text, and the exception itself if it survives the trip."""

    def __init__(self, error: BaseException) -> None:
        self.type_name = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
        self.message = _safe_str(error)
        self.text = "".join(traceback.format_exception(error))
        self.notes = list(getattr(error, "__notes__", ()))
        self.pickled = _round_trip(error)

    def as_error(self) -> BaseException:
        """Return the RecordError to raise in the parent, caused by the original where there is one."""
        original: BaseException | None = pickle.loads(self.pickled) if self.pickled is not None else None
        error = _record_error_like(original)(f"{self.type_name}: {self.message}")
        error.type_name = self.type_name
        error.worker_traceback = self.text
        error.__cause__ = original
        for note in self.notes:
            error.add_note(note)
        error.add_note("worker traceback:\n" + self.text)
        return error


def _record_error_like(original: BaseException | None) -> type[RecordError]:
    """Return a RecordError class that is also of the original's type, where Python allows that."""
    kind = type(original)
    if original is None or not isinstance(original, Exception) or issubclass(kind, RecordError):
        return RecordError
    try:
        mixed = type(f"RecordError[{kind.__name__}]", (RecordError, kind), {"__init__": Exception.__init__})
        mixed("probe")
    except Exception:  # noqa: BLE001 - any refusal (layout, __new__, metaclass) means the plain class
        return RecordError
    return mixed


def _safe_str(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as second:  # noqa: BLE001 - a broken __str__ must not hide the error
        return f"<{type(second).__name__} in __str__>"


def _round_trip(error: BaseException) -> bytes | None:
    try:
        pickled = pickle.dumps(error, protocol=5)
        pickle.loads(pickled)
    except BaseException:  # noqa: BLE001 - whatever goes wrong, the text is sent instead
        return None
    return pickled


def serve(pipe: Connection) -> None:
    """Work off requests until the parent closes the pipe or is gone; runs in the child."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # where it could not be blocked before the start
    while True:
        try:
            request = pipe.recv_bytes()
        except (EOFError, OSError):
            sys.exit(0)
        answer = _answer(request)
        try:
            pipe.send_bytes(answer)
        except OSError:  # the parent went away meanwhile, which is nothing to print a traceback for
            sys.exit(0)


def _answer(request: bytes) -> bytes:
    wall, cpu = perf_counter(), process_time()
    try:
        function, args = pickle.loads(request)
        value = function(*args)
        # Pickled inside the try: a result that does not pickle is an error like any other.
        return pickle.dumps((value, None, perf_counter() - wall, process_time() - cpu), protocol=5)
    except BaseException as error:  # noqa: BLE001 - sent to the parent as a value
        failure = Failure(error)
    return pickle.dumps((None, failure, perf_counter() - wall, process_time() - cpu), protocol=5)
