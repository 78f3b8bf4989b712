"""Look up a dotted name in the CuPy that is installed, and how it is called.

Functions of Cython have no signature that Python can read, but one in the first line of their text, such as
``eventRecord(intptr_t event, intptr_t stream)``. ``Name()`` stands for what calling ``Name`` gives.
"""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import dataclass
from inspect import Parameter, Signature
from typing import Any, Final

RETURNED: Final = {
    **dict.fromkeys(
        [f"cupy.{name}" for name in ("arange", "array", "asarray", "dot", "empty", "ones", "zeros")], "cupy.ndarray"
    ),
    "cupy.cuda.alloc": "cupy.cuda.MemoryPointer",
    "cupy.cuda.get_current_stream": "cupy.cuda.Stream",
    "cupy.cuda.Stream().end_capture": "cupy.cuda.graph.Graph",
    "cupy.get_default_memory_pool": "cupy.cuda.MemoryPool",
    "cupy.RawModule().get_function": "cupy.RawKernel",
}
"""Classes of what functions return. Of others nothing is known, and nothing that is done with it is looked at."""


SET_WHEN_MADE: Final = frozenset({"ptr", "status"})
"""Attributes that instances have and their classes do not: handles, and statuses of errors."""

TOLD_WRONGLY: Final = {
    "cupy.RawKernel()": "__call__(self, grid, block, args, **kwargs)",  # 13 leaves out that it takes stream=
}
"""Signatures in place of CuPy's own where its text says less than it takes."""


class NoSignatureError(Exception):
    """CuPy has it, and does not tell how it is called."""


@dataclass(frozen=True)
class Found:
    """Something of CuPy's.

    Attributes:
        value: It; of an instance its class.
        is_instance: True for an object of class ``value`` that nobody has made.
    """

    value: Any
    is_instance: bool = False


def look_up(cupy: Any, name: str) -> Found | None:
    """Return what a dotted name stands for; None where that is what a function returns of which nothing is known.

    Raises:
        AttributeError: CuPy has no such name.
    """
    found, passed = Found(cupy), "cupy"
    for part in name.split(".")[1:]:
        attribute, called, _ = part.partition("()")
        if found.is_instance and attribute in SET_WHEN_MADE:
            return None
        found, passed = Found(getattr(found.value, attribute)), f"{passed}.{attribute}"
        if isinstance(found.value, property) or inspect.isdatadescriptor(found.value):
            return None
        if called:
            known = Found(found.value, True) if isinstance(found.value, type) else _returned(cupy, passed)
            if known is None:
                return None
            found, passed = known, f"{passed}()"
    return found


def _returned(cupy: Any, name: str) -> Found | None:
    if name not in RETURNED:
        return None
    made = look_up(cupy, RETURNED[name])
    return None if made is None else Found(made.value, True)


def signature_of(cupy: Any, name: str) -> Signature | None:
    """Return how a dotted name is called, without ``self``; None where nothing is known of what it is.

    Raises:
        AttributeError: CuPy has no such name.
        NoSignatureError: It does not tell.
    """
    found = look_up(cupy, name)
    if found is None:
        return None
    called = found.value.__call__ if found.is_instance else found.value
    text = TOLD_WRONGLY.get(_class_of(name), inspect.getdoc(called) or "")
    told = in_text(text, name.removesuffix("()").rpartition(".")[2], found.is_instance)
    if told is not None:
        return told
    try:
        signature = inspect.signature(called)
    except ValueError:
        raise NoSignatureError(name) from None
    if any(one.kind is Parameter.VAR_POSITIONAL for one in signature.parameters.values()):
        raise NoSignatureError(f"{name}{signature}: takes anything")
    return _without_self(signature) if "()." in name or found.is_instance else signature


def _class_of(name: str) -> str:
    """Return the name by which an instance is known, as made by its class."""
    made = name.removesuffix("()")
    return f"{RETURNED[made]}()" if name.endswith("()") and made in RETURNED else name


def in_text(text: str, name: str, is_instance: bool = False) -> Signature | None:
    """Return the signature in the first line of a text; None where there is none."""
    told = re.match(rf"(?:\w+\.)?({re.escape(name)}|__init__|__call__)\((.*)\)(?: -> .*)?$", text.partition("\n")[0])
    if told is None or (is_instance and told[1] != "__call__"):
        return None
    return _without_self(Signature(_parameters(told[2])))


def _parameters(told: str) -> list[Parameter]:
    """Return parameters as Cython writes them: each with its type in C before its name."""
    made: list[Parameter] = []
    keywords_only = False
    for part in re.findall(r"""(?:[^,'"(\[]|'[^']*'|"[^"]*"|\([^)]*\)|\[[^\]]*\])+""", told):
        declared, has_default, _ = part.strip().replace("\\", "").partition("=")
        name = declared.split()[-1]
        if name == "*":
            keywords_only = True
        elif name.startswith("**"):
            made.append(Parameter(name[2:], Parameter.VAR_KEYWORD))
        elif name.startswith("*"):
            raise NoSignatureError(f"({told}): takes anything")
        else:
            kind = Parameter.KEYWORD_ONLY if keywords_only else Parameter.POSITIONAL_OR_KEYWORD
            made.append(Parameter(name, kind, default=None if has_default else Parameter.empty))
    return made


def _without_self(signature: Signature) -> Signature:
    parameters = list(signature.parameters.values())
    return signature.replace(parameters=parameters[1:]) if parameters and parameters[0].name == "self" else signature


def misfit(call: ast.Call, signature: Signature) -> str | None:
    """Return why a call does not fit a signature; None where it does."""
    several = any(isinstance(argument, ast.Starred) for argument in call.args)
    several = several or any(keyword.arg is None for keyword in call.keywords)
    positional = [argument for argument in call.args if not isinstance(argument, ast.Starred)]
    named = {keyword.arg: None for keyword in call.keywords if keyword.arg is not None}
    try:
        (signature.bind_partial if several else signature.bind)(*positional, **named)
    except TypeError as error:
        return f"{error}, in {signature}"
    return None
