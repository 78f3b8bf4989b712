"""Engine exceptions that wrap another exception, to pass it through asyncio or together with finished rows."""

from __future__ import annotations

import asyncio
from typing import Any


class CarriedError(Exception):
    """Wraps an exception that asyncio would misinterpret.

    A user function may raise KeyboardInterrupt, SystemExit, CancelledError, StopIteration or GeneratorExit. These have
    a special meaning inside a coroutine, so the engine wraps them and unwraps them at the consumer. The engine also
    wraps an exception group of a user function: it is one error, unlike the groups of a TaskGroup.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(repr(error))
        self.error = error


class PartlyDone(Exception):
    """Work failed on one row, after the rows before it were processed.

    Attributes:
        done: Result for the rows before the failing row. Its type depends on the function that raises PartlyDone.
        error: Error of the failing row.
    """

    def __init__(self, done: Any, error: BaseException) -> None:
        super().__init__(repr(error))
        self.done = done
        self.error = error


def as_raisable(error: BaseException) -> Exception:
    """Return ``error`` if a coroutine may raise it, else a CarriedError that wraps it."""
    if isinstance(error, (StopIteration, StopAsyncIteration, asyncio.CancelledError, BaseExceptionGroup)):
        return CarriedError(error)
    return error if isinstance(error, Exception) else CarriedError(error)
