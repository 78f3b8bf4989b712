"""Check whether a function can be sent to another process. If a function cannot be sent, explain why."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from typing import Any, cast

_INSTALL = "install aiostream-data[process], move it to the top level of an importable module"


def obstacle_to_processes(function: Callable[..., Any]) -> str | None:
    """Explain why a function cannot be sent to a new process, and suggest a fix; None if the function can be sent.

    The check does not copy arrays that the function's closure contains.
    """
    if find_spec("cloudpickle") is None:
        return _by_reference(function)
    return _by_value(function)


def _by_reference(function: Callable[..., Any]) -> str | None:
    named: Any = function
    while isinstance(named, partial):
        named = named.func
    if getattr(named, "__name__", "") == "<lambda>" or "<locals>" in getattr(named, "__qualname__", ""):
        return f"is a lambda or local function and cannot be sent to a process: {_INSTALL}"
    pickled, error = _tried(pickle.dumps, function)
    if error is not None:
        return _cannot_be_pickled(pickle.dumps, function, error)
    if _is_of_main(named) or b"__main__" in pickled:
        return f"is defined in __main__, which worker processes do not import: {_INSTALL}"
    return None


def _by_value(function: Callable[..., Any]) -> str | None:
    pickled, error = _tried(pickle.dumps, function)
    if error is None and not _is_of_main(function) and b"__main__" not in pickled:
        return None
    import cloudpickle

    _, error = _tried(cloudpickle.dumps, function)
    return None if error is None else _cannot_be_pickled(cloudpickle.dumps, function, error)


def _is_of_main(function: Any) -> bool:
    return getattr(function, "__module__", None) == "__main__"


def _tried(dumps: Callable[..., bytes], value: Any) -> tuple[bytes, Exception | None]:
    """Pickle a value, but omit the contents of its buffers.

    Return the pickled bytes and None, or empty bytes and the error.
    """
    try:
        return dumps(value, protocol=5, buffer_callback=lambda _: None), None
    except Exception as error:  # noqa: BLE001 - objects raise what they like when they are pickled
        return b"", error


def _cannot_be_pickled(dumps: Callable[..., bytes], function: Callable[..., Any], error: Exception) -> str:
    for name, value in _variables(function):
        if _tried(dumps, value)[1] is not None:
            kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
            return (
                f"cannot be pickled for a process, because {name} is a {kind} ({error}): create it inside the "
                "function, or once per worker with init="
            )
    return f"cannot be pickled for a process ({error}): use only picklable values in it"


def _variables(function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """Yield a pair (description, value) for each variable, default and attribute that is pickled with a function."""
    if isinstance(function, partial):
        yield from _variables(function.func)
        yield from ((f"argument {number}", value) for number, value in enumerate(function.args))
        yield from ((f"argument {name!r}", value) for name, value in function.keywords.items())
    elif inspect.ismethod(function):
        yield from _variables(cast(Any, function.__self__))
    elif inspect.isfunction(function):
        closure = inspect.getclosurevars(function)
        known = {**closure.nonlocals, **_globals_by_value(function, closure.globals)}
        yield from ((f"its variable {name!r}", value) for name, value in known.items())
        with suppress(ValueError, TypeError):  # some callables have no signature
            for parameter in inspect.signature(function).parameters.values():
                if parameter.default is not parameter.empty:
                    yield f"the default of {parameter.name!r}", parameter.default
    else:
        attributes = getattr(function, "__dict__", {})
        yield from ((f"its attribute {name!r}", value) for name, value in attributes.items())


def _globals_by_value(function: Any, names: Any) -> dict[str, Any]:
    """Return the global variables that are pickled with a function.

    Only functions that are pickled by value have such global variables.
    """
    by_value = _is_of_main(function) or "<" in function.__qualname__
    return dict(names) if by_value else {}
