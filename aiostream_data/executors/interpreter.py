"""Executor threads that each have their own subinterpreter and their own GIL (Python 3.14 and later).

The package's own code runs on the threads of a :class:`ThreadExecutor` in the main interpreter, where NumPy works. Each
user function is wrapped as a :class:`RemoteFunction`. A call of the wrapper pickles the element, runs the function in
the thread's subinterpreter, and unpickles the result. Elements are therefore transferred as pickles. User functions
that import NumPy fail, because NumPy does not support subinterpreters.
"""

from __future__ import annotations

import hashlib
import pickle
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any

from aiostream_data.errors import StageBuildError
from aiostream_data.executors.failure import Failure
from aiostream_data.executors.pickling import dumps
from aiostream_data.executors.thread import ThreadExecutor

_PREPARE = (
    "import sys; sys.path[:] = path.split('\\n'); import concurrent.interpreters; "
    "from aiostream_data.executors.interpreter_main import learn, call"
)
_FIRST_VERSION = (3, 14)


class InterpreterExecutor(ThreadExecutor):
    """Executor with up to ``max_workers`` threads, each with a subinterpreter; see :class:`.base.Executor`.

    Raises:
        StageBuildError: The Python version is older than 3.14.
    """

    def __init__(self, max_workers: int, name: str) -> None:
        super().__init__(max_workers, name)
        self._here = threading.local()
        if sys.version_info < _FIRST_VERSION:
            raise StageBuildError("executor='interpreter' needs Python 3.14 or later: use executor='process'")

    def remote(self, function: Callable[..., Any]) -> RemoteFunction:
        """Return a function that runs ``function`` in the subinterpreter of the calling executor thread.

        Raises:
            Exception: ``function`` cannot be pickled.
        """
        return RemoteFunction(function, self._interpreter)

    def _interpreter(self) -> Interpreter:
        interpreter: Interpreter | None = getattr(self._here, "interpreter", None)
        if interpreter is None:
            interpreter = self._here.interpreter = Interpreter()
        return interpreter

    def _thread_ends(self) -> None:
        interpreter: Interpreter | None = getattr(self._here, "interpreter", None)
        if interpreter is not None:
            interpreter.close()


class RemoteFunction:
    """Wrapper that has the name of a user function, but runs the function in a subinterpreter."""

    def __init__(self, function: Callable[..., Any], interpreter: Callable[[], Interpreter]) -> None:
        self.__wrapped__ = function
        self.__qualname__ = getattr(function, "__qualname__", type(function).__qualname__)
        if hasattr(function, "__code__"):
            self.__code__ = function.__code__
        self._pickled = dumps(function)
        self._key = hashlib.blake2b(self._pickled, digest_size=16).digest()
        self._interpreter = interpreter

    def __call__(self, *args: Any) -> Any:
        """Call the function in the calling thread's subinterpreter.

        Raises:
            RecordError: The function raised an exception. If possible, the RecordError is also an instance of this
                exception's type.
        """
        interpreter = self._interpreter()
        interpreter.learn(self._key, self._pickled)
        return interpreter.call(self._key, args)


class Interpreter:
    """A subinterpreter that only one thread uses."""

    def __init__(self) -> None:
        interpreters = import_module("concurrent.interpreters")
        self._interpreter = interpreters.create()
        self._requests, self._answers = interpreters.create_queue(), interpreters.create_queue()
        path = "\n".join(entry for entry in sys.path if isinstance(entry, str))
        self._interpreter.prepare_main(path=path)
        self._interpreter.exec(_PREPARE)
        self._interpreter.prepare_main(requests=self._requests, answers=self._answers)
        self._known: set[bytes] = set()

    def learn(self, key: bytes, pickled: bytes) -> None:
        """Send a function to the subinterpreter if the subinterpreter does not have the function yet."""
        if key not in self._known:
            self._ask("learn", key, pickled)
            self._known.add(key)

    def call(self, key: bytes, args: tuple[Any, ...]) -> Any:
        """Call a function that was sent to the subinterpreter by :meth:`learn`."""
        return self._ask("call", key, dumps(args))

    def close(self) -> None:
        """Close the subinterpreter."""
        self._interpreter.close()

    def _ask(self, what: str, key: bytes, pickled: bytes) -> Any:
        self._requests.put(key)
        self._requests.put(pickled)
        self._interpreter.exec(f"{what}(requests, answers)")  # runs on this thread, with the subinterpreter's GIL
        value, failure = pickle.loads(self._answers.get())
        if isinstance(failure, Failure):
            raise failure.as_error()
        return value
