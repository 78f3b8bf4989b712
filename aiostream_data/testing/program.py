"""Run a program until standard input closes: ``python -m aiostream_data.testing.program PROGRAM ARGUMENTS``.

This module is the counterpart of :mod:`aiostream_data.testing.child` for programs that are not written in Python. The
program ends when the parent process exits for any reason.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Run the program named on the command line until it exits or standard input closes."""
    if sys.platform == "linux":
        prctl = ctypes.CDLL(None).prctl  # loaded before the fork: nothing may be loaded between fork and exec
        process = subprocess.Popen(
            sys.argv[1:], stdin=subprocess.DEVNULL, preexec_fn=lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        )
    else:
        process = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
    threading.Thread(target=_end_with, args=(process,), daemon=True).start()
    while os.read(0, 4096):
        pass
    process.kill()  # a clean exit is unnecessary: its data folder is temporary
    process.wait()
    os._exit(0)


def _end_with(process: subprocess.Popen[bytes]) -> None:
    os._exit(process.wait() & 0xFF)


if __name__ == "__main__":
    main()
