"""The side of a subinterpreter: keep functions, call them, answer in bytes. Imports nothing that needs NumPy."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, Protocol

from aiostream_data.executors.failure import Failure
from aiostream_data.executors.pickling import dumps

_functions: dict[bytes, Callable[..., Any]] = {}


class Queue(Protocol):
    """What of a queue between interpreters is used here."""

    def get(self) -> Any: ...

    def put(self, item: Any, /) -> None: ...


def learn(requests: Queue, answers: Queue) -> None:
    """Keep the function that was put into ``requests``: its key, then its pickle."""
    key, pickled = requests.get(), requests.get()
    answers.put(_ended(lambda: _functions.__setitem__(key, pickle.loads(pickled))))


def call(requests: Queue, answers: Queue) -> None:
    """Call the function whose key was put into ``requests``, with the pickled arguments behind it."""
    key, pickled = requests.get(), requests.get()
    answers.put(_ended(lambda: _functions[key](*pickle.loads(pickled))))


def _ended(function: Callable[[], Any]) -> bytes:
    """Return the pickled (result, failure) of a call."""
    try:
        return dumps((function(), None))
    except BaseException as error:  # noqa: BLE001 - given to the main interpreter as a value
        return dumps((None, Failure(error)))
