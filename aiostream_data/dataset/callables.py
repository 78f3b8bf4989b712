"""Checks that reject unsuitable user functions when the user builds the operator chain."""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable, Collection, Sequence
from inspect import Parameter
from typing import Any

from aiostream_data.errors import HiddenStateWarning, StageBuildError
from aiostream_data.plan.base import Node
from aiostream_data.plan.hidden_state import (
    HiddenState,
    hidden_state,
    hidden_state_of_arguments,
    hidden_states_of_plan,
)
from aiostream_data.plan.written import function_name

_PACKAGE = __name__.partition(".")[0]
_BY_PLACE = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD, Parameter.VAR_POSITIONAL)


def check_gives_a_value(name: str, function: Callable[..., Any]) -> None:
    """Reject a generator function, because the operator expects one result per element.

    Raises:
        StageBuildError: ``function`` is a generator function.
    """
    if _is(inspect.isgeneratorfunction, function) or _is(inspect.isasyncgenfunction, function):
        raise StageBuildError(
            f"{name}() needs a function with one result, but {function_name(function)} is a generator function. "
            "Use flat_map() to make several elements of each element."
        )


def check_takes_an_element(name: str, function: Callable[..., Any], given: Collection[str] = ()) -> None:
    """Reject a function that cannot be called with one element.

    Args:
        given: Names of the arguments that the operator passes by keyword.

    Raises:
        StageBuildError: The function has no positional parameter, or requires other keyword arguments.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # builtins without a signature
        return
    if not any(parameter.kind in _BY_PLACE and parameter.name not in given for parameter in parameters):
        raise StageBuildError(
            f"{name}() calls its function with an element, but {function_name(function)} takes no positional argument. "
            "Add a parameter for the element."
        )
    for parameter in parameters:
        needed = parameter.kind is Parameter.KEYWORD_ONLY and parameter.default is Parameter.empty
        if needed and parameter.name not in given:
            raise StageBuildError(
                f"{name}() calls its function with an element only, but {function_name(function)} also needs "
                f"{parameter.name}=. Add a default value, or bind the argument with functools.partial()."
            )


def check_takes_arguments(name: str, function: Callable[..., Any], given: Sequence[Any]) -> None:
    """Reject a function that cannot be called with exactly these arguments.

    Raises:
        StageBuildError: The function requires more arguments, or accepts fewer arguments.
    """
    error = _misfit(function, given)
    if error is not None:
        raise StageBuildError(
            f"{name}() cannot call {function_name(function)} with the {len(given)} arguments of args=: {error}. "
            "Pass the arguments that the function requires."
        )


def check_takes_state_and_element(name: str, function: Callable[..., Any]) -> None:
    """Reject a function that cannot be called with a state and an element.

    Raises:
        StageBuildError: The function requires more arguments, or accepts fewer arguments.
    """
    error = _misfit(function, (None, None))
    if error is not None:
        raise StageBuildError(
            f"{name}() calls its function with a state and an element, but {function_name(function)} cannot be called "
            f"with two arguments: {error}. Define two parameters; a tuple element is one argument."
        )


def _misfit(function: Callable[..., Any], given: Sequence[Any]) -> TypeError | None:
    """Return the error of a call with these positional arguments; None if the function accepts them or may do so."""
    try:
        signature = inspect.signature(function, follow_wrapped=False)  # a decorator may add arguments
    except (TypeError, ValueError):  # builtins without a signature
        return None
    try:
        signature.bind(*given)
    except TypeError as error:
        return error
    return None


def warn_of_hidden_state(
    name: str, function: Callable[..., Any], given: Collection[str] = (), args: Sequence[Any] = ()
) -> None:
    """Issue a :class:`HiddenStateWarning` if a function has state that a resumed run cannot restore.

    Args:
        given: Names of the arguments that the operator passes by keyword.
        args: Arguments that the operator passes in every epoch.
    """
    found: HiddenState | None = hidden_state(function, given)
    if found is None and args:
        found = hidden_state_of_arguments(args)
    if found is not None:
        warnings.warn(found.message(name, function), HiddenStateWarning, stacklevel=_depth_of_package())


def refuse_hidden_state(plan: Node) -> None:
    """Reject a plan whose functions have state that a resumed run cannot restore.

    Raises:
        StageBuildError: A function has hidden state.
    """
    for message in hidden_states_of_plan(plan):
        raise StageBuildError(message)


def _depth_of_package() -> int:
    """Return the ``stacklevel`` of the user's line, for a warning of the caller."""
    frame, depth = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        frame, depth = frame.f_back, depth + 1
    return depth


def _is(kind: Callable[[Any], bool], function: Callable[..., Any]) -> bool:
    """Apply the predicate ``kind`` to a function, or to the ``__call__`` method of a callable object."""
    return kind(function) or kind(getattr(function, "__call__", None))  # noqa: B004 - tests the method itself
