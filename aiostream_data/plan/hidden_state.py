"""Find state in user functions that a saved state of a loader cannot contain.

A function with hidden state, such as a random generator in a closure, returns other values in a resumed run. Its values
also depend on the number of workers.

The search covers the function's closure, its defaults, the arguments of a ``partial``, the attributes of a callable
object or of a bound method's owner, and the global variables that the function names. It does not cover functions that
are called by global name. The search takes a few microseconds; it reads bytecode only for suspicious global names.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import fields
from functools import lru_cache, partial
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from aiostream_data.plan.base import Node, walk
from aiostream_data.plan.written import function_name

Kind: TypeAlias = Literal["random", "iterator", "file", "socket", "lock"]

SUPPLIED: Final = frozenset({"rng", "state"})
"""Parameters of ``map`` and ``filter`` functions whose defaults are not used, because the loader passes values."""

_DEPTH: Final = 3
"""Number of functions inside functions that are searched, such as a partial of a decorated function."""

_CLASSES: Final[dict[tuple[str, str], Kind]] = {
    ("_random", "Random"): "random",
    ("numpy.random._generator", "Generator"): "random",
    ("numpy.random.bit_generator", "BitGenerator"): "random",
    ("numpy.random.mtrand", "RandomState"): "random",
    ("_socket", "socket"): "socket",
    ("_thread", "lock"): "lock",
    ("_thread", "RLock"): "lock",
    ("threading", "_RLock"): "lock",
    ("multiprocessing.synchronize", "Lock"): "lock",
    ("multiprocessing.synchronize", "RLock"): "lock",
    ("tempfile", "_TemporaryFileWrapper"): "file",
}
"""Classes by module and name, so that the search imports none of these modules."""

_DATASET: Final = ("aiostream_data.dataset.chain", "Chain")
"""Base class of datasets, whose ``__next__`` only raises an error."""

_WHAT: Final[dict[Kind, str]] = {
    "random": "a random generator",
    "iterator": "an iterator",
    "file": "an open file",
    "socket": "a socket",
    "lock": "a lock",
}


class HiddenState(NamedTuple):
    """State that a function refers to.

    Attributes:
        kind: Kind of the state.
        place: Description of the variable, such as ``its variable 'generator'``.
        is_global: True for the random state that all users of a module share.
    """

    kind: Kind
    place: str
    is_global: bool = False

    def message(self, operator: str, function: Callable[..., Any]) -> str:
        """Return the cause and the remedy as text."""
        does = "draws from the global random state" if self.is_global else f"is {_WHAT[self.kind]}"
        effect = "makes its workers wait for each other" if self.kind == "lock" else "is not part of a saved state"
        return (
            f"{operator}(): {function_name(function)} has hidden state: {self.place} {does}, which {effect}. "
            f"{_remedy(self.kind, operator)}."
        )


def _remedy(kind: Kind, operator: str) -> str:
    has_workers = operator in ("map", "filter")
    if kind == "random":
        taken = "Take a parameter rng, which receives a random generator for each record"
        return taken if has_workers else "Use a map() with a parameter rng, or create the generator in the function"
    if kind == "lock":
        return "Return values instead of changing shared objects" + (", or use init=" if has_workers else "")
    return f"Create the {kind} inside the function" + (", or once per worker with init=" if has_workers else "")


def hidden_state(function: Callable[..., Any], supplied: Collection[str] = ()) -> HiddenState | None:
    """Return the first state that a function refers to, or None. Does not call the function.

    Args:
        supplied: Names of parameters whose defaults are not used.
    """
    return next(_states_of(function, supplied, _DEPTH), None)


def hidden_state_of_arguments(args: Sequence[Any]) -> HiddenState | None:
    """Return the first state among the arguments that an operator passes to its function, or None."""
    return next(_of_values([(f"its argument {number}", value) for number, value in enumerate(args)], 0), None)


def hidden_states_of_plan(plan: Node) -> Iterator[str]:
    """Yield the message for each function of a plan that has hidden state."""
    for node in walk(plan):
        for field in fields(node):
            value = getattr(node, field.name)
            found = hidden_state(value, SUPPLIED) if callable(value) and not isinstance(value, type) else None
            if found is not None:
                yield found.message(node.label, value)


def _states_of(function: Any, supplied: Collection[str], depth: int) -> Iterator[HiddenState]:
    if isinstance(function, FunctionType):
        yield from _of_function(function, supplied, depth)
    elif isinstance(function, partial):
        given = [(f"its argument {number}", value) for number, value in enumerate(function.args)]
        given += [(f"its argument {name!r}", value) for name, value in function.keywords.items()]
        yield from _of_values(given, depth)
        yield from _states_of(function.func, {*supplied, *function.keywords}, depth)
    elif isinstance(function, (MethodType, BuiltinFunctionType)):
        yield from _of_owner(function.__self__)
        yield from _states_of(getattr(function, "__func__", None), supplied, depth)
    elif isinstance(getattr(function, "__wrapped__", None), FunctionType):  # functools.lru_cache
        yield from _of_function(function.__wrapped__, supplied, depth)
    elif function is not None and not isinstance(function, type):
        yield from _of_owner(function)
        called = getattr(type(function), "__call__", None)  # noqa: B004 - the method itself
        if isinstance(called, FunctionType):
            yield from _of_function(called, supplied, depth)


def _of_function(function: FunctionType, supplied: Collection[str], depth: int) -> Iterator[HiddenState]:
    code = function.__code__
    if function.__closure__:
        cells = zip(code.co_freevars, function.__closure__, strict=True)
        yield from _of_values([(f"its variable {name!r}", _content(cell)) for name, cell in cells], depth)
    if function.__defaults__:
        names = code.co_varnames[: code.co_argcount][-len(function.__defaults__) :]
        given = [*zip(names, function.__defaults__, strict=True)]
        yield from _of_values([(f"the default of {name!r}", value) for name, value in given if name not in supplied], 0)
    if function.__kwdefaults__:
        keywords = function.__kwdefaults__.items()
        yield from _of_values(
            [(f"the default of {name!r}", value) for name, value in keywords if name not in supplied], 0
        )
    if _names_suspect(code, function.__globals__):
        yield from _of_globals(code, function.__globals__)


def _of_values(named: Collection[tuple[str, Any]], depth: int) -> Iterator[HiddenState]:
    for place, value in named:
        kind = _kind_of(value)
        if kind is not None:
            yield HiddenState(kind, place)
        elif depth and isinstance(value, (FunctionType, MethodType, partial)):
            yield from _states_of(value, (), depth - 1)


def _of_owner(owner: Any) -> Iterator[HiddenState]:
    """Yield the states in an object whose method is called, and the object itself if it is a state."""
    if isinstance(owner, (ModuleType, type)) or owner is None:
        return
    kind = _kind_of(owner)
    if kind is not None:
        yield HiddenState(kind, "the function" if _is_shared(owner) else "its owner", _is_shared(owner))
        return
    attributes = getattr(owner, "__dict__", None)
    if attributes:
        yield from _of_values([(f"its attribute {name!r}", value) for name, value in [*attributes.items()]], 0)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # the variable is not assigned yet
        return None


def _kind_of(value: Any) -> Kind | None:
    kind = _kind_of_class(type(value))
    if kind == "file":
        is_console = value is sys.stdout or value is sys.stderr
        return None if is_console or getattr(value, "closed", False) else kind
    return kind


def _find_kind(kind: Any) -> Kind | None:
    for base in kind.__mro__:
        name = (base.__module__, base.__qualname__)
        if name == _DATASET:
            return None
        found = _CLASSES.get(name)
        if found is not None:
            return found
    if issubclass(kind, io.IOBase):
        return "file"
    return "iterator" if hasattr(kind, "__next__") else None


_kind_of_class: Callable[[Any], Kind | None] = lru_cache(1024)(_find_kind)


# -- global variables


def _names_suspect(code: CodeType, known: dict[str, Any]) -> bool:
    """Return True if a global variable with one of the code's names can be a state. Attribute names count as well."""
    for name in code.co_names:
        value = known.get(name)
        if value is not None and (
            _kind_of_class(type(value)) is not None
            or (isinstance(value, ModuleType) and _has_random_state(value, code))
            or (isinstance(value, (BuiltinFunctionType, MethodType)) and _is_random(value.__self__))
        ):
            return True
    return any(isinstance(inner, CodeType) and _names_suspect(inner, known) for inner in code.co_consts)


def _has_random_state(module: ModuleType, code: CodeType) -> bool:
    name = module.__name__
    return name in ("random", "numpy.random") or (name == "numpy" and "random" in code.co_names)


def _is_random(value: Any) -> bool:
    return _kind_of_class(type(value)) == "random"


def _is_shared(generator: Any) -> bool:
    """Return True for the random state of the module ``random`` or ``numpy.random``."""
    modules = (sys.modules.get("random"), sys.modules.get("numpy.random.mtrand"))
    return any(generator is getattr(module, name, None) for module in modules for name in ("_inst", "_rand"))


def _of_globals(code: CodeType, known: dict[str, Any]) -> Iterator[HiddenState]:
    for path in _paths(code):
        value: Any = known.get(path[0])
        last = 1
        while isinstance(value, ModuleType) and last < len(path):
            value = getattr(value, path[last], None)
            last += 1
        place = ".".join(path[:last])
        kind = _kind_of(value)
        if kind is not None:
            yield HiddenState(kind, f"the global variable {place!r}")
        elif isinstance(value, (BuiltinFunctionType, MethodType)) and _is_random(value.__self__):
            is_global = _is_shared(value.__self__)
            yield HiddenState("random", f"{place}()" if is_global else f"the owner of {place}()", is_global)


@lru_cache(256)
def _paths(code: CodeType) -> tuple[tuple[str, ...], ...]:
    """Return the global names that code loads, each with the attributes read from it: ``("np", "random", "rand")``."""
    import dis  # slow import

    paths: list[list[str]] = []
    follows = False
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            paths.append([str(step.argval)])
            follows = True
        elif follows and step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            paths[-1].append(str(step.argval))
        elif step.opname != "EXTENDED_ARG":
            follows = False
    inner = [path for part in code.co_consts if isinstance(part, CodeType) for path in _paths(part)]
    return (*map(tuple, paths), *inner)
