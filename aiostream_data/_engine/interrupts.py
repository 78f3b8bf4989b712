"""Hold Ctrl-C back where it would break something: raised between any two lines, it leaves things half done.

An event loop that has a thread of its own never sees an interrupt. One that runs in the caller's thread may be anywhere
when it comes: in the middle of waking a task, which then is never woken, or of closing a file, which then stays open.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupts_after(
    stop: Callable[[], object] = lambda: None, is_in_function: Callable[[], bool] = lambda: False
) -> Iterator[None]:
    """Raise KeyboardInterrupt behind the block, not inside it, where Ctrl-C comes while the block runs.

    It is raised at once inside functions of the user, and when Ctrl-C comes a second time. A handler of the user's own,
    as of a debugger, is left alone.

    Args:
        stop: Lets the block end soon; called by the signal's handler.
        is_in_function: Whether a function is being called.
    """
    if not _raises_anywhere():
        yield
        return
    came = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal came
        if came or is_in_function():
            signal.default_int_handler(number, frame)
        came = True
        stop()

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is note:  # a debugger may have set its own in a function
            signal.signal(signal.SIGINT, signal.default_int_handler)
    if came:
        raise KeyboardInterrupt


def _raises_anywhere() -> bool:
    """Return whether Ctrl-C would be raised wherever this thread is."""
    here = threading.current_thread() is threading.main_thread()
    return here and signal.getsignal(signal.SIGINT) is signal.default_int_handler
