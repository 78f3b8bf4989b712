"""Fold the package's own frames out of a traceback, and put notes in order: what a user needs to see of an error.

How this works. A user's function is called from deep inside the engine, and its error is raised again several
times on its way to the consumer. Each of that adds frames. What is left of them here are the user's, and those of
the libraries that he calls. The others forget what they held: it would stay in memory as long as the error does,
since a frame leads to the one that called it. An error that did not come from a user's code keeps all its frames,
since it may be a bug of ours; except one of our own classes, whose message says everything.
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
"""How notes begin, in the order in which they are shown; "" stands for all others."""


def present(error: BaseException, *, full: bool = False) -> None:
    """Fold the tracebacks of an error and of its causes, unless ``full``, and put its notes in order; in place."""
    for part in () if full else _with_causes(error):
        BaseException.with_traceback(part, folded(part))  # which no class of the user's can refuse
        if isinstance(part, RecordError):
            _fold_text(part)
    notes = getattr(error, "__notes__", None)
    if notes:
        notes[:] = in_order(notes)


def folded(error: BaseException) -> TracebackType | None:
    """Return the traceback of an error without frames of the package and of what it runs on."""
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
    if frames and not ours and _is_package(files[-1]):  # the user called us, and we failed
        last = max(number for number, keep in enumerate(kept) if keep)
        kept[last:] = [True] * (len(kept) - last)
    _forget_locals(frames, kept)
    joined: TracebackType | None = None
    for frame, keep in zip(reversed(frames), reversed(kept), strict=True):
        if keep:
            joined = TracebackType(joined, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return joined


def _forget_locals(frames: list[TracebackType], kept: list[bool]) -> None:
    """Release what the frames that are left out, and the package's that called any, hold in their variables."""
    for traceback, keep in zip(frames, kept, strict=True):
        frame: FrameType | None = traceback.tb_frame.f_back if keep else traceback.tb_frame
        while frame is not None and is_machinery(frame.f_code.co_filename):
            with contextlib.suppress(RuntimeError):  # it still runs, and forgets by itself at its end
                frame.clear()
            frame = frame.f_back


def folded_text(text: str) -> str:
    """Return the text of a traceback, as Python prints it, without the same frames."""
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
    """Return notes in the order of :data:`NOTES`; those of a loader inside another's function come first, together."""
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
    """Release what the functions of the package had in hand when an error, or its cause, passed through them.

    The variables of the user's functions stay, for a debugger; so do those of functions that have not ended.
    """
    for part in _with_causes(error):
        frames = list(_frames(part.__traceback__))
        _forget_locals(frames, [not is_machinery(frame.tb_frame.f_code.co_filename) for frame in frames])


@cache
def is_machinery(file: str) -> bool:
    """Whether code of this file runs users' functions: the package, asyncio, threading, concurrent."""
    return _is_package(file) or file.startswith(_machinery()) or "uvloop/" in file.replace("\\", "/")


def _is_package(file: str) -> bool:
    # Compiled modules give the file they were made from, seen from the root of the sources.
    return file.startswith(_root()) or (file.endswith(".pyx") and file.startswith("aiostream_data"))


@cache
def _root() -> str:
    return str(Path(errors.__file__).parent)


@cache
def _machinery() -> tuple[str, ...]:
    library = Path(contextlib.__file__).parent  # asyncio would have to be imported to be asked where it is
    return (*(str(library / name) for name in ("asyncio", "concurrent")), threading.__file__, contextlib.__file__)


@cache
def _libraries() -> tuple[str, ...]:
    return tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def _ran_elsewhere(error: BaseException) -> bool:
    """Return True if it was raised in another process, so that no frame of this one says anything about it."""
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


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and everything that Python prints before it, each once."""
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
