"""R06: an iteration that is abandoned, in whatever way, leaves nothing, and no complaint of asyncio or Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("abandon_program.py")
GROWTH_NBYTES = 50 << 10
"""A cycle."""


@pytest.mark.parametrize("stage", ["the whole chain", "coroutine map", "async generator"])
def test_r06_abandoning_iterations_leaves_nothing_and_asyncio_has_nothing_to_say(stage: str, shards: list[str]) -> None:
    """An exception in the loop's body, ``del`` of iterator and loader, generators collected, the event loop closed.

    Warnings are errors there: tasks that were destroyed while pending, coroutines that were never awaited, files that
    were never closed are printed, wherever they are found.
    """
    command = [sys.executable, "-W", "error", str(PROGRAM), stage, *shards]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert (done.stderr, done.returncode) == ("", 0)
    assert float(done.stdout) < GROWTH_NBYTES
