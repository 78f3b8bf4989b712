"""Of all that a run ends with, the consumer gets the one error that matters."""

from __future__ import annotations

import asyncio

import pytest

from aiostream_data._engine.failures.carried_error import CarriedError, as_raisable
from aiostream_data._engine.flow.channel import ReceiverClosed, StreamAborted
from aiostream_data._engine.flow.root_cause import for_consumer, root_error


def test_the_root_is_the_first_failure_that_is_no_echo() -> None:
    root = KeyError("root")
    inner = BaseExceptionGroup("inner", [asyncio.CancelledError(), root, ValueError("later")])
    assert root_error(BaseExceptionGroup("run", [StreamAborted(), ReceiverClosed(), inner])) is root


def test_an_aborted_stream_is_reported_when_nothing_explains_it() -> None:
    aborted = StreamAborted()
    assert root_error(BaseExceptionGroup("run", [ReceiverClosed(), aborted])) is aborted


def test_only_echoes_are_no_error() -> None:
    assert root_error(BaseExceptionGroup("run", [ReceiverClosed(), asyncio.CancelledError()])) is None


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), SystemExit(3), GeneratorExit(), asyncio.CancelledError(), OSError("plain")]
)
def test_what_a_function_raised_reaches_the_consumer_as_it_was(error: BaseException) -> None:
    raisable = as_raisable(error)
    assert isinstance(raisable, Exception)
    assert for_consumer(raisable) is error


@pytest.mark.parametrize("stop", [StopIteration(5), StopAsyncIteration()])
def test_what_would_end_the_consumers_loop_silently_becomes_a_runtime_error(stop: Exception) -> None:
    stop.add_note("record: 7")
    raisable = as_raisable(stop)
    assert isinstance(raisable, CarriedError)
    seen = for_consumer(raisable)
    assert type(seen) is RuntimeError
    assert seen.__cause__ is stop
    assert seen.__notes__ == ["record: 7"]
