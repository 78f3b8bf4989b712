"""A pipe whose closing ends a process: its parent holds the other end, and the system closes it whatever happens.

The system sends a signal when the pipe closes. That works while native code of the process keeps the interpreter's
lock, as a regular expression may for ever. Where the signal can be chosen, on Linux, it is SIGKILL, which also ends
a process that was stopped (SIGSTOP).
"""

from __future__ import annotations

import fcntl
import os
import signal
from contextlib import suppress


def end_with(lifeline: int, pid: int) -> None:
    """Have the system end a process when the other end of its lifeline closes.

    Both the process and its parent call this: the parent so that it holds from the first moment on, and the process
    since not every system lets another one do it.

    Args:
        lifeline: Descriptor of the end that is read.
        pid: The process.
    """
    with suppress(OSError):  # not every system does it for pipes: then the watcher ends the process
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, pid)
        if hasattr(fcntl, "F_SETSIG"):
            fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
