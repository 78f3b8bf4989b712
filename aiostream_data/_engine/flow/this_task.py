"""Refer to the current task without keeping it in memory."""

from __future__ import annotations

import asyncio
import weakref
from typing import Any


def this_task() -> weakref.ref[asyncio.Task[Any]]:
    """Return a weak reference to the current task.

    The error of a cancelled task refers to its frames. A frame that refers to the task would be part of a cycle, and
    its rows would wait for a garbage collection.
    """
    task = asyncio.current_task()
    assert task is not None, "the caller runs in a task"
    return weakref.ref(task)
