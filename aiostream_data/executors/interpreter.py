"""Threads with an interpreter of their own each, and so a lock of their own (Python 3.14 and later).

How this works. Work runs on the threads of a :class:`ThreadExecutor`, in this interpreter, where NumPy is. The
user's functions it calls are :class:`RemoteFunction` objects: a call pickles the element, runs the function in the
subinterpreter that belongs to the thread, and unpickles what it returns. Elements so cross as plain Python objects,
and functions that import NumPy fail, because NumPy does not load in subinterpreters.
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
    "from aiostream_data.executors.in_interpreter import learn, call"
)
_FIRST_VERSION = (3, 14)


class InterpreterExecutor(ThreadExecutor):
    """Up to ``max_workers`` threads, each with an interpreter; see :class:`.base.Executor`.

    Raises:
        StageBuildError: This Python has no subinterpreters that programs can use.
    """

    def __init__(self, max_workers: int, name: str) -> None:
        super().__init__(max_workers, name)
        self._here = threading.local()
        if sys.version_info < _FIRST_VERSION:
            raise StageBuildError("executor='interpreter' needs Python 3.14 or later: use executor='process'")

    def remote(self, function: Callable[..., Any]) -> RemoteFunction:
        """Return a function that runs ``function`` in the interpreter of the executor's thread that calls it.

        Raises:
            Exception: It does not pickle.
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
    """Stands for a function and looks like it, but runs it elsewhere."""

    def __init__(self, function: Callable[..., Any], interpreter: Callable[[], Interpreter]) -> None:
        self.__wrapped__ = function
        self.__qualname__ = getattr(function, "__qualname__", type(function).__qualname__)
        if hasattr(function, "__code__"):
            self.__code__ = function.__code__
        self._pickled = dumps(function)
        self._key = hashlib.blake2b(self._pickled, digest_size=16).digest()
        self._interpreter = interpreter

    def __call__(self, *args: Any) -> Any:
        """Call the function.

        Raises:
            RecordError: What it raised there; also an exception of the original's type.
        """
        interpreter = self._interpreter()
        interpreter.learn(self._key, self._pickled)
        return interpreter.call(self._key, args)


class Interpreter:
    """A subinterpreter, used by one thread."""

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
        """Make a function known; nothing if it is."""
        if key not in self._known:
            self._ask("learn", key, pickled)
            self._known.add(key)

    def call(self, key: bytes, args: tuple[Any, ...]) -> Any:
        """Call a known function."""
        return self._ask("call", key, dumps(args))

    def close(self) -> None:
        """End the interpreter."""
        self._interpreter.close()

    def _ask(self, what: str, key: bytes, pickled: bytes) -> Any:
        self._requests.put(key)
        self._requests.put(pickled)
        self._interpreter.exec(f"{what}(requests, answers)")  # on this thread, under the other interpreter's lock
        value, failure = pickle.loads(self._answers.get())
        if isinstance(failure, Failure):
            raise failure.as_error()
        return value
