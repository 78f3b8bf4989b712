"""A pipe that ends a process when its parent ends. The parent holds the other end, and the system always closes it.

The system sends a signal when the pipe closes. This works even while native code holds the GIL, as a regular expression
can do indefinitely. On Linux, the signal is SIGKILL, which also ends a process stopped by SIGSTOP.
"""

from __future__ import annotations

import fcntl
import os
import signal
from contextlib import suppress


def end_with(lifeline: int, pid: int) -> None:
    """Make the system end a process when the other end of its lifeline closes.

    Both the process and its parent call this function. The parent's call protects the process from its start. The
    process repeats the call because some systems do not let a process configure this for another one.

    Args:
        lifeline: Descriptor of the read end.
        pid: Id of the process to end.
    """
    with suppress(OSError):  # some systems do not support pipes here; the watcher thread ends the process
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, pid)
        if hasattr(fcntl, "F_SETSIG"):
            fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
