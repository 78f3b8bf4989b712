"""Which names of this package a program uses that are not there: found without running it."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from typing import Any, Final

import aiostream_data as asd
from aiostream_data.loading.loader import Loader

PACKAGE: Final = "aiostream_data"
CLASSES: Final = (asd.Dataset, Loader, asd.DeviceBatch, asd.ShardCache, asd.TFRecordWriter)
"""Whose methods programs call on values of theirs."""


def unknown_names(source: str, where: str) -> list[str]:
    """Return names, methods and arguments that are not there; SyntaxError where it is no program."""
    tree = ast.parse(source, where)
    named = dict(_imported(tree))
    foreign = _foreign(tree)
    found = [f"{name}: {error}" for name, error in _failed_imports(tree)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in named:
            value = named[node.value.id]
            if not hasattr(value, node.attr):
                found.append(f"{node.value.id}.{node.attr}")
        if isinstance(node, ast.Call) and _root(node) not in foreign:
            found += _unknown_in_call(node, named)
    return [f"{where}: {name}" for name in found]


def _foreign(tree: ast.AST) -> set[str]:
    """Return the names of other packages, and of values that chains of calls on these packages made."""
    found = {
        (alias.asname or alias.name).split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
        if (getattr(node, "module", None) or alias.name).split(".")[0] != PACKAGE
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and _root(node.value) in found:
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return found


def _root(node: ast.expr) -> str:
    """Return the name at which a chain of calls and attributes starts, or ""."""
    while isinstance(node, (ast.Call, ast.Attribute)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _imports(tree: ast.AST) -> Iterator[tuple[str, str, str]]:
    """Yield (name in the program, module, name in the module) of what is imported from the package."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == PACKAGE:
                    yield alias.asname or PACKAGE, alias.name, ""
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == PACKAGE:
            for alias in node.names:
                yield alias.asname or alias.name, str(node.module), alias.name


def _imported(tree: ast.AST) -> Iterator[tuple[str, Any]]:
    for name, module, attribute in _imports(tree):
        loaded = importlib.import_module(module)
        if not attribute:
            yield name, loaded
        elif hasattr(loaded, attribute):
            yield name, getattr(loaded, attribute)


def _failed_imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    for _, module, attribute in _imports(tree):
        if attribute and not hasattr(importlib.import_module(module), attribute):
            yield f"{module}.{attribute}", "not there"


def _unknown_in_call(call: ast.Call, named: dict[str, Any]) -> Iterator[str]:
    """Yield the method, or the arguments by keyword, that are not there."""
    target = call.func
    if isinstance(target, ast.Name) and target.id in named:
        candidates = [named[target.id]]
    elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id in named:
        candidates = [getattr(named[target.value.id], target.attr, None)]
    elif isinstance(target, ast.Attribute):
        candidates = [vars(cls)[target.attr] for kind in CLASSES for cls in kind.__mro__ if target.attr in vars(cls)]
        if not candidates and _begins_a_data_set(target.value, named):
            yield f".{target.attr}()"
    else:
        candidates = []
    for keyword in call.keywords:
        if candidates and keyword.arg and not any(_takes(candidate, keyword.arg) for candidate in candidates):
            yield f"{ast.unparse(target)}({keyword.arg}=)"


def _begins_a_data_set(node: ast.expr, named: dict[str, Any]) -> bool:
    """Tell whether a chain of calls starts at the Dataset class."""
    while isinstance(node, (ast.Call, ast.Attribute)):
        if isinstance(node, ast.Attribute) and node.attr == "Dataset":
            return True
        node = node.func if isinstance(node, ast.Call) else node.value
    return isinstance(node, ast.Name) and named.get(node.id) is asd.Dataset


def _takes(candidate: Any, name: str) -> bool:
    function = candidate.__func__ if isinstance(candidate, (classmethod, staticmethod)) else candidate
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return True
    return name in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values())
