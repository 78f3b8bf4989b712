"""The interface of executors, and the outcome of one function call on a worker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, Any, Protocol

from aiostream_data.executors.failure import workable

if TYPE_CHECKING:
    import asyncio  # not imported in workers, so that they start sooner


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of one hop.

    An error is stored as a value, and is raised once, when the result is delivered.

    Attributes:
        value: Return value of the function; None if the function raised.
        error: Exception that the function raised; None if the function returned. Can be any BaseException.
        busy_s, cpu_s: Wall time and CPU time of the call on its thread, in seconds.
        transfer_s: Seconds spent on transfers to and from the worker process; 0.0 for threads.
    """

    value: Any = None
    error: BaseException | None = None
    busy_s: float = 0.0
    cpu_s: float = 0.0
    transfer_s: float = 0.0


def run_timed(function: Callable[..., Any], args: tuple[Any, ...]) -> Outcome:
    """Call ``function`` and return its outcome with the measured times. Never raises."""
    wall, cpu = perf_counter(), thread_time()
    try:
        value = function(*args)
    except BaseException as error:  # noqa: BLE001 - delivered to the caller as a value
        return Outcome(None, workable(error), perf_counter() - wall, thread_time() - cpu)
    return Outcome(value, None, perf_counter() - wall, thread_time() - cpu)


def prepare_worker(function: Callable[..., Any]) -> None:
    """Call ``function.prepare_worker()`` if this method exists. The measured times do not include this call.

    A worker may call ``prepare_worker`` repeatedly, so the method should do its work only on the first call.
    """
    prepare = getattr(function, "prepare_worker", None)
    if prepare is not None:
        prepare()


class Executor(Protocol):
    """Interface of an executor, which runs blocking functions outside the event loop."""

    def submit(self, function: Callable[..., Any], *args: Any) -> asyncio.Future[Outcome]:
        """Start ``function(*args)`` on a worker. The event loop that awaits the future must call this method.

        The future never raises the exception of the function. Instead, the outcome stores the exception. Canceling the
        future discards the result, but does not interrupt a running function.
        """

    def submit_first(self, function: Callable[..., Any], *args: Any) -> asyncio.Future[Outcome]:
        """Like :meth:`submit`, but start the call before all other calls that wait for a worker."""

    def submit_within(self, limit_s: float, function: Callable[..., Any], *args: Any) -> asyncio.Future[Outcome]:
        """Like :meth:`submit`, but abandon a call that takes longer than ``limit_s`` seconds.

        The outcome of an abandoned call contains a RecordTimeoutError. The time limit does not include waiting for a
        worker, starting a worker, importing the function, or ``prepare_worker()``.
        """

    def close(self, timeout_s: float) -> bool:
        """Reject further calls and wait up to ``timeout_s`` seconds for workers.

        Return False if a call is still running after ``timeout_s`` seconds.
        """
