"""Where the user wrote an operator, the first line of a program outside the package, and a function it was given."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

_PACKAGE: Final = __name__.partition(".")[0]

_MACHINERY: Final = frozenset({"asyncio", "concurrent", "contextlib", "threading"})
"""Modules at whose bottom a thread of the package begins: a node made there was written by nobody."""


class SourceLine(NamedTuple):
    """A line of a program; prints as ``train.py:41``, relative to the working directory where it is below that."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{_short(self.file)}:{self.line}"


def callers_line() -> SourceLine | None:
    """Return the line that called into the package, or None where the package called itself. Takes a microsecond."""
    frame = sys._getframe(1)
    while True:
        root = frame.f_globals.get("__name__", "").partition(".")[0]
        if root != _PACKAGE:
            return None if root in _MACHINERY else SourceLine(frame.f_code.co_filename, frame.f_lineno)
        if frame.f_back is None:
            return None
        frame = frame.f_back


def _short(file: str) -> str:
    try:
        below = os.path.relpath(file)
    except (OSError, ValueError):  # no working directory any more, or another drive
        return file
    return file if below.startswith(os.pardir) or file.startswith("<") else below


def function_name(function: Callable[..., Any]) -> str:
    """Return the name users know a function by, with its source line where there is one."""
    if isinstance(function, partial):
        return f"partial of {function_name(function.func)}"
    name = getattr(function, "__qualname__", None)
    code = getattr(function, "__code__", None)
    if name is None:  # an object that can be called
        name, code = type(function).__qualname__, getattr(type(function).__call__, "__code__", None)
    return f"{name} ({SourceLine(code.co_filename, code.co_firstlineno)})" if code is not None else str(name)
