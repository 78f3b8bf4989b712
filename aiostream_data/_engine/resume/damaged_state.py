"""Convert unexpected errors during resuming into DamagedStateError."""

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
"""Errors that a wrong number or a missing key in a state can cause."""

OF_A_CALL: Final = ("function: ", "record: ")
"""Prefixes of the notes on errors of user code."""

_OURS: Final = str(Path(errors.__file__).parent)
_NUMPYS: Final = str(Path(np.__file__).parent)
_PYTHONS: Final = (sysconfig.get_path("stdlib"), "<frozen")


@contextmanager
def resuming(path: str, what: str) -> Iterator[None]:
    """Convert errors that only a damaged state can cause into DamagedStateError.

    Schemas find most damage earlier (:mod:`~aiostream_data._engine.state_against_plan`). This block converts the rest.

    Args:
        path: Path of the values in the state that the block uses.
        what: Failed action for the message, e.g. "cannot resume shuffle".
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
    """Return True if user code raised an error, according to its notes or the files of its frames."""
    if any(note.startswith(OF_A_CALL) for note in getattr(error, "__notes__", ())):
        return True
    return any(_is_foreign(frame.f_code.co_filename) for frame, _ in walk_tb(error.__traceback__))


def _is_foreign(file: str) -> bool:
    if file.startswith(_OURS) or file.endswith(".pyx"):
        return False
    return not file.startswith(_NUMPYS) and ("site-packages" in file or not file.startswith(_PYTHONS))
