"""What ``init`` functions made: one state per worker thread and function, alive as long as its worker."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

_here = threading.local()


def state_of_worker(token: int, init: Callable[[], Any]) -> Any:
    """Return the state that goes by ``token`` on this thread, made when first asked for.

    Raises:
        BaseException: What ``init`` raised, with a note; it is called again next time.
    """
    states: dict[int, Any] = _here.__dict__.setdefault("states", {})
    if token not in states:
        try:
            states[token] = init()
        except BaseException as error:
            error.add_note(f"raised by init, {getattr(init, '__qualname__', type(init).__qualname__)}, on a new worker")
            raise
    return states[token]
