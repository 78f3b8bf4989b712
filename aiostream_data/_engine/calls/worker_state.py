"""User states of workers, created by ``init`` functions: one state for each worker and user function.

A *key* identifies a user state. Each pair of plan node and ``init`` function has a single key, so workers reuse a user
state in later epochs. A worker thread keeps a user state as long as the loader or unfinished work refers to the key of
the state. In a worker process, unpickling a key returns the existing key object if a function in the process still uses
it.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakValueDictionary

from aiostream_data.executors.failure import workable

_numbers = itertools.count(1)


class StateKey:
    """Key of the user states that one ``init`` function creates for one node of a loader's plan."""

    __slots__ = ("__weakref__", "number")

    def __init__(self, number: int | None = None) -> None:
        self.number: Final = next(_numbers) if number is None else number

    def __reduce__(self) -> tuple[Any, ...]:
        return (_received, (self.number,))


_received_keys: WeakValueDictionary[int, StateKey] = WeakValueDictionary()


def _received(number: int) -> StateKey:
    key = _received_keys.get(number)
    if key is None:
        key = _received_keys[number] = StateKey(number)
    return key


class StateKeys:
    """Keys of the user states of one loader. This class is not thread-safe: use it only on the event loop's thread."""

    def __init__(self) -> None:
        self._keys: dict[str, tuple[Callable[[], Any], StateKey]] = {}

    def of(self, place: str, init: Callable[[], Any]) -> StateKey:
        """Return the key of the user state for a node of the plan.

        Create a new key if the node's ``init`` function has changed, as can happen in inner datasets.
        """
        known, key = self._keys.get(place, (None, None))
        if key is None or known is not init:
            key = StateKey()
            self._keys[place] = (init, key)
        return key


_here = threading.local()


def state_of_worker(key: StateKey, init: Callable[[], Any]) -> Any:
    """Return the user state of this thread for ``key``. Call ``init`` to create the state on first use.

    Raises:
        BaseException: The exception raised by ``init``, with a note. The next call of this function runs ``init``
            again.
    """
    states: WeakKeyDictionary[StateKey, Any] = _here.__dict__.setdefault("states", WeakKeyDictionary())
    if key not in states:
        try:
            states[key] = init()
        except BaseException as raised:  # noqa: BLE001 - raised again
            error = workable(raised)
            error.add_note(f"raised by init, {getattr(init, '__qualname__', type(init).__qualname__)}, on a new worker")
            raise error  # noqa: B904 - it is the same, or stands for it
    return states[key]
