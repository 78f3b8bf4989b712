"""Remove the engine's frames from tracebacks, and sort the notes attached to errors.

How this works. The engine calls a user function from deep inside its own code, and raises the function's error again
several times. Each step adds frames. This module keeps the frames of the user's code and of the libraries that the
user's code calls. The module clears the local variables of the removed frames, because they would stay in memory as
long as the error. An error that did not come from user code keeps all its frames, because it may be a bug in this
package. For errors of the package's own classes, the module always removes the engine's frames.
"""

from __future__ import annotations

import contextlib
import sysconfig
import threading
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import FrameType, TracebackType
from typing import Final

from aiostream_data import errors
from aiostream_data.errors import AiostreamError, CardinalityError, RecordError
from aiostream_data.executors.failure import WORKER_TRACEBACK

NOTES: Final = ("stage: ", "function: ", "record", "element: ", "", "worker traceback:")
"""Prefixes of notes in display order; "" stands for all other notes."""


def present(error: BaseException, *, full: bool = False) -> None:
    """Sort the notes of an error.

    Unless ``full``, remove the engine's frames from the tracebacks of the error and its causes.
    """
    for part in () if full else with_causes(error):
        BaseException.with_traceback(part, folded(part))  # the base method, because a subclass may override it
        if isinstance(part, RecordError):
            _fold_text(part)
    notes = getattr(error, "__notes__", None)
    if notes:
        notes[:] = in_order(notes)


def folded(error: BaseException) -> TracebackType | None:
    """Return the traceback of an error without the frames of this package, asyncio and threading."""
    frames = list(_frames(error.__traceback__))
    files = [frame.tb_frame.f_code.co_filename for frame in frames]
    kept = [not is_machinery(file) for file in files]
    ours = isinstance(error, AiostreamError) and not isinstance(error, CardinalityError)
    if not any(kept):
        if not ours and not _ran_elsewhere(error):
            return error.__traceback__
        _forget_locals(frames, kept)
        return None
    if not ours and not _ran_users_code(error, files):
        return error.__traceback__
    if frames and not ours and _is_package(files[-1]):  # user code called this package, and the package failed
        last = max(number for number, keep in enumerate(kept) if keep)
        kept[last:] = [True] * (len(kept) - last)
    _forget_locals(frames, kept)
    joined: TracebackType | None = None
    for frame, keep in zip(reversed(frames), reversed(kept), strict=True):
        if keep:
            joined = TracebackType(joined, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return joined


def _forget_locals(frames: list[TracebackType], kept: list[bool]) -> None:
    """Clear the local variables of removed frames, and of this package's frames that called a traceback frame."""
    for traceback, keep in zip(frames, kept, strict=True):
        frame: FrameType | None = traceback.tb_frame.f_back if keep else traceback.tb_frame
        while frame is not None and is_machinery(frame.f_code.co_filename):
            with contextlib.suppress(RuntimeError):  # the frame is still running
                frame.clear()
            frame = frame.f_back


def folded_text(text: str) -> str:
    """Remove the frames of this package, asyncio and threading from the text of a traceback."""
    lines: list[str] = []
    left_out = False
    for line in text.splitlines(keepends=True):
        if line.startswith('  File "'):
            left_out = is_machinery(line[len('  File "') :].partition('"')[0])
        elif not line.startswith(("    ", "  [")):
            left_out = False
        if not left_out:
            lines.append(line)
    return "".join(lines)


def in_order(notes: list[str]) -> list[str]:
    """Sort the notes of an error in the order of :data:`NOTES`. Notes from a nested loader come first, as one group."""
    groups: list[list[tuple[int, str]]] = [[]]
    for note in notes:
        place = _place(note)
        if NOTES[place] and any(place == other for other, _ in groups[-1]):
            groups.append([])
        groups[-1].append((place, note))
    return [note for group in groups for _, note in sorted(group, key=lambda pair: pair[0])]


def _place(note: str) -> int:
    found = (place for place, begin in enumerate(NOTES) if begin and note.startswith(begin))
    return next(found, NOTES.index(""))


def empty_frames(error: BaseException) -> None:
    """Clear the local variables of this package's frames in the tracebacks of an error and of its causes.

    The local variables of user functions are kept for debugging. Frames that are still running cannot be cleared.
    """
    for part in with_causes(error):
        frames = list(_frames(part.__traceback__))
        _forget_locals(frames, [not is_machinery(frame.tb_frame.f_code.co_filename) for frame in frames])


@cache
def is_machinery(file: str) -> bool:
    """Return True if a source file belongs to this package, asyncio, concurrent, threading, contextlib or uvloop."""
    return _is_package(file) or file.startswith(_machinery()) or "uvloop/" in file.replace("\\", "/")


def _is_package(file: str) -> bool:
    # Compiled modules report their source file relative to the root of the sources.
    return file.startswith(_root()) or (file.endswith(".pyx") and file.startswith("aiostream_data"))


@cache
def _root() -> str:
    return str(Path(errors.__file__).parent)


@cache
def _machinery() -> tuple[str, ...]:
    library = Path(contextlib.__file__).parent  # avoids importing asyncio to find its folder
    return (*(str(library / name) for name in ("asyncio", "concurrent")), threading.__file__, contextlib.__file__)


@cache
def _libraries() -> tuple[str, ...]:
    return tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def _ran_elsewhere(error: BaseException) -> bool:
    """Return True if the error was raised in another process.

    The frames of this process are irrelevant for an error from another process.
    """
    return any(note.startswith(WORKER_TRACEBACK) for note in getattr(error, "__notes__", ()))


def _ran_users_code(error: BaseException, files: list[str]) -> bool:
    if any(note.startswith("function") for note in getattr(error, "__notes__", ())):
        return True
    return not all(is_machinery(file) or file.startswith(_libraries()) for file in files)


def _fold_text(error: RecordError) -> None:
    text, notes = error.worker_traceback, getattr(error, "__notes__", [])
    if text:
        error.worker_traceback = folded_text(text)
        notes[:] = [note.replace(text, error.worker_traceback) for note in notes]


def with_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, its causes and contexts, and the members of exception groups; yield each error once."""
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        part = left.pop()
        if part is None or id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        left += [part.__cause__, part.__context__]
        if isinstance(part, BaseExceptionGroup):
            left += part.exceptions


def _frames(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next
