"""Code that runs in a subinterpreter: stores functions, calls the functions, and returns pickled results.

Must not import NumPy.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, Protocol

from aiostream_data.executors.failure import Failure
from aiostream_data.executors.pickling import dumps

_functions: dict[bytes, Callable[..., Any]] = {}


class Queue(Protocol):
    """Methods of a queue between interpreters that this module uses."""

    def get(self) -> Any: ...

    def put(self, item: Any, /) -> None: ...


def learn(requests: Queue, answers: Queue) -> None:
    """Store the function in the queue ``requests``, which contains the function's key and then its pickle."""
    key, pickled = requests.get(), requests.get()
    answers.put(_ended(lambda: _functions.__setitem__(key, pickle.loads(pickled))))


def call(requests: Queue, answers: Queue) -> None:
    """Call the function whose key is next in the queue ``requests``, with the pickled arguments that follow the key."""
    key, pickled = requests.get(), requests.get()
    answers.put(_ended(lambda: _functions[key](*pickle.loads(pickled))))


def _ended(function: Callable[[], Any]) -> bytes:
    """Return the pickled pair (result, failure) of a function call."""
    try:
        return dumps((function(), None))
    except BaseException as error:  # noqa: BLE001 - given to the main interpreter as a value
        return dumps((None, Failure(error)))
