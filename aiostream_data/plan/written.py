"""What the user wrote: the line of an operator, its arguments as in the call, and the functions it was given."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any, Final, NamedTuple

from aiostream_data.arguments import shown

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
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    line = function_line(function)
    return str(name) if line is None else f"{name} ({line})"


def function_line(function: Callable[..., Any]) -> SourceLine | None:
    """Return the line on which a function begins, or None for a builtin or a function in C."""
    if isinstance(function, partial):
        return function_line(function.func)
    code = getattr(function, "__code__", None)
    if code is None and getattr(function, "__qualname__", None) is None:  # an object that can be called
        code = getattr(type(function).__call__, "__code__", None)
    return None if code is None else SourceLine(code.co_filename, code.co_firstlineno)


class Verbatim(str):
    """Text that is shown as it is, by :func:`call_arguments` and in a structure: its own ``repr``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def call_arguments(*given: object, **by_name: tuple[object, object]) -> str:
    """Return arguments as in the call of a method, without secrets.

    Args:
        given: Arguments by position.
        by_name: (value, default) of arguments by name. Those that equal their default are left out.
    """
    differing = {
        name: value
        for name, (value, default) in by_name.items()
        if type(value) is not type(default) or value != default
    }
    named = [f"{name}={_argument(value)}" for name, value in differing.items()]
    return ", ".join([*map(_argument, given), *named])


def _argument(value: object) -> str:
    if isinstance(value, (Verbatim, Enum)):
        return repr(value)
    return short_name(value) if callable(value) else shown(value)


def short_name(function: Callable[..., Any]) -> str:
    """Return the name of a function as the user wrote it: ``lambda``, or the name without the functions around it."""
    if isinstance(function, partial):
        return f"partial({short_name(function.func)})"
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return str(name).rpartition("<locals>.")[2].replace("<lambda>", "lambda")
