"""Internal exceptions that wrap another exception, either to pass it through asyncio or to add the finished rows."""

from __future__ import annotations

import asyncio
from typing import Any


class CarriedError(Exception):
    """Exception that wraps an exception that asyncio would misinterpret.

    A user function may raise KeyboardInterrupt, SystemExit, CancelledError, StopIteration or GeneratorExit. These
    exceptions have a special meaning inside a coroutine, so the engine wraps them and unwraps them at the consumer. The
    engine also wraps an exception group raised by a user function, because asyncio would misinterpret the group.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(type(error).__name__)  # the error of a user may have no working repr()
        self.error = error


class PartlyDone(Exception):
    """Exception that reports a failed row together with the results of the rows before it.

    Attributes:
        done: Result of the rows before the failing row. The type of the result depends on the function that raises
            PartlyDone.
        error: Error of the failing row.
    """

    def __init__(self, done: Any, error: BaseException) -> None:
        super().__init__(type(error).__name__)  # the error of a user may have no working repr()
        self.done = done
        self.error = error


def as_raisable(error: BaseException) -> Exception:
    """Return ``error`` if a coroutine may raise it; otherwise, return a CarriedError that wraps the error."""
    if isinstance(error, (StopIteration, StopAsyncIteration, asyncio.CancelledError, BaseExceptionGroup)):
        return CarriedError(error)
    return error if isinstance(error, Exception) else CarriedError(error)
