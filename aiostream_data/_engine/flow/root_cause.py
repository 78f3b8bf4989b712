"""Find the one error that matters among those a run ends with."""

from __future__ import annotations

import asyncio
from typing import NoReturn

from aiostream_data._engine.failures.carried_error import CarriedError, PartlyDone
from aiostream_data._engine.flow.channel import InputFailed, ReceiverClosed, StreamAborted


def raise_as_it_is(error: BaseException) -> NoReturn:
    """Raise an error with the causes that it has, without adding what is being handled here."""
    chain = error.__cause__, error.__context__, error.__suppress_context__
    try:
        raise error
    finally:
        error.__cause__, error.__context__, error.__suppress_context__ = chain


def root_error(failures: BaseException) -> BaseException | None:
    """Return the first failure that is not an echo of another; None when there are only echoes.

    Echoes are cancellations and what channels say when the other end went away.
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
    """Return the error that an exception of the engine's own tells of, or the exception itself."""
    while isinstance(error, (InputFailed, PartlyDone)):
        error = error.error
    return error


def errors_of(failures: BaseException) -> list[BaseException]:
    """Return all failures that are no echo of another, in the order in which they are told."""
    echoes = (ReceiverClosed, asyncio.CancelledError, StreamAborted)
    return [own_error(leaf) for leaf in _leaves(failures) if not isinstance(leaf, echoes)]


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error]


def for_consumer(error: BaseException) -> BaseException:
    """Return what the consumer's ``next()`` raises for ``error``.

    StopIteration would end the consumer's loop as if the data had ended, so it becomes a
    RuntimeError with the original as its cause, as Python does for generators.
    """
    if isinstance(error, CarriedError):
        error = error.error
    if isinstance(error, (StopIteration, StopAsyncIteration)):
        stopped = RuntimeError(f"a function of the pipeline raised {type(error).__name__}")
        stopped.__cause__ = error
        for note in getattr(error, "__notes__", ()):
            stopped.add_note(note)
        return stopped
    return error
