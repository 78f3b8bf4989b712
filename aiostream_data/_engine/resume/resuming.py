"""Turn what nobody foresaw of a damaged state into the error that says so."""

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
"""Errors that a wrong number or a missing key leads to."""

OF_A_CALL: Final = ("function: ", "record: ")
"""What notes of errors begin with that user code raised."""

_OURS: Final = str(Path(errors.__file__).parent)
_NUMPYS: Final = str(Path(np.__file__).parent)
_PYTHONS: Final = (sysconfig.get_path("stdlib"), "<frozen")


@contextmanager
def resuming(path: str, what: str) -> Iterator[None]:
    """Raise DamagedStateError instead of an error that only a damaged state leads to.

    Schemas find damage first (:mod:`~aiostream_data._engine.state_schema`); this is for what they do not know.

    Args:
        path: Where in the state the values are that the block uses.
        what: What the block cannot do with them, e.g. "cannot resume shuffle".
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
    """Return True if user code raised an error: a note says so, or one of its frames is not the package's."""
    if any(note.startswith(OF_A_CALL) for note in getattr(error, "__notes__", ())):
        return True
    return any(_is_foreign(frame.f_code.co_filename) for frame, _ in walk_tb(error.__traceback__))


def _is_foreign(file: str) -> bool:
    if file.startswith(_OURS) or file.endswith(".pyx"):
        return False
    return not file.startswith(_NUMPYS) and ("site-packages" in file or not file.startswith(_PYTHONS))
