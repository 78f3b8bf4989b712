"""Describe calls in the user's code for messages: source lines, arguments and function names."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from enum import Enum
from functools import partial
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple

from aiostream_data.arguments import shown

_PACKAGE: Final = __name__.partition(".")[0]

_MACHINERY: Final = frozenset({"asyncio", "concurrent", "contextlib", "threading"})
"""Standard modules that start threads and tasks. Plan nodes created in threads of these modules have no line of user
code."""


class SourceLine(NamedTuple):
    """A line of source code, printed as ``train.py:41``. Paths of files inside the working directory are relative."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{_short(self.file)}:{self.line}"


_package_code: Final[dict[int, CodeType]] = {}
"""Code of this package that was found in the call stack, by ``id``: hashing a code object reads all of its parts."""

_lines: Final[dict[tuple[int, int], tuple[CodeType, SourceLine]]] = {}
"""Lines of user code that were found in the call stack, by the ``id`` of the code and the instruction in it."""

MOST_LINES: Final = 4096
"""Maximum number of remembered lines. Programs that compile new code again and again would fill the memory."""


def callers_line(calls: int = 1) -> SourceLine | None:
    """Return the line of user code that called into the package, or None if no user code did. Takes a microsecond.

    Args:
        calls: Number of innermost calls, with this one, that are known to be of this package. They are skipped at once.
    """
    frame: FrameType | None = sys._getframe(calls)
    while frame is not None:
        code = frame.f_code
        if id(code) not in _package_code:
            known = _lines.get((id(code), frame.f_lasti))
            if known is not None:
                return known[1]
            root = frame.f_globals.get("__name__", "").partition(".")[0]
            if root != _PACKAGE:
                return None if root in _MACHINERY else _line_of(frame)
            _package_code[id(code)] = code
        frame = frame.f_back
    return None


def _line_of(frame: FrameType) -> SourceLine:
    line = SourceLine(frame.f_code.co_filename, frame.f_lineno)
    if len(_lines) >= MOST_LINES:
        _lines.clear()
    _lines[id(frame.f_code), frame.f_lasti] = frame.f_code, line  # a code object that is kept has its id alone
    return line


def _short(file: str) -> str:
    try:
        below = os.path.relpath(file)
    except (OSError, ValueError):  # the working directory was deleted, or the file is on another drive
        return file
    return file if below.startswith(os.pardir) or file.startswith("<") else below


def function_name(function: Callable[..., Any]) -> str:
    """Return the qualified name of a function, with its source line if known."""
    if isinstance(function, partial):
        return f"partial of {function_name(function.func)}"
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    line = function_line(function)
    return str(name) if line is None else f"{name} ({line})"


def function_line(function: Callable[..., Any]) -> SourceLine | None:
    """Return the first source line of a function, or None for builtins and functions written in C."""
    if isinstance(function, partial):
        return function_line(function.func)
    code = getattr(function, "__code__", None)
    if code is None and getattr(function, "__qualname__", None) is None:  # an instance with __call__
        code = getattr(type(function).__call__, "__code__", None)
    return None if code is None else SourceLine(code.co_filename, code.co_firstlineno)


class Verbatim(str):
    """A string whose ``repr`` has no quotes. :func:`call_arguments` and structures print the string unchanged."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def call_arguments(*given: object, **by_name: tuple[object, object]) -> str:
    """Format arguments as Python source code of a call, with secrets removed.

    Args:
        given: Positional arguments.
        by_name: Pair (value, default) for each keyword argument. Arguments that equal their default are omitted.
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
    """Return a function's name without the names of its enclosing functions, or ``lambda`` for a lambda."""
    if isinstance(function, partial):
        return f"partial({short_name(function.func)})"
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return str(name).rpartition("<locals>.")[2].replace("<lambda>", "lambda")
