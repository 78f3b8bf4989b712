"""Detect forked children: a child cannot use the GPU memory of its parent.

A child that is forked before CUDA was started in its parent may start it itself. After that it may not: every call
would fail in it, some with errors that name anything but the fork. So where CUDA was started is noted here.
"""

from __future__ import annotations

import os

from aiostream_data.errors import ForkedPipelineError


class _History:
    """Of this process.

    Attributes:
        forks: How many forks it is away from the process that loaded this module.
        cuda_started_in: The process in which CUDA was started; None where it was not.
    """

    def __init__(self) -> None:
        self.forks = 0
        self.cuda_started_in: tuple[int, int] | None = None

    def forked(self) -> None:
        self.forks += 1


_HISTORY = _History()

if hasattr(os, "register_at_fork"):  # not on every platform
    os.register_at_fork(after_in_child=_HISTORY.forked)


def this_process() -> tuple[int, int]:
    """Return what no forked child shares with this process: its number, and how many forks it is away from the first.

    The number alone may be given again; the count alone misses forks that native code makes.
    """
    return os.getpid(), _HISTORY.forks


def note_cuda_started() -> None:
    """Note that CUDA runs in this process from now on."""
    _HISTORY.cuda_started_in = this_process()


def check_cuda_may_start(device: str) -> None:
    """Return when CUDA runs in this process, or may be started in it.

    Args:
        device: What the user asked for, for messages.

    Raises:
        ForkedPipelineError: This process was forked from one in which CUDA was started.
    """
    if _HISTORY.cuda_started_in not in (None, this_process()):
        raise ForkedPipelineError(
            f"device {device!r} cannot be used: this process was forked from one that had opened a GPU, and CUDA does "
            "not survive that; start processes by spawn or forkserver, or fork before the GPU is opened"
        )
