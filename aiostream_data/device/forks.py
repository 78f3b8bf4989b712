"""Detect forked children: a child process cannot use the GPU memory of its parent.

A child process that was forked before its parent started CUDA may start CUDA itself. A child that was forked after its
parent started CUDA cannot use CUDA: every CUDA call fails, often with a misleading error. To detect such children, this
module records which process started CUDA.
"""

from __future__ import annotations

import os

from aiostream_data.errors import ForkedPipelineError


class _History:
    """Counts the forks that led to this process, and stores which process started CUDA.

    Attributes:
        forks: Number of forks between the process that imported this module and this process.
        cuda_started_in: Identity of the process that started CUDA; None if CUDA was not started.
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
    """Return the process id and the fork count, which identify this process.

    The fork count is needed because the operating system may reuse a process id. Forks by native code are not counted.
    """
    return os.getpid(), _HISTORY.forks


def note_cuda_started() -> None:
    """Record that this process has started CUDA."""
    _HISTORY.cuda_started_in = this_process()


def check_cuda_may_start(device: str) -> None:
    """Check that this process has started CUDA or may start CUDA.

    Args:
        device: Device name that the user requested, for error messages.

    Raises:
        ForkedPipelineError: This process was forked from a process that had started CUDA.
    """
    if _HISTORY.cuda_started_in not in (None, this_process()):
        raise ForkedPipelineError(
            f"device {device!r} cannot be used: this process was forked after CUDA had started, and CUDA does not work "
            "after a fork. Start processes by spawn or forkserver, or fork before opening the GPU"
        )
