"""The worker's side of a pool of processes: learn functions, call them, answer."""

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
"""Functions that a worker keeps at once. The parent counts along."""


class Learn(NamedTuple):
    """Keep a function under a key; the pickled function unpickles in the worker, whatever it does there."""

    key: bytes
    pickled: bytes
    forget_all: bool


class CallRequest(NamedTuple):
    """Call a function that was learned."""

    key: bytes
    args: tuple[Any, ...]


class Reply(NamedTuple):
    """How a request ended; see :class:`.base.Outcome`."""

    value: Any
    failure: Failure | None
    busy_s: float = 0.0
    cpu_s: float = 0.0


def serve(exchange: Exchange) -> None:
    """Work off requests until the parent ends the link or is gone."""
    functions: dict[bytes, Callable[..., Any]] = {}
    while True:
        try:
            request, lease, _ = exchange.receive()
            # A function may keep its arguments for ever, and must not stop the parent from sending by that.
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
        del answer  # waiting for the next request must not keep this one's memory


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
    function = pickle.loads(request.pickled)  # first, so that states that it shares with the others stay
    if request.forget_all:
        functions.clear()
    prepare_worker(function)
    functions[request.key] = function


def _flush() -> None:
    """Write out what was printed, which would be lost when the process is ended."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with suppress(OSError, ValueError):  # closed, full or broken: nothing a pipeline could do about
                stream.flush()


def _send(exchange: Exchange, answer: Reply) -> None:
    try:
        exchange.send(answer)
    except LinkEnded:
        raise
    except BaseException as error:  # noqa: BLE001 - a result that does not pickle is an error like any other
        exchange.send(Reply(None, Failure(error, "while the result was pickled"), answer.busy_s, answer.cpu_s))
