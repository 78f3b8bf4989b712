"""User states for coroutine functions, created by ``init``: one state per loader and operator."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from aiostream_data._engine.calls.worker_state import StateKey
from aiostream_data.executors.failure import workable
from aiostream_data.plan.written import function_name


class LoopStates:
    """User states of one loader.

    Deleting the key of a user state releases the state. This class is not thread-safe: use it only on the event loop's
    thread.
    """

    def __init__(self) -> None:
        self._states: WeakKeyDictionary[StateKey, Any] = WeakKeyDictionary()
        self._making: WeakKeyDictionary[StateKey, asyncio.Lock] = WeakKeyDictionary()

    async def of(self, key: StateKey, init: Callable[[], Any]) -> Any:
        """Return the user state for ``key``.

        On first use, call ``init`` to create the state; await the result of ``init`` if it is awaitable.

        Raises:
            BaseException: The exception raised by ``init``, with a note. The next call of this method runs ``init``
                again.
        """
        async with self._making.setdefault(key, asyncio.Lock()):
            if key not in self._states:
                self._states[key] = await _made(init)
            return self._states[key]


async def _made(init: Callable[[], Any]) -> Any:
    try:
        state = init()
        return await state if inspect.isawaitable(state) else state
    except BaseException as raised:  # noqa: BLE001 - raised again
        error = workable(raised)
        error.add_note(f"raised by init, {function_name(init)}")
        raise error  # noqa: B904 - it is the same, or stands for it
