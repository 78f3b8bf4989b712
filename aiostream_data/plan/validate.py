"""Checks across several nodes, made while the user defines the pipeline."""

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
        PlanError: ``node`` is a ``to_device`` node.
    """
    if isinstance(node, ToDevice):
        raise PlanError(f"{name}() cannot follow to_device(): to_device must be the last operator of the chain")


def check_transform(node: Node) -> None:
    """Refuse a ``to_device`` transform that does not support the element spec.

    Raises:
        PlanError: The transform does not support the elements.
    """
    try:
        spec_of(node)
    except DataError as error:
        raise PlanError(f"to_device(transform=...): {error}") from error


def check_rereadable(node: Node, why: str) -> None:
    """Refuse to read a one-shot iterator more than once.

    Raises:
        StageBuildError: ``node`` reads a one-shot iterator, without a cache in between.
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
    """Refuse more than one repetition of a one-shot iterator by ``repeat``."""
    if node.count is None or node.count > 1:
        check_rereadable(node.input, "repeat()")


def check_executor(name: str) -> str:
    """Check the name of an executor, and return it.

    Raises:
        PlanError: The name is unknown.
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
    """Refuse a function that cannot be sent to a freshly started worker process.

    Raises:
        StageBuildError: The function cannot be pickled. Without cloudpickle, lambdas, local functions and functions
            defined in ``__main__`` are refused.
    """
    obstacle = obstacle_to_processes(function)
    if obstacle is not None:
        raise StageBuildError(f"{function_name(function)} {obstacle}, or use executor='thread'")


def check_reaches_interpreters(function: Callable[..., Any], *, wants_rng: bool, wants_state: bool) -> None:
    """Refuse a function with a parameter ``rng`` or ``state`` for subinterpreters, which cannot load NumPy.

    Raises:
        StageBuildError: The function has a parameter ``rng`` or ``state``.
    """
    cure = "use executor='process' or 'thread'"
    if wants_rng:
        raise StageBuildError(f"{function_name(function)} has a parameter rng, but subinterpreters lack NumPy: {cure}")
    if wants_state:
        raise StageBuildError(f"{function_name(function)} has a parameter state, which subinterpreters lack: {cure}")


def reaches_processes(function: Callable[..., Any]) -> bool:
    """Return True if a function can be sent to a process."""
    return obstacle_to_processes(function) is None
