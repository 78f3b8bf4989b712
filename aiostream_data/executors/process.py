"""Worker processes, each served by one thread of this process that speaks to it over an exchange.

How this works. The threads of a :class:`ThreadExecutor` each own one child. A function is pickled once, sent
to each worker once, and called by its key. Arguments and results that are arrays pass through shared memory:
results are views of it, without a copy. Because exactly one thread waits for each child, a child that
dies is noticed at once: its end of the link closes. A parent that dies is noticed by its children the same way.

The memory of a result is disowned on arrival, so that a consumer who keeps everything never stops a worker.
What limits memory is that a worker has one request at a time, and is given the next by who counts the results.
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
from aiostream_data.executors.child import Child, bury_all
from aiostream_data.executors.failure import Failure
from aiostream_data.executors.pickling import dumps
from aiostream_data.executors.serving import MAX_FUNCTIONS, CallRequest, Learn, Reply
from aiostream_data.executors.thread import Job, ThreadExecutor

MAX_NBYTES = 64 << 20
"""Shared memory that a worker, and this process for each worker, keep idle between messages, at most."""

IDLE_SHARE = 8
"""All of them together keep at most this fraction (1/8) of a memory limit idle."""

LOOK_S = 0.25
"""How often a process that learns a function is looked at, to see whether it is stopped."""

_SERVE = "aiostream_data.executors.serving:serve"


def idle_nbytes(memory_limit: int, workers: int) -> int:
    """Return how much shared memory may be idle, per worker and direction, under a memory limit in bytes."""
    return max(1, min(MAX_NBYTES, memory_limit // (2 * IDLE_SHARE * workers)))


class ProcessExecutor(ThreadExecutor):
    """Up to ``max_workers`` worker processes; see :class:`.base.Executor`.

    Functions, arguments and results must pickle, with cloudpickle where it is installed. An exception comes
    back as a ``RecordError`` that also has the original's type; a worker that dies as a ``WorkerDiedError``, and
    is replaced. A call whose time is over ends with its worker.

    Args:
        max_workers: Processes at once; they start when first needed.
        name: Of threads and processes.
        max_nbytes: Most shared memory kept idle, per worker and direction.
    """

    def __init__(self, max_workers: int, name: str, *, max_nbytes: int = MAX_NBYTES) -> None:
        super().__init__(max_workers, name)
        self._max_nbytes = max_nbytes
        self._workers: dict[int, _Worker] = {}
        self._starting = threading.Lock()
        self._parcels = _Parcels()

    def stacks(self, timeout_s: float) -> str:
        """Return what every thread of every worker is doing now, as text."""
        return "\n".join(worker.child.stacks(timeout_s) for worker in list(self._workers.values()))

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers."""
        return [worker.child.pid for worker in list(self._workers.values())]

    def close(self, timeout_s: float) -> bool:
        with self._starting:
            self._closed = True
        children = [worker.child for worker in list(self._workers.values())]
        for child in children:
            child.stop()  # a thread that waits for a busy worker is released by this
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
            failure = Failure(error, "on the way to the worker or back")
            return Outcome(None, failure.as_error(), perf_counter() - started)
        raised = None if answer.failure is None else answer.failure.as_error()
        return Outcome(answer.value, raised, answer.busy_s, answer.cpu_s, transfer_s)

    def _ask_worker(self, me: int, parcel: _Parcel, job: Job) -> tuple[Reply, float]:
        """Have this thread's worker call a function; another one, once, where it died before it knew any function.

        Returns:
            The answer, and the seconds of the transfer: all of the call but the work.
        """
        worker = self._workers.get(me) or self._start_worker(me)
        try:
            return worker.call(parcel, job.args, job.limit_s)
        except WorkerDiedError:
            if not worker.is_new:
                raise
        return self._start_worker(me).call(parcel, job.args, job.limit_s)

    def _start_worker(self, me: int) -> _Worker:
        with self._starting:  # the process itself starts beside others: this returns long before it is up
            if self._closed:
                raise WorkerDiedError("the workers are being closed")
            worker = self._workers[me] = _Worker(Child(_SERVE, self._name, self._max_nbytes))
        return worker


class _Worker:
    """One worker process, and which functions it knows."""

    def __init__(self, child: Child) -> None:
        self.child = child
        self._known: set[bytes] = set()

    @property
    def is_new(self) -> bool:
        """Whether it has not yet said that it knows a function: whatever ends it now is no fault of a record."""
        return not self._known

    def call(self, parcel: _Parcel, args: tuple[Any, ...], limit_s: float | None) -> tuple[Reply, float]:
        """Have the worker call a function, and wait for the answer; return it with the seconds of the transfer.

        Raises:
            WorkerDiedError: It died; it is buried.
            RecordTimeoutError: The time is over; the worker is buried.
            Exception: Arguments did not pickle, or the result did not unpickle.
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
        """Wait for a worker to learn a function; return False when it was stopped for ``limit_s`` meanwhile.

        A worker has no limit to start and to import what the function needs, as these are not part of a call.
        """
        look_s = min(limit_s, LOOK_S)
        stopped_s = 0.0
        while not self.child.exchange.wait(look_s):
            stopped_s = stopped_s + look_s if self.child.is_stopped else 0.0
            if stopped_s >= limit_s:
                return False
        return True

    def _ended_after(self, limit_s: float) -> RecordTimeoutError:
        """End the worker; return the error that says why."""
        cause = "while a signal such as SIGSTOP kept its worker from running" if self.child.is_stopped else ""
        self.child.kill()
        self.child.bury()
        took = f"a call took longer than {limit_s:g} s{cause and f', {cause}'}"
        return RecordTimeoutError(f"{took}; its worker process was ended")


class _Parcel:
    """A function as it is sent."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function  # kept, so that its identity stands for it
        self.pickled = dumps(function)
        self.key = hashlib.blake2b(self.pickled, digest_size=16).digest()


class _Parcels:
    """The functions that were sent last. Safe to use from any thread."""

    def __init__(self) -> None:
        self._by_identity: OrderedDict[int, _Parcel] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, function: Callable[..., Any]) -> _Parcel:
        """Return a function as it is sent, pickled when it is first seen.

        Raises:
            Exception: It does not pickle.
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
