"""Refuse functions that cannot serve where they are given, when the chain is written."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from inspect import Parameter
from typing import Any

from aiostream_data.errors import StageBuildError
from aiostream_data.plan.written import function_name

_BY_PLACE = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD, Parameter.VAR_POSITIONAL)


def check_gives_a_value(name: str, function: Callable[..., Any]) -> None:
    """Refuse a function that gives a generator: it is not what the operator takes for a result.

    Raises:
        StageBuildError: It does.
    """
    if _is(inspect.isgeneratorfunction, function) or _is(inspect.isasyncgenfunction, function):
        raise StageBuildError(
            f"{name}() takes what the function returns for an element, and {function_name(function)} is a generator "
            "function; use flat_map() for several elements of each"
        )


def check_takes_an_element(name: str, function: Callable[..., Any], given: Collection[str] = ()) -> None:
    """Refuse a function that cannot be called with an element, whatever the element is.

    Args:
        given: Names of the arguments that it is given besides, by keyword.

    Raises:
        StageBuildError: It has no parameter for an element, or needs others by keyword.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # builtins without a signature
        return
    if not any(parameter.kind in _BY_PLACE and parameter.name not in given for parameter in parameters):
        raise StageBuildError(
            f"{name}() calls its function with an element, but {function_name(function)} takes no positional argument"
        )
    for parameter in parameters:
        needed = parameter.kind is Parameter.KEYWORD_ONLY and parameter.default is Parameter.empty
        if needed and parameter.name not in given:
            raise StageBuildError(
                f"{name}() calls its function with an element, and {function_name(function)} needs {parameter.name}= "
                "besides: give it a default, or bind it with functools.partial"
            )


def check_takes_arguments(name: str, function: Callable[..., Any], given: Sequence[Any]) -> None:
    """Refuse a function that cannot be called with these arguments alone.

    Raises:
        StageBuildError: It needs others, or takes fewer.
    """
    try:
        signature = inspect.signature(function, follow_wrapped=False)  # a decorator may add arguments
    except (TypeError, ValueError):  # builtins without a signature
        return
    try:
        signature.bind(*given)
    except TypeError as error:
        raise StageBuildError(
            f"{name}() cannot call {function_name(function)} with the {len(given)} arguments of args=: {error}"
        ) from None


def _is(kind: Callable[[Any], bool], function: Callable[..., Any]) -> bool:
    """Return it for a function or a callable object."""
    return kind(function) or kind(getattr(function, "__call__", None))  # noqa: B004 - its method, not whether it has one
