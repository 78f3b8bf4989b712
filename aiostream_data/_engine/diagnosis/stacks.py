"""Format the stacks of event-loop tasks and of threads as text. Safe from any thread."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator
from types import CodeType, FrameType
from typing import Any


def task_stacks(loop: asyncio.AbstractEventLoop) -> Iterator[tuple[str, str]]:
    """Yield the name and stack of each unfinished task of an event loop; outermost frame first."""
    for task in sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name()):
        yield task.get_name(), text_of(coroutine_frames(task.get_coro()))


def thread_stacks(threads: Iterable[threading.Thread], idle: CodeType) -> Iterator[tuple[str, str]]:
    """Yield the name and stack of each running thread in ``threads``; outermost frame first.

    Args:
        idle: Code object that an idle thread executes while it waits. All idle threads share one entry, which has no
            stack.
    """
    frames = sys._current_frames()
    idle_ones: list[str] = []
    for thread in threads:
        frame = frames.get(thread.ident or 0)
        if frame is not None and frame.f_code is idle:
            idle_ones.append(thread.name)
        elif frame is not None:
            yield thread.name, text_of(_without_bootstrap(frame))
    if idle_ones:
        yield "idle", ", ".join(sorted(idle_ones))


def _without_bootstrap(frame: FrameType | None) -> list[FrameType]:
    """Return a frame and its callers, outermost first, but omit the start-up frames of the threading module."""
    frames: list[FrameType] = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    frames.reverse()
    own = (number for number, each in enumerate(frames) if each.f_code.co_filename != threading.__file__)
    return frames[next(own, 0) :]


def text_of(frames: Iterable[FrameType]) -> str:
    """Format frames in the style of a Python traceback."""
    return "".join(traceback.format_list(traceback.StackSummary.extract((frame, frame.f_lineno) for frame in frames)))


def coroutine_frames(awaited: Any) -> Iterator[FrameType]:
    """Yield the frames of a suspended coroutine and of the objects that it awaits, directly or indirectly."""
    seen: set[int] = set()
    while awaited is not None and id(awaited) not in seen:
        seen.add(id(awaited))
        for prefix, following in (("cr", "await"), ("gi", "yieldfrom"), ("ag", "await")):
            if hasattr(awaited, f"{prefix}_frame"):
                frame = getattr(awaited, f"{prefix}_frame")
                if frame is not None:
                    yield frame
                awaited = getattr(awaited, f"{prefix}_{following}")
                break
        else:  # the awaitable of "async for" exposes its generator only to the garbage collector
            awaited = next((part for part in gc.get_referents(awaited) if hasattr(part, "ag_frame")), None)
