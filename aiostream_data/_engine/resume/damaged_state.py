"""Convert unexpected errors that occur while a run resumes into DamagedStateError."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_tb
from typing import Final

import numpy as np

from aiostream_data import errors
from aiostream_data.errors import AiostreamError, DamagedStateError

UNFORESEEN: Final = (
    *(ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, RecursionError),
    *(TypeError, ValueError),
)
"""Types of errors that a wrong number or a missing key in a saved state can cause."""

OF_A_CALL: Final = ("function: ", "record: ")
"""Prefixes of the notes that identify errors of user code."""

_OURS: Final = str(Path(errors.__file__).parent)
_NUMPYS: Final = str(Path(np.__file__).parent)
_PYTHONS: Final = (sysconfig.get_path("stdlib"), "<frozen")


@contextmanager
def resuming(path: str, what: str) -> Iterator[None]:
    """Context manager that converts an error into DamagedStateError if only a damaged state can cause the error.

    Schema checks (:mod:`~aiostream_data._engine.state_against_plan`) find most damage before the block runs. The
    context manager converts the errors that the schema checks did not prevent.

    Args:
        path: Path of the values in the saved state that the block reads.
        what: Description of the failed action for the error message, such as "cannot resume shuffle".
    """
    try:
        yield
    except AiostreamError:
        raise
    except UNFORESEEN as error:
        if _of_user_code(error):
            raise
        raise DamagedStateError(path, f"{what} ({type(error).__name__}: {error})") from error


def _of_user_code(error: BaseException) -> bool:
    """Return True if user code raised the error, according to the error's notes or the files of its frames."""
    if any(note.startswith(OF_A_CALL) for note in getattr(error, "__notes__", ())):
        return True
    return any(_is_foreign(frame.f_code.co_filename) for frame, _ in walk_tb(error.__traceback__))


def _is_foreign(file: str) -> bool:
    if file.startswith(_OURS) or file.endswith(".pyx"):
        return False
    return not file.startswith(_NUMPYS) and ("site-packages" in file or not file.startswith(_PYTHONS))
