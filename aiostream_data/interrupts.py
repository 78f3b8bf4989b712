"""Hold Ctrl-C back where it would break something: raised between any two lines, it leaves things half done.

An event loop that has a thread of its own never sees an interrupt. One that runs in the caller's thread may be anywhere
when it comes: in the middle of waking a task, which then is never woken, or of closing a file, which then stays open.
Slots of a device change hands in the consumer's thread: cut short, nobody could tell what the device still reads.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class _Held:
    """What holds Ctrl-C back, in the main thread.

    Args:
        stop, is_in_function: See :func:`interrupts_after`.

    Attributes:
        blocks: How many blocks it must not cut are being run inside of it.
        came: Ctrl-C has come.
    """

    def __init__(self, stop: Callable[[], object], is_in_function: Callable[[], bool]) -> None:
        self._stop = stop
        self._is_in_function = is_in_function
        self.blocks = 0
        self.came = False

    def note(self, number: int, frame: FrameType | None) -> None:
        """Take the signal."""
        if self.came or (self._is_in_function() and not self.blocks):
            signal.default_int_handler(number, frame)
        self.came = True
        self._stop()

    @contextmanager
    def block(self) -> Iterator[None]:
        """Hold back inside functions, too, while the block runs."""
        before, self.blocks = self.came, self.blocks + 1
        try:
            yield
        finally:
            self.blocks -= 1
        if self.came and not before and not self.blocks and self._is_in_function():
            raise KeyboardInterrupt


@contextmanager
def interrupts_after(
    stop: Callable[[], object] = lambda: None, is_in_function: Callable[[], bool] = lambda: False
) -> Iterator[None]:
    """Raise KeyboardInterrupt behind the block, not inside it, where Ctrl-C comes while the block runs.

    It is raised at once inside functions of the user, and when Ctrl-C comes a second time. A block inside another one
    is not cut either, also where a function of the user runs it. A handler of the user's own, as of a debugger, is left
    alone. Also a decorator of functions.

    Args:
        stop: Lets the block end soon; called by the signal's handler. Only the outermost counts.
        is_in_function: Whether a function is being called. Only the outermost counts.
    """
    handler = _handler()
    if handler is not signal.default_int_handler:
        held = getattr(handler, "__self__", None)
        if isinstance(held, _Held):
            with held.block():
                yield
        else:
            yield
        return
    held = _Held(stop, is_in_function)
    note = held.note
    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is note:  # a debugger may have set its own in a function
            signal.signal(signal.SIGINT, signal.default_int_handler)
    if held.came:
        raise KeyboardInterrupt


def _handler() -> object:
    """Return what hears Ctrl-C where this thread is; None where this thread never does."""
    here = threading.current_thread() is threading.main_thread()
    return signal.getsignal(signal.SIGINT) if here else None
