"""Find the original error among all errors of a failed run."""

from __future__ import annotations

import asyncio
from typing import Final, NoReturn

from aiostream_data._engine.failures.carried_error import CarriedError, PartlyDone
from aiostream_data._engine.failures.tracebacks import with_causes
from aiostream_data._engine.flow.channel import InputFailed, ReceiverClosed, StreamAborted

ECHOES: Final = (ReceiverClosed, asyncio.CancelledError, StreamAborted)
"""Errors that are consequences of other errors, or of the end of a run."""


def raise_as_it_is(error: BaseException) -> NoReturn:
    """Raise an error with its own cause and context; do not add the exception that is currently being handled."""
    chain = error.__cause__, error.__context__, error.__suppress_context__
    try:
        raise error
    finally:
        error.__cause__, error.__context__, error.__suppress_context__ = chain


def root_error(failures: BaseException) -> BaseException | None:
    """Return the first original error: an error that is not a consequence (echo) of another error.

    Cancellations and the channel errors ReceiverClosed and StreamAborted are echoes of other errors. If all errors are
    echoes, return the first StreamAborted, or None.
    """
    echo: BaseException | None = None
    for leaf in _leaves(failures):
        if isinstance(leaf, (ReceiverClosed, asyncio.CancelledError)):
            continue
        if isinstance(leaf, StreamAborted):
            echo = echo or leaf
            continue
        return own_error(leaf)
    return echo


def own_error(error: BaseException) -> BaseException:
    """Unwrap InputFailed and PartlyDone. Return other exceptions unchanged."""
    while isinstance(error, (InputFailed, PartlyDone)):
        error = error.error
    return error


def errors_of(failures: BaseException) -> list[BaseException]:
    """Return all original errors (errors that no other error caused), in the order of the exception groups."""
    return [own_error(leaf) for leaf in _leaves(failures) if not isinstance(leaf, ECHOES)]


def forget_frames(error: BaseException) -> None:
    """Remove the tracebacks of an echo and of the echoes among its causes, which nobody will see.

    Frames refer to their errors, and to rows. These cycles would stay in memory until a garbage collection.
    """
    for part in with_causes(error):
        if isinstance(part, (*ECHOES, BaseExceptionGroup)):
            part.__traceback__ = None


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error]


def for_consumer(error: BaseException) -> BaseException:
    """Return the error that ``next()`` raises in the consumer's loop for ``error``.

    A StopIteration would end the consumer's loop without an error message. Therefore a StopIteration becomes a
    RuntimeError with the original as its cause, as in Python's generators.
    """
    if isinstance(error, CarriedError):
        error = error.error
    if isinstance(error, (StopIteration, StopAsyncIteration)):
        stopped = RuntimeError(f"a function of the pipeline raised {type(error).__name__}. Catch it in the function.")
        stopped.__cause__ = error
        for note in getattr(error, "__notes__", ()):
            stopped.add_note(note)
        return stopped
    return error
