"""What ``init`` functions made: one state per worker and function, alive as long as the loader and the worker are.

How this works. A state goes by a *key*, one for each place of the plan and ``init`` function there, so that it
outlives epochs. A worker thread keeps its states only as long as their key is in use: by the loader, or by work that is
under way. In a worker process a key is the same object whenever it comes, as long as a function known there holds it.
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
    """Names the states that one ``init`` makes, at one place of a loader's plan."""

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
    """The keys of one loader. Loop thread only."""

    def __init__(self) -> None:
        self._keys: dict[str, tuple[Callable[[], Any], StateKey]] = {}

    def of(self, place: str, init: Callable[[], Any]) -> StateKey:
        """Return the key for a place in the plan; a new one for another ``init``, as inner data sets may bring."""
        known, key = self._keys.get(place, (None, None))
        if key is None or known is not init:
            key = StateKey()
            self._keys[place] = (init, key)
        return key


_here = threading.local()


def state_of_worker(key: StateKey, init: Callable[[], Any]) -> Any:
    """Return the state that goes by ``key`` on this thread, made when first asked for.

    Raises:
        BaseException: What ``init`` raised, with a note; it is called again next time.
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
