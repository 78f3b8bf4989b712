"""Checks of the arguments of operators that group elements by key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from aiostream_data.arguments import shown
from aiostream_data.dataset import functions
from aiostream_data.dataset.callables import check_gives_a_value, check_takes_an_element
from aiostream_data.errors import ArgumentTypeError, PlanError
from aiostream_data.plan.base import at_least

if TYPE_CHECKING:
    from aiostream_data.plan.keyed import Branches


class Split(NamedTuple):
    """Checked arguments of ``split_by``.

    Attributes:
        arguments: Fields of the node that collects the windows.
        function: Function of the node that applies the chains.
    """

    arguments: dict[str, Any]
    function: Branches


def window_sizes(key: Any, window_size: Any, window_size_fn: Any) -> dict[str, Any]:
    """Check the arguments of ``group_by_window``, and return the window sizes as fields of its node.

    Raises:
        PlanError: An argument is invalid.
        StageBuildError: A function cannot be called with its argument.
    """
    name = "group_by_window"
    _check(name, key)
    if (window_size is None) == (window_size_fn is None):
        raise PlanError("group_by_window() needs exactly one of window_size and window_size_fn")
    if window_size_fn is not None:
        _check(name, window_size_fn)
    return {"window_size": _size(window_size), "window_size_fn": window_size_fn}


def split(key: Any, branches: Any, window_size: Any, default: Any) -> Split:
    """Check the arguments of ``split_by``.

    Raises:
        PlanError: An argument is invalid.
        StageBuildError: A function cannot be called with its argument.
    """
    from aiostream_data.plan.keyed import Branches

    name = "split_by"
    _check(name, key)
    if not isinstance(branches, Mapping):
        raise ArgumentTypeError(f"split_by() needs a dict from key to chain, got {shown(branches)}")
    if not branches:
        raise PlanError("split_by() needs at least one branch, got an empty dict")
    chains = (*branches.values(), *(() if default is None else (default,)))
    for chain in chains:
        _check(name, chain)
    keys = tuple(branches)
    sizes = {"window_size": _size(window_size), "window_size_fn": None}
    arguments = {"key": key, "branches": keys, "has_default": default is not None, **sizes}
    return Split(arguments, Branches(keys, chains))


def check_reducer(key: Any, init: Any, reduce: Any, finalize: Any) -> None:
    """Check the arguments of ``group_by_reducer``.

    Raises:
        PlanError: A function is not callable, or is a coroutine function.
        StageBuildError: A function cannot be called with its argument, or is a generator function.
    """
    for function in (key, init, reduce, *(() if finalize is None else (finalize,))):
        _check("group_by_reducer", function)


def _size(window_size: Any) -> int | None:
    return None if window_size is None else at_least("window_size", window_size, 1)


def _check(operator: str, function: Callable[..., Any] | Any) -> None:
    """Check that a function is a plain function with at least one positional parameter."""
    functions.check_callable(operator, function)
    functions.refuse_coroutine(operator, function)
    check_gives_a_value(operator, function)
    check_takes_an_element(operator, function)
