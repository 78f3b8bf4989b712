"""Delay KeyboardInterrupt (Ctrl-C) in code that must not be interrupted.

Python can raise KeyboardInterrupt between any two lines of the main thread. If the main thread runs an event loop, an
interrupt can leave a task waiting forever, or a file open. After an interrupted transfer of device slots, the loader
could not determine which slots the device still reads. Event loops in other threads never receive a KeyboardInterrupt.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class _Held:
    """SIGINT handler of the main thread that delays KeyboardInterrupt.

    Args:
        stop, is_in_function: See :func:`interrupts_after`.

    Attributes:
        blocks: Number of nested ``with`` blocks in progress that delay interrupts.
        came: True after the user pressed Ctrl-C.
    """

    def __init__(self, stop: Callable[[], object], is_in_function: Callable[[], bool]) -> None:
        self._stop = stop
        self._is_in_function = is_in_function
        self.blocks = 0
        self.came = False

    def note(self, number: int, frame: FrameType | None) -> None:
        """Handle SIGINT: record the signal and call ``stop``, or raise KeyboardInterrupt where this is safe."""
        if self.came or (self._is_in_function() and not self.blocks):
            signal.default_int_handler(number, frame)
        self.came = True
        self._stop()

    @contextmanager
    def block(self) -> Iterator[None]:
        """Delay KeyboardInterrupt until the end of a nested ``with`` block, even inside a user function."""
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
    """Delay a KeyboardInterrupt (Ctrl-C) until the end of the ``with`` block in which it occurs.

    A KeyboardInterrupt is raised immediately inside user functions, and when the user presses Ctrl-C a second time.
    A nested ``with`` block also delays interrupts inside user functions. A custom SIGINT handler, e.g. the handler of a
    debugger, is not replaced. :func:`interrupts_after` also works as a decorator.

    Args:
        stop: Function that the signal handler calls to end the block soon. Nested ``with`` blocks ignore the argument
            ``stop``.
        is_in_function: Function that returns True while a user function runs. Nested ``with`` blocks ignore the
            argument ``is_in_function``.
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
        if signal.getsignal(signal.SIGINT) is note:  # a debugger may have set its own handler in the meantime
            signal.signal(signal.SIGINT, signal.default_int_handler)
    if held.came:
        raise KeyboardInterrupt


def _handler() -> object:
    """Return the current SIGINT handler.

    Return None outside the main thread, because only the main thread handles signals.
    """
    here = threading.current_thread() is threading.main_thread()
    return signal.getsignal(signal.SIGINT) if here else None
