"""Rules that a single node cannot check: they are tried while the chain is written."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

from aiostream_data.errors import PlanError, StageBuildError
from aiostream_data.plan.base import Node
from aiostream_data.plan.operators import Cache, Repeat, ToDevice, function_name
from aiostream_data.plan.sources import PythonIterable

EXECUTORS = ("auto", "thread", "process", "inline", "interpreter")


def check_extends(node: Node, name: str) -> None:
    """Refuse an operator after ``to_device``.

    Raises:
        PlanError: ``node`` already ends on a device.
    """
    if isinstance(node, ToDevice):
        raise PlanError(f"{name}() cannot follow to_device(): to_device must be the last operator of the chain")


def check_rereadable(node: Node, why: str) -> None:
    """Refuse to read a one-shot iterator more than once.

    Raises:
        StageBuildError: Below ``node`` stands one, with no cache in between.
    """
    if isinstance(node, Cache):
        return
    if isinstance(node, PythonIterable) and node.one_shot:
        kind = type(node.iterable).__name__
        raise StageBuildError(
            f"{why} needs to read its source more than once, but from_iterable() was given a {kind}, which can be "
            "read only once; give a re-iterable object, or a function to from_generator(), or put .cache() before it"
        )
    for child in node.inputs:
        check_rereadable(child, why)


def check_repeat(node: Repeat) -> None:
    """Refuse ``repeat`` over a one-shot iterator, unless it repeats at most once."""
    if node.count is None or node.count > 1:
        check_rereadable(node.input, "repeat()")


def check_executor(name: str) -> None:
    """Raise PlanError unless ``name`` is a known executor."""
    if name not in EXECUTORS:
        raise PlanError(f"executor must be one of {', '.join(EXECUTORS)}, got {name!r}")


def check_reaches_processes(function: Callable[..., Any]) -> None:
    """Refuse a function that a freshly started worker process could not import.

    Raises:
        StageBuildError: It is a lambda, a local function, lives in ``__main__``, or does not pickle.
    """
    name = function_name(function)
    cure = "move it to the top level of an importable module, or use executor='thread'"
    module = getattr(function, "__module__", None)
    if getattr(function, "__name__", "") == "<lambda>" or "<locals>" in getattr(function, "__qualname__", ""):
        raise StageBuildError(f"{name} is a lambda or local function and cannot be sent to a process: {cure}")
    if module == "__main__":
        raise StageBuildError(f"{name} is defined in __main__, which worker processes do not import: {cure}")
    try:
        pickle.dumps(function)
    except Exception as error:
        raise StageBuildError(f"{name} cannot be pickled for a process ({error}): {cure}") from error


def reaches_processes(function: Callable[..., Any]) -> bool:
    """Tell whether a function can be sent to a process."""
    try:
        check_reaches_processes(function)
    except StageBuildError:
        return False
    return True
