"""Run a module as a program until standard input closes: ``python -m aiostream_data.testing.child MODULE ARGS``.

The parent holds the other end of the pipe. However the parent ends, the pipe closes with it, and so
no server is left behind.
"""

from __future__ import annotations

import os
import runpy
import sys
import threading


def _end_with_standard_input() -> None:
    # The raw descriptor: the buffered reader's lock would be held at interpreter shutdown.
    while os.read(0, 4096):
        pass
    os._exit(0)


def main() -> None:
    """Run the module that the command line names, with the rest of the command line as its own."""
    threading.Thread(target=_end_with_standard_input, daemon=True).start()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
