"""Executor with worker processes.

Each thread of the executor owns one child process. A function is pickled once and sent to each worker once. Later calls
send only the key of the function. Arrays in arguments and results pass through shared memory; arrays in results are
views of this memory. For each child process, one thread of the parent process waits for results. When a child process
ends, its link closes, so the waiting thread is notified immediately. When the parent process ends, the link also closes
and the child process is notified.

When a result arrives, its memory no longer counts as lent. A consumer that keeps all results therefore never blocks a
worker. Memory use is still limited, because each worker processes one request at a time. The stage that submits the
next request also counts the results.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from time import perf_counter
from typing import Any

from aiostream_data.errors import RecordTimeoutError, WorkerDiedError
from aiostream_data.executors.base import Outcome
from aiostream_data.executors.blocks import LinkEnded
from aiostream_data.executors.child_process import Child, bury_all
from aiostream_data.executors.failure import Failure
from aiostream_data.executors.pickling import dumps
from aiostream_data.executors.serving import MAX_FUNCTIONS, CallRequest, Learn, Reply
from aiostream_data.executors.thread import Job, ThreadExecutor

MAX_NBYTES = 64 << 20
"""Maximum amount of unused shared memory in bytes that is kept for reuse, per worker and per direction."""

IDLE_SHARE = 8
"""All workers together keep at most ``memory_limit / IDLE_SHARE`` bytes of unused shared memory."""

LOOK_S = 0.25
"""Interval in seconds for checking if SIGSTOP has stopped a process that is loading a function."""

_SERVE = "aiostream_data.executors.serving:serve"


def idle_nbytes(memory_limit: int, workers: int) -> int:
    """Return the maximum unused shared memory in bytes, per worker and direction, for a memory limit in bytes."""
    return max(1, min(MAX_NBYTES, memory_limit // (2 * IDLE_SHARE * workers)))


class ProcessExecutor(ThreadExecutor):
    """Executor with up to ``max_workers`` worker processes; see :class:`.base.Executor`.

    Functions, arguments and results must be picklable. If cloudpickle is installed, it is also used. An exception in a
    worker arrives as a ``RecordError`` that also derives from the original exception's type. If a worker dies, the call
    raises ``WorkerDiedError`` and a new worker replaces it. If a call exceeds its time limit, the executor ends the
    worker.

    Args:
        max_workers: Maximum number of worker processes, which start when first needed.
        name: Name of the executor's threads and processes.
        max_nbytes: Maximum unused shared memory in bytes, per worker and direction.
        native_threads: Maximum number of threads of native libraries in each worker; None for no limit.
    """

    def __init__(
        self, max_workers: int, name: str, *, max_nbytes: int = MAX_NBYTES, native_threads: int | None = None
    ) -> None:
        super().__init__(max_workers, name)
        self._native_threads = native_threads
        self._max_nbytes = max_nbytes
        self._workers: dict[int, _Worker] = {}
        self._starting = threading.Lock()
        self._parcels = _Parcels()

    def stacks(self, timeout_s: float) -> str:
        """Return the current stack of every thread of every worker as text."""
        return "\n".join(worker.child.stacks(timeout_s) for worker in list(self._workers.values()))

    @property
    def pids(self) -> list[int]:
        """Process ids of the worker processes."""
        return [worker.child.pid for worker in list(self._workers.values())]

    def close(self, timeout_s: float) -> bool:
        with self._starting:
            self._closed = True
        children = [worker.child for worker in list(self._workers.values())]
        for child in children:
            child.stop()  # releases the thread that waits for a busy worker
        ended = super().close(timeout_s)
        bury_all(children)
        return ended

    def _call(self, job: Job) -> Outcome:
        started = perf_counter()
        me = threading.get_ident()
        try:
            parcel = self._parcels.of(job.function)
        except BaseException as error:  # noqa: BLE001 - delivered to the caller as a value
            return Outcome(None, Failure(error).as_error(), perf_counter() - started)
        try:
            answer, transfer_s = self._ask_worker(me, parcel, job)
        except (WorkerDiedError, RecordTimeoutError) as error:
            self._workers.pop(me, None)
            return Outcome(None, error, perf_counter() - started)
        except BaseException as error:  # noqa: BLE001 - delivered to the caller as a value
            failure = Failure(error, "in transit to or from the worker")
            return Outcome(None, failure.as_error(), perf_counter() - started)
        raised = None if answer.failure is None else answer.failure.as_error()
        return Outcome(answer.value, raised, answer.busy_s, answer.cpu_s, transfer_s)

    def _ask_worker(self, me: int, parcel: _Parcel, job: Job) -> tuple[Reply, float]:
        """Call a function in the worker process that belongs to this thread.

        Retry the call once if the worker died before it had loaded a function.

        Returns:
            The reply, and the transfer time in seconds. The transfer time is the duration of the call minus the time in
            the function.
        """
        worker = self._workers.get(me) or self._start_worker(me)
        try:
            return worker.call(parcel, job.args, job.limit_s)
        except WorkerDiedError:
            if not worker.is_new:
                raise
        return self._start_worker(me).call(parcel, job.args, job.limit_s)

    def _start_worker(self, me: int) -> _Worker:
        with self._starting:  # processes start concurrently: Child() returns before the process is ready
            if self._closed:
                raise WorkerDiedError("the workers are being closed")
            worker = self._workers[me] = _Worker(Child(_SERVE, self._name, self._max_nbytes, self._native_threads))
        return worker


class _Worker:
    """One worker process, and the keys of the functions that the process has loaded."""

    def __init__(self, child: Child) -> None:
        self.child = child
        self._known: set[bytes] = set()

    @property
    def is_new(self) -> bool:
        """True until the worker process has loaded a function.

        If a worker dies before it has loaded a function, the cause is not a record.
        """
        return not self._known

    def call(self, parcel: _Parcel, args: tuple[Any, ...], limit_s: float | None) -> tuple[Reply, float]:
        """Call a function in the worker, and return the reply and the transfer time in seconds.

        Raises:
            WorkerDiedError: The worker process died. Its resources were released.
            RecordTimeoutError: The call took longer than ``limit_s`` seconds, and the executor ended the worker.
            Exception: Arguments cannot be pickled, or the result cannot be unpickled.
        """
        if parcel.key not in self._known:
            forget_all = len(self._known) >= MAX_FUNCTIONS
            learned = self._ask(Learn(parcel.key, parcel.pickled, forget_all), limit_s, self._learns_within)
            if forget_all:
                self._known.clear()
            if learned.failure is not None:
                return learned, 0.0
            self._known.add(parcel.key)
        began = perf_counter()
        answer = self._ask(CallRequest(parcel.key, args), limit_s, self.child.exchange.wait)
        return answer, max(0.0, perf_counter() - began - answer.busy_s)

    def _ask(
        self, request: Learn | CallRequest, limit_s: float | None, answers_within: Callable[[float], bool]
    ) -> Reply:
        exchange = self.child.exchange
        try:
            exchange.send(request)
            del request
            if limit_s is not None and not answers_within(limit_s):
                raise self._ended_after(limit_s)
            answer, lease, _ = exchange.receive()
        except LinkEnded:
            raise self.child.obituary() from None
        lease.release()
        assert isinstance(answer, Reply)
        return answer

    def _learns_within(self, limit_s: float) -> bool:
        """Wait until the worker process has loaded a function.

        Return False if a signal has stopped the worker process for ``limit_s`` seconds.

        The limit excludes the time for starting the worker and importing modules, which is not part of a call.
        """
        look_s = min(limit_s, LOOK_S)
        stopped_s = 0.0
        while not self.child.exchange.wait(look_s):
            stopped_s = stopped_s + look_s if self.child.is_stopped else 0.0
            if stopped_s >= limit_s:
                return False
        return True

    def _ended_after(self, limit_s: float) -> RecordTimeoutError:
        """End the worker process, and return a timeout error that describes the cause."""
        cause = "while a signal such as SIGSTOP had stopped its worker" if self.child.is_stopped else ""
        self.child.kill()
        self.child.bury()
        took = f"a call took longer than {limit_s:g} s{cause and f', {cause}'}"
        return RecordTimeoutError(f"{took}; its worker process was ended")


class _Parcel:
    """A pickled user function and its key."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function  # keeps the function alive, so that its id() stays unique
        self.pickled = dumps(function)
        self.key = hashlib.blake2b(self.pickled, digest_size=16).digest()


class _Parcels:
    """Cache of recently pickled functions. Any thread may use this cache."""

    def __init__(self) -> None:
        self._by_identity: OrderedDict[int, _Parcel] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, function: Callable[..., Any]) -> _Parcel:
        """Return a pickled function. The function is pickled on first use.

        Raises:
            Exception: ``function`` cannot be pickled.
        """
        with self._lock:
            parcel = self._by_identity.get(id(function))
            if parcel is None:
                parcel = self._by_identity[id(function)] = _Parcel(function)
                if len(self._by_identity) > MAX_FUNCTIONS:
                    self._by_identity.popitem(last=False)
            else:
                self._by_identity.move_to_end(id(function))
            return parcel
