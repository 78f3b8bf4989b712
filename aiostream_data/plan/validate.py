"""Check combinations of several nodes while the user defines the pipeline."""

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
    """Raise an error if the user adds an operator after ``to_device``.

    Raises:
        PlanError: ``node`` is a ``to_device`` node.
    """
    if isinstance(node, ToDevice):
        raise PlanError(f"{name}() cannot follow to_device(): to_device must be the last operator of the chain")


def check_transform(node: Node) -> None:
    """Raise an error if a ``to_device`` transform does not support the element spec of its batches.

    Raises:
        PlanError: The transform does not support this element spec.
    """
    try:
        spec_of(node)
    except DataError as error:
        raise PlanError(f"to_device(transform=...): {error}") from error


def check_rereadable(node: Node, why: str) -> None:
    """Raise an error if a one-shot iterator would be read more than once.

    Raises:
        StageBuildError: The plan of ``node`` reads a one-shot iterator, and no cache stores its elements.
    """
    if isinstance(node, Cache):
        return
    if isinstance(node, PythonIterable) and node.one_shot:
        kind = type(node.iterable).__name__
        raise StageBuildError(
            f"{why} reads its source more than once, but the {kind} passed to from_iterable() can be read only once. "
            "Pass a re-iterable object, use from_generator() with a function, or put .cache() before it"
        )
    for child in node.inputs:
        check_rereadable(child, why)


def check_repeat(node: Repeat) -> None:
    """Raise an error if ``repeat`` would read a one-shot iterator more than once."""
    if node.count is None or node.count > 1:
        check_rereadable(node.input, "repeat()")


def check_executor(name: str) -> str:
    """Check the name of an executor, and return the name.

    Raises:
        PlanError: No executor has this name.
        StageBuildError: This Python version or operating system does not support the executor.
    """
    word("executor", name, EXECUTORS)
    if name == "interpreter" and sys.version_info < (3, 14):
        found = ".".join(map(str, sys.version_info[:2]))
        raise StageBuildError(
            f"executor='interpreter' needs Python 3.14 or later, but this is {found}. Use executor='process', "
            "or executor='thread' for functions that release the interpreter's lock"
        )
    if name == "process" and sys.platform == "win32":
        raise StageBuildError("executor='process' needs Linux or macOS: use executor='thread', or WSL")
    return name


def check_reaches_processes(function: Callable[..., Any]) -> None:
    """Raise an error if a function cannot be sent to a newly started worker process.

    Raises:
        StageBuildError: The function cannot be pickled. Without cloudpickle, lambdas, local functions and functions of
            ``__main__`` cannot be sent.
    """
    obstacle = obstacle_to_processes(function)
    if obstacle is not None:
        raise StageBuildError(f"{function_name(function)} {obstacle}, or use executor='thread'")


def check_reaches_interpreters(function: Callable[..., Any], *, wants_rng: bool, wants_state: bool) -> None:
    """Raise an error if a function for a subinterpreter has a parameter ``rng`` or ``state``.

    Subinterpreters cannot load NumPy.

    Raises:
        StageBuildError: The function has a parameter ``rng`` or ``state``.
    """
    cure = "use executor='process' or 'thread'"
    if wants_rng:
        raise StageBuildError(f"{function_name(function)} has a parameter rng, but subinterpreters lack NumPy: {cure}")
    if wants_state:
        raise StageBuildError(f"{function_name(function)} has a parameter state, which subinterpreters lack: {cure}")


def reaches_processes(function: Callable[..., Any]) -> bool:
    """Return True if a function can be sent to another process."""
    return obstacle_to_processes(function) is None
