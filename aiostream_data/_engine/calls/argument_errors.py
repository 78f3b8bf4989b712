"""Explain errors of calls whose arguments do not match the parameters of the user function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from inspect import Parameter
from typing import Any, Final

from aiostream_data._engine.failures.element_summary import summary
from aiostream_data.errors import StageBuildError
from aiostream_data.plan.written import function_name

_BY_PLACE: Final = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def as_arguments(element: Any) -> tuple[Any, ...]:
    """Return the call arguments for an element.

    A plain tuple is unpacked; any other element is passed as one argument.
    """
    return element if type(element) is tuple else (element,)


def misfit(
    error: BaseException, function: Callable[..., Any], element: Any, by_name: Collection[str] = ()
) -> StageBuildError | None:
    """Return a clearer error if ``function`` cannot accept ``element``, or None if the function itself failed.

    Args:
        by_name: Names of additional keyword arguments, such as ``rng``.
    """
    if not isinstance(error, TypeError):
        return None
    arguments = as_arguments(element)
    try:
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):  # builtins can lack a signature
        return None
    try:
        signature.bind(*arguments, **dict.fromkeys(by_name))
    except TypeError:
        names = [name for name, each in signature.parameters.items() if each.kind in _BY_PLACE and name not in by_name]
        refused = StageBuildError(
            f"cannot call {function_name(function)}: it takes {_counted(names)}, but is called with {len(arguments)}. "
            f"{_explained(element, arguments)}"
        )
        refused.__suppress_context__ = True  # Python's own message is less clear
        return refused
    return None


def _counted(names: list[str]) -> str:
    return f"{len(names)} argument{'' if len(names) == 1 else 's'}" + (f" ({', '.join(names)})" if names else "")


def _explained(element: Any, arguments: tuple[Any, ...]) -> str:
    if type(element) is tuple:
        cure = f"Define {len(arguments)} parameters, or *parts."
        return f"The element is a tuple, {summary(element)}, and each of its parts is an argument. {cure}"
    if isinstance(element, dict) and element:
        cure = f"Define one parameter x, and read x[{next(iter(element))!r}]."
        return f"The element is a dict, {summary(element)}, and is one argument. {cure}"
    return f"The element, {summary(element)}, is one argument. Define one parameter."
