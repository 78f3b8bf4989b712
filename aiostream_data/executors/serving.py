"""Code that a worker process runs to load functions, call functions, and send replies."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from contextlib import suppress
from time import perf_counter, process_time
from typing import Any, NamedTuple

from aiostream_data.executors.base import prepare_worker
from aiostream_data.executors.blocks import LinkEnded
from aiostream_data.executors.exchange import Exchange
from aiostream_data.executors.failure import Failure

MAX_FUNCTIONS = 64
"""Maximum number of functions that a worker keeps. The parent process uses the same limit."""


class Learn(NamedTuple):
    """Request to unpickle a function in the worker and store it under a key."""

    key: bytes
    pickled: bytes
    forget_all: bool


class CallRequest(NamedTuple):
    """Request to call a function that the worker has stored."""

    key: bytes
    args: tuple[Any, ...]


class Reply(NamedTuple):
    """Result of one request; see :class:`.base.Outcome`."""

    value: Any
    failure: Failure | None
    busy_s: float = 0.0
    cpu_s: float = 0.0


def serve(exchange: Exchange) -> None:
    """Process requests until the parent closes the link or the parent process ends."""
    functions: dict[bytes, Callable[..., Any]] = {}
    while True:
        try:
            request, lease, _ = exchange.receive()
            # A function may keep its arguments, which must not block the parent's sends.
            lease.release()
            answer = _answer(functions, request)
            del request
        except LinkEnded:
            return
        except BaseException as error:  # noqa: BLE001 - sent to the parent as a value
            answer = Reply(None, Failure(error, "while the arguments were unpickled in the worker"))
        _flush()
        try:
            _send(exchange, answer)
        except LinkEnded:
            return
        del answer  # frees this result's memory before waiting for the next request


def _answer(functions: dict[bytes, Callable[..., Any]], request: Learn | CallRequest) -> Reply:
    wall, cpu = perf_counter(), process_time()
    value, failure = None, None
    try:
        if isinstance(request, Learn):
            _learn(functions, request)
        else:
            value = functions[request.key](*request.args)
    except BaseException as error:  # noqa: BLE001 - sent to the parent as a value
        failure = Failure(error)
    return Reply(value, failure, perf_counter() - wall, process_time() - cpu)


def _learn(functions: dict[bytes, Callable[..., Any]], request: Learn) -> None:
    function = pickle.loads(request.pickled)  # unpickle first, so that state shared with the old functions survives
    if request.forget_all:
        functions.clear()
    prepare_worker(function)
    functions[request.key] = function


def _flush() -> None:
    """Flush stdout and stderr. If the process were killed, buffered text would be lost."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with suppress(OSError, ValueError):  # the stream is closed, full or broken
                stream.flush()


def _send(exchange: Exchange, answer: Reply) -> None:
    try:
        exchange.send(answer)
    except LinkEnded:
        raise
    except BaseException as error:  # noqa: BLE001 - a result that does not pickle is an error like any other
        exchange.send(Reply(None, Failure(error, "while the result was pickled"), answer.busy_s, answer.cpu_s))
