"""Code that a subinterpreter runs to store functions, call functions, and return pickled results.

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
    """Methods that this module needs from a queue between interpreters."""

    def get(self) -> Any: ...

    def put(self, item: Any, /) -> None: ...


def learn(requests: Queue, answers: Queue) -> None:
    """Take a key and a pickled function from the queue ``requests``, and store the function under the key."""
    key, pickled = requests.get(), requests.get()
    answers.put(_ended(lambda: _functions.__setitem__(key, pickle.loads(pickled))))


def call(requests: Queue, answers: Queue) -> None:
    """Take a key and pickled arguments from the queue ``requests``, and call the function with this key."""
    key, pickled = requests.get(), requests.get()
    answers.put(_ended(lambda: _functions[key](*pickle.loads(pickled))))


def _ended(function: Callable[[], Any]) -> bytes:
    """Call ``function`` and return the pickled pair (result, failure)."""
    try:
        return dumps((function(), None))
    except BaseException as error:  # noqa: BLE001 - given to the main interpreter as a value
        return dumps((None, Failure(error)))
