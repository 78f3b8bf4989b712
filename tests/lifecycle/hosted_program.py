"""A program that trains on a data set in two processes of its own: ``python hosted_program.py [leave]``.

Prints the processes when it has its first element; then trains until it is ended, or returns with the loader open.
"""

from __future__ import annotations

import os
import sys
import time

from aiostream_data import Dataset


def slow_pid(number: int) -> int:
    time.sleep(0.001)
    return os.getpid()


# No guard against running this again in other processes: they do not.
loader = Dataset.range(10_000_000).map(slow_pid).in_subprocess(2).open()
elements = iter(loader)
print(next(elements), next(elements), flush=True)  # noqa: T201 - read by the test
if sys.argv[1:] != ["leave"]:
    for _ in elements:
        time.sleep(0.001)
