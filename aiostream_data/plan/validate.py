"""Rules that a single node cannot check: they are tried while the chain is written."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from aiostream_data.arguments import word
from aiostream_data.errors import DataError, PlanError, StageBuildError
from aiostream_data.plan.base import Node
from aiostream_data.plan.operators import Cache, Repeat, ToDevice
from aiostream_data.plan.reaching import obstacle_to_processes
from aiostream_data.plan.sources import PythonIterable
from aiostream_data.plan.spec import spec_of
from aiostream_data.plan.written import function_name

EXECUTORS = ("auto", "thread", "process", "inline", "interpreter")


def check_extends(node: Node, name: str) -> None:
    """Refuse an operator after ``to_device``.

    Raises:
        PlanError: ``node`` already ends on a device.
    """
    if isinstance(node, ToDevice):
        raise PlanError(f"{name}() cannot follow to_device(): to_device must be the last operator of the chain")


def check_transform(node: Node) -> None:
    """Refuse a transform that cannot be done to what is known of the elements of a ``to_device``.

    Raises:
        PlanError: It cannot.
    """
    try:
        spec_of(node)
    except DataError as error:
        raise PlanError(f"to_device(transform=...): {error}") from error


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


def check_executor(name: str) -> str:
    """Return the name of an executor; refuse one that does not exist, or not here.

    Raises:
        PlanError: There is none of that name.
        StageBuildError: This Python, or this system, does not have it.
    """
    word("executor", name, EXECUTORS)
    if name == "interpreter" and sys.version_info < (3, 14):
        found = ".".join(map(str, sys.version_info[:2]))
        raise StageBuildError(
            f"executor='interpreter' needs Python 3.14 or later, and this is {found}: use executor='process', "
            "or executor='thread' for functions that release the interpreter's lock"
        )
    if name == "process" and sys.platform == "win32":
        raise StageBuildError("executor='process' needs Linux or macOS: use executor='thread', or WSL")
    return name


def check_reaches_processes(function: Callable[..., Any]) -> None:
    """Refuse a function that cannot be sent to a freshly started worker process.

    Raises:
        StageBuildError: It does not pickle, or, without cloudpickle, is a lambda, a local function, or
            defined in ``__main__``.
    """
    obstacle = obstacle_to_processes(function)
    if obstacle is not None:
        raise StageBuildError(f"{function_name(function)} {obstacle}, or use executor='thread'")


def check_reaches_interpreters(function: Callable[..., Any], *, wants_rng: bool, wants_state: bool) -> None:
    """Refuse a function that asks for what NumPy makes, which subinterpreters do not load, or for a state.

    Raises:
        StageBuildError: It has a parameter ``rng`` or ``state``.
    """
    cure = "use executor='process' or 'thread'"
    if wants_rng:
        raise StageBuildError(f"{function_name(function)} takes rng, a NumPy object, which interpreters lack: {cure}")
    if wants_state:
        raise StageBuildError(f"{function_name(function)} takes state, which stays in one interpreter: {cure}")


def reaches_processes(function: Callable[..., Any]) -> bool:
    """Return True if a function can be sent to a process."""
    return obstacle_to_processes(function) is None
