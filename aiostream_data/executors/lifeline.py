"""A pipe (the lifeline) that ends a process when its parent process ends.

The operating system closes the parent's end of the pipe when the parent ends.

The operating system sends a signal to the process when the pipe closes. The signal works even while native code, such
as a long regular expression match, holds the GIL. On Linux, the signal is SIGKILL, which also ends a process stopped by
SIGSTOP.
"""

from __future__ import annotations

import fcntl
import os
import signal
from contextlib import suppress


def end_with(lifeline: int, pid: int) -> None:
    """Make the operating system end a process when the other end of its lifeline pipe closes.

    Both the process and its parent must call this function. The parent's call protects the process from its start. The
    process repeats the call, because on some systems the parent cannot configure another process.

    Args:
        lifeline: File descriptor of the pipe's read end.
        pid: Id of the process to end.
    """
    with suppress(OSError):  # some systems do not support pipes here; the watcher thread ends the process
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, pid)
        if hasattr(fcntl, "F_SETSIG"):
            fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
