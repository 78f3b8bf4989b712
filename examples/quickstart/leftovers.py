"""Check that a block leaves no thread and no child process behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psutil


@contextmanager
def no_thread_left() -> Iterator[None]:
    """Raise AssertionError when a thread that was started in the block outlives it."""
    before = set(threading.enumerate())
    yield
    threads = set(threading.enumerate()) - before
    assert not threads, f"threads left running: {threads}"


@contextmanager
def no_process_left() -> Iterator[None]:
    """Raise AssertionError when this process has children after the block."""
    yield
    children = psutil.Process().children(recursive=True)
    assert not children, f"processes left running: {children}"
