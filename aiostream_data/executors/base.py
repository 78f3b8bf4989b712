"""Where work runs: the interface of every executor, and the outcome of one hop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, Any, Protocol

from aiostream_data.executors.failure import workable

if TYPE_CHECKING:
    import asyncio  # workers do without, and start sooner


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of one hop, kept as a value so that an error is raised once, in its chunk's turn.

    Attributes:
        value: What the function returned.
        error: What it raised instead; any BaseException.
        busy_s, cpu_s: Wall and CPU seconds it took on its thread.
        transfer_s: Seconds between this process and the worker process, in both directions; 0.0 on threads.
    """

    value: Any = None
    error: BaseException | None = None
    busy_s: float = 0.0
    cpu_s: float = 0.0
    transfer_s: float = 0.0


def run_timed(function: Callable[..., Any], args: tuple[Any, ...]) -> Outcome:
    """Call ``function`` and return how it ended."""
    wall, cpu = perf_counter(), thread_time()
    try:
        value = function(*args)
    except BaseException as error:  # noqa: BLE001 - delivered to the caller as a value
        return Outcome(None, workable(error), perf_counter() - wall, thread_time() - cpu)
    return Outcome(value, None, perf_counter() - wall, thread_time() - cpu)


def prepare_worker(function: Callable[..., Any]) -> None:
    """Let a function that wants to make something on a new worker do so before its time is taken.

    Such a function has a method ``prepare_worker()``, which is called again and again and should do
    something at the first call only.
    """
    prepare = getattr(function, "prepare_worker", None)
    if prepare is not None:
        prepare()


class Executor(Protocol):
    """Runs blocking functions off the event loop."""

    def submit(self, function: Callable[..., Any], *args: Any) -> asyncio.Future[Outcome]:
        """Begin ``function(*args)`` on a worker; call on the event loop that will await the future.

        The future never raises what the function raised: that is in the outcome. Cancelling the
        future abandons the result; a function that has begun runs to its end.
        """

    def submit_within(self, limit_s: float, function: Callable[..., Any], *args: Any) -> asyncio.Future[Outcome]:
        """Do the same, and give up a call that runs longer than ``limit_s`` seconds.

        Its outcome's error is then a RecordTimeoutError. What a worker needs before its first call, such as
        to start, to import the function and ``prepare_worker()``, is not counted, nor is waiting for one.
        """

    def close(self, timeout_s: float) -> bool:
        """Stop taking work and wait for the workers; False when some are still in a function."""
