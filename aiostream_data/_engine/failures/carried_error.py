"""Exceptions of the engine that carry another one: through asyncio, or together with finished rows."""

from __future__ import annotations

import asyncio
from typing import Any


class CarriedError(Exception):
    """Carries an exception that asyncio would treat as a signal of its own.

    A user function may raise KeyboardInterrupt, SystemExit, CancelledError, StopIteration or
    GeneratorExit. Inside a coroutine each of them means something else, so it travels in this shell
    and is taken out where the consumer sees it. So does a group of exceptions: it is one error of the
    user's, and not to be taken apart as those are in which a TaskGroup tells how its tasks ended.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(repr(error))
        self.error = error


class PartlyDone(Exception):
    """Work failed on some row, after it had done the rows before.

    Attributes:
        done: What was made of the rows before; what that is, whoever raises this says.
        error: What it failed with.
    """

    def __init__(self, done: Any, error: BaseException) -> None:
        super().__init__(repr(error))
        self.done = done
        self.error = error


def as_raisable(error: BaseException) -> Exception:
    """Return an exception that a coroutine may raise and that stands for ``error``."""
    if isinstance(error, (StopIteration, StopAsyncIteration, asyncio.CancelledError, BaseExceptionGroup)):
        return CarriedError(error)
    return error if isinstance(error, Exception) else CarriedError(error)
