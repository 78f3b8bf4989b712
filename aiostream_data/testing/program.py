"""Run a program until standard input closes: ``python -m aiostream_data.testing.program PROGRAM ARGUMENTS``.

As :mod:`aiostream_data.testing.child` for programs that are not Python: however the parent ends, the program ends too.
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
    """Run the program that the command line names; end with it, or end it when nobody holds the other end."""
    if sys.platform == "linux":
        prctl = ctypes.CDLL(None).prctl  # found before the fork: nothing is loaded between it and exec
        process = subprocess.Popen(
            sys.argv[1:], stdin=subprocess.DEVNULL, preexec_fn=lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        )
    else:
        process = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
    threading.Thread(target=_end_with, args=(process,), daemon=True).start()
    while os.read(0, 4096):
        pass
    process.kill()  # what it kept is thrown away with its folder, so nothing has to be finished
    process.wait()
    os._exit(0)


def _end_with(process: subprocess.Popen[bytes]) -> None:
    os._exit(process.wait() & 0xFF)


if __name__ == "__main__":
    main()
