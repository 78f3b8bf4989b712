"""Run a Python module until standard input closes: ``python -m aiostream_data.testing.child MODULE ARGS``.

The parent process keeps the write end of the standard input pipe. When the parent process exits for any reason, the
pipe closes and the module ends.
"""

from __future__ import annotations

import os
import runpy
import sys
import threading


def _end_with_standard_input() -> None:
    # Read the raw descriptor: the lock of a buffered reader would be held at interpreter shutdown.
    while os.read(0, 4096):
        pass
    os._exit(0)


def main() -> None:
    """Run the Python module named on the command line with the remaining arguments."""
    threading.Thread(target=_end_with_standard_input, daemon=True).start()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
