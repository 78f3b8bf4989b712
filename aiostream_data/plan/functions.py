"""Identify user functions by name, code and values, so that other processes can compare them.

The identity of a function has three parts:

- The name, ``module.qualname``.
- The code: a hash of the function's outline (:mod:`.source_outline`) if the source is available, otherwise a hash of
  the bytecode. Source outlines are equal under all Python versions. Bytecode is equal only within one minor version.
  The identity records whether the hash covers source or bytecode.
- The values: defaults, closure variables, arguments of a ``partial``, and attributes of a callable object. Closure
  variables that the function itself assigns are treated as state and ignored. For lists, dicts and other mutable
  values, only the class is compared.

If a value is itself a function, the code of this function is included. The identity does not include functions that are
called by global name.
"""

from __future__ import annotations

import dataclasses
import dis
import operator
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Set
from enum import Enum
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np

from aiostream_data.plan.source_outline import source_outline
from aiostream_data.plan.values import hashed, joined_hash, qualified_name, text_of

SOURCE = "src"
BYTECODE = f"py{sys.version_info[0]}.{sys.version_info[1]}"
NOTHING = "-"

NO_IDENTITY: Final = MappingProxyType({"aiostream_data": "no part of the identity"})
"""Metadata of a dataclass field that does not change which function an instance is."""

_GETTERS = (operator.itemgetter, operator.attrgetter, operator.methodcaller)
_CONSTANTS = (type(None), bool, int, float, complex, str, bytes, range, Enum, np.generic, np.dtype, type)


class FunctionIdentity(NamedTuple):
    """Identity of a function: its name, and hashes of its code and values.

    Attributes:
        name: Module and qualified name.
        how: Input of the ``code`` hash: "src" for source code, "py3.11" for bytecode of Python 3.11, "-" for none.
        code: Hash of the code as 8 hex digits, or "-" for built-in and extension functions.
        values: Hash of the values as 8 hex digits, or "-" if the function has none.
    """

    name: str
    how: str
    code: str
    values: str

    def __str__(self) -> str:
        return " ".join(self)

    @property
    def lasting(self) -> str:
        """Identity as text without bytecode hashes, so that different Python versions can compare identities."""
        return str(self if self.how == SOURCE else self._replace(how=NOTHING, code=NOTHING))


def parse_identity(text: str) -> FunctionIdentity | None:
    """Parse the result of :meth:`FunctionIdentity.__str__`. Return None if the text has another format."""
    parts = text.split(" ")
    return FunctionIdentity(*parts) if len(parts) == 4 else None


def identify(function: Callable[..., Any]) -> FunctionIdentity:
    """Compute the identity of any callable without calling it.

    The identity of a function does not depend on memory addresses.
    """
    walk = _Walk()
    name = walk.callable(function)
    how = NOTHING if not walk.codes else BYTECODE if walk.has_bytecode else SOURCE
    codes = joined_hash(walk.codes) if walk.codes else NOTHING
    return FunctionIdentity(name, how, codes, joined_hash(walk.values) if walk.values else NOTHING)


class _Walk:
    """Collects the code and the values of a function, including functions among these values.

    Attributes:
        codes: Source outline or bytecode of each function, as text.
        values: Values of all functions, as text.
        has_bytecode: True if the source of a function is unavailable.
    """

    def __init__(self) -> None:
        self.codes: list[str] = []
        self.values: list[str] = []
        self.has_bytecode = False
        self._met: dict[int, Any] = {}  # by id; references to the objects prevent reuse of their ids

    def callable(self, function: Any) -> str:
        """Add a callable with its code and values, and return its name."""
        if id(function) in self._met:
            return qualified_name(function)
        self._met[id(function)] = function
        if isinstance(function, partial):
            self._carried([*function.args, *sorted(function.keywords.items())])
            return self.callable(function.func)
        if isinstance(function, types.MethodType):
            self.values.append(self._owner(function.__self__))
            return self.callable(function.__func__)
        if isinstance(function, types.FunctionType):
            return self._function(function)
        if isinstance(function, type):
            return self._class(function)
        if isinstance(function, types.BuiltinFunctionType):
            owner = function.__self__
            self._carried([] if owner is None or isinstance(owner, types.ModuleType) else [owner])
            return qualified_name(function)
        if callable(getattr(function, "__wrapped__", None)):  # functools.lru_cache
            return self.callable(function.__wrapped__)
        return self._object(function)

    def _object(self, function: Any) -> str:
        call = type(function).__call__
        if isinstance(call, types.FunctionType):
            self.callable(call)
            self.values.append(self._owner(function))
            return qualified_name(type(function))
        if isinstance(function, _GETTERS):
            self._carried([function.__reduce__()])
        return qualified_name(function)

    def _function(self, function: types.FunctionType) -> str:
        outline = source_outline(function.__code__, function.__globals__)
        self.has_bytecode |= outline is None
        self.codes.append(_bytecode(function.__code__) if outline is None else outline)
        assigned = _assigned(function.__code__, "STORE_DEREF")
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        self._carried(function.__defaults__ or ())
        self._carried(sorted((function.__kwdefaults__ or {}).items()))
        self._carried([(name, _content(cell)) for name, cell in cells if name not in assigned])
        return qualified_name(function)

    def _class(self, kind: type) -> str:
        for name in ("__new__", "__init__"):
            method = getattr(kind, name, None)
            if isinstance(method, types.FunctionType):
                self.callable(method)
        return qualified_name(kind)

    def _carried(self, values: Any) -> None:
        self.values += map(self._carried_text, values)

    def _carried_text(self, value: Any) -> str:
        if isinstance(value, _CONSTANTS):
            return text_of(value)
        if isinstance(value, (tuple, frozenset)):
            texts = map(self._carried_text, value)
            return f"({', '.join(texts if isinstance(value, tuple) else sorted(texts))})"
        if isinstance(value, np.ndarray):
            return f"{value.dtype}{value.shape}" if value.flags.writeable else text_of(value)
        if isinstance(value, types.ModuleType):
            return value.__name__
        if isinstance(value, (types.FunctionType, types.MethodType, partial)):
            return self.callable(value)
        kind: Any = type(value)
        frozen = dataclasses.is_dataclass(value) and kind.__dataclass_params__.frozen
        return self._owner(value) if frozen else qualified_name(type(value))

    def _owner(self, value: Any) -> str:
        """Return the class of an object, and the attributes that its constructor sets, as text."""
        if isinstance(value, (*_CONSTANTS, types.ModuleType)):
            return self._carried_text(value)
        attributes = ", ".join(f"{name}={self._carried_text(part)}" for name, part in _attributes(value))
        return f"{qualified_name(type(value))}({attributes})"


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # the variable is not assigned yet
        return None


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of an object that no method except its constructor assigns.

    Fields of a dataclass with the metadata :data:`NO_IDENTITY` are left out.
    """
    kind = type(value)
    methods = [
        method
        for base in kind.__mro__
        for name, method in vars(base).items()
        if isinstance(method, types.FunctionType) and name not in ("__init__", "__post_init__", "__setstate__")
    ]
    assigned = {name for method in methods for name in _assigned(method.__code__, "STORE_ATTR")}
    own = dataclasses.fields(value) if dataclasses.is_dataclass(value) else ()
    ignored = assigned.union(field.name for field in own if field.metadata == NO_IDENTITY)
    slots = [field.name for field in own]
    found: Mapping[str, Any] = getattr(value, "__dict__", None) or {name: getattr(value, name, None) for name in slots}
    yield from sorted((name, part) for name, part in found.items() if name not in ignored)


@lru_cache(maxsize=1024)  # reading instructions takes long, and every loader needs the names for its fingerprint
def _assigned(code: types.CodeType, operation: str) -> Set[str]:
    """Return the names that code, and the code inside it, assigns with instructions of one kind."""
    names = {str(step.argval) for step in dis.get_instructions(code) if step.opname == operation}
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            names |= _assigned(inner, operation)
    return frozenset(names)


def _bytecode(code: types.CodeType) -> str:
    """Return the instructions, constants and names of a code object as text.

    File names and line numbers are omitted.
    """
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, code.co_flags)
    return f"{hashed(code.co_code, 8)} {names} {_constant(code.co_consts)}"


def _constant(value: Any) -> str:
    if isinstance(value, types.CodeType):
        return _bytecode(value)
    if isinstance(value, tuple):
        return f"({', '.join(map(_constant, value))})"
    return text_of(value)
