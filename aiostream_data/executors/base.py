"""The interface of every executor, and the outcome of one hop."""

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
    """Result of one hop. An error is stored as a value, so that it is raised once, when its chunk is delivered.

    Attributes:
        value: Return value of the function.
        error: Exception that the function raised, or None. Can be any BaseException.
        busy_s, cpu_s: Wall and CPU seconds of the call on its thread.
        transfer_s: Seconds for transfers to and from the worker process; 0.0 on threads.
    """

    value: Any = None
    error: BaseException | None = None
    busy_s: float = 0.0
    cpu_s: float = 0.0
    transfer_s: float = 0.0


def run_timed(function: Callable[..., Any], args: tuple[Any, ...]) -> Outcome:
    """Call ``function`` and return its timed outcome. Never raises."""
    wall, cpu = perf_counter(), thread_time()
    try:
        value = function(*args)
    except BaseException as error:  # noqa: BLE001 - delivered to the caller as a value
        return Outcome(None, workable(error), perf_counter() - wall, thread_time() - cpu)
    return Outcome(value, None, perf_counter() - wall, thread_time() - cpu)


def prepare_worker(function: Callable[..., Any]) -> None:
    """Call ``function.prepare_worker()`` if it exists, before the time of the function's calls is measured.

    The method may be called repeatedly on a worker, and should do its work only on the first call.
    """
    prepare = getattr(function, "prepare_worker", None)
    if prepare is not None:
        prepare()


class Executor(Protocol):
    """Runs blocking functions outside the event loop."""

    def submit(self, function: Callable[..., Any], *args: Any) -> asyncio.Future[Outcome]:
        """Start ``function(*args)`` on a worker. Call it on the event loop that awaits the future.

        The future never raises the function's exception; the outcome holds it. Canceling the future discards the
        result, but a running function runs to its end.
        """

    def submit_within(self, limit_s: float, function: Callable[..., Any], *args: Any) -> asyncio.Future[Outcome]:
        """Like :meth:`submit`, but abandon a call that runs longer than ``limit_s`` seconds.

        The outcome of an abandoned call holds a RecordTimeoutError. The limit does not cover waiting for a worker,
        starting it, importing the function, or ``prepare_worker()``.
        """

    def close(self, timeout_s: float) -> bool:
        """Accept no more calls and wait up to ``timeout_s`` seconds for workers. Return False if a call still runs."""
