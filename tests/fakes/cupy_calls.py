"""Find what sources name of CuPy, and how they call it, by reading them.

How this works. Every expression gets the *dotted name* of what it stands for, where that is known: ``cupy.cuda.Stream``
for a class, and ``cupy.cuda.Stream()`` for what calling it gives. Names are followed through assignments, ``with`` and
``except``; some are known by convention, as in ``self._runtime``. What becomes of anything else is not known, and not
found: so this finds most uses, and is never wrong about one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

NAMES: Final = {
    "cupy": "cupy",
    "cuda": "cupy.cuda",
    "runtime": "cupy.cuda.runtime",
    "driver": "cupy.cuda.driver",
}
"""What variables and parameters of these names hold, unless they were imported or assigned something else."""

ATTRIBUTES: Final = {
    "cupy": "cupy",
    "_cupy": "cupy",
    "_cuda": "cupy.cuda",
    "_runtime": "cupy.cuda.runtime",
    "_driver": "cupy.cuda.driver",
    "event": "cupy.cuda.Event()",
}
"""What attributes of these names hold, of whatever object."""

ELEMENTS: Final = {"_kernels": "cupy.RawKernel()"}
"""What is in containers that are attributes of these names."""

IMPORTERS: Final = {"import_cupy": "cupy"}
"""What functions of these names return."""


@dataclass(frozen=True)
class Use:
    """One place that names something of CuPy's.

    Attributes:
        where: File and line.
        name: What it names.
        call: How it calls that, where it does.
    """

    where: str
    name: str
    call: ast.Call | None = None


def uses_in(path: Path) -> list[Use]:
    """Return every use in a file, and in programs that are strings in it."""
    return uses_of(path.read_text(), path.name)


def uses_of(source: str, file: str = "source") -> list[Use]:
    """Return every use in a source."""
    tree = ast.parse(source)
    found = list(_Reader(file, tree).uses(tree, {}))
    texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    for text in texts:
        if "import cupy" in str(text.value) and (program := _parsed(str(text.value))) is not None:
            found += _Reader(f"{file}:{text.lineno}: program", program).uses(program, {})
    return found


def _parsed(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except SyntaxError:
        return None


_FUNCTION: Final = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

Scope = dict[str, str | None]
"""Dotted names by variable; None where a variable holds something else."""


class _Reader:
    """Reads a module, and each class in it by a reader of its own, as ``self`` means another thing in each."""

    def __init__(self, file: str, tree: ast.Module | ast.ClassDef, outer: Scope | None = None) -> None:
        self._file = file
        self._attributes: Scope = {}
        for _ in range(2):  # what one is made of may be assigned further down
            for method in (node for node in tree.body if isinstance(node, ast.FunctionDef)):
                self._attributes |= dict(self._attributes_set_in(method, outer or {}))

    def _attributes_set_in(self, method: ast.FunctionDef, outer: Scope) -> Iterator[tuple[str, str]]:
        scope = self._scope(method, outer)
        for target, value in _assigned(method):
            if isinstance(target, ast.Attribute) and (name := self._name(value, scope)) is not None:
                yield target.attr, name

    def uses(self, tree: ast.AST, outer: Scope) -> Iterator[Use]:
        """Yield the uses in a scope, those in functions and classes in it included."""
        scope = self._scope(tree, outer)
        for node in _inside(tree):
            if isinstance(node, ast.ClassDef):
                yield from _Reader(self._file, node, scope).uses(node, scope)
            elif isinstance(node, _FUNCTION):
                yield from self.uses(node, scope)
            elif isinstance(node, ast.Call) and (name := self._called(node, scope)) is not None:
                yield Use(f"{self._file}:{node.lineno}", name, node)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                name = self._name(node, scope)
                if name is not None:
                    yield Use(f"{self._file}:{node.lineno}", name)

    def _scope(self, tree: ast.AST, outer: Scope) -> Scope:
        """Return what variables hold behind the assignments of a scope."""
        scope = dict(outer)
        if isinstance(tree, _FUNCTION):
            arguments = [*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs]
            scope |= {one.arg: NAMES.get(one.arg) for one in arguments}
        assigned: set[str] = set()
        for target, value in _assigned(tree):
            if not isinstance(target, ast.Name) or target.id == "cupy":
                continue
            name = self._name(value, scope)
            # A variable that is assigned different things is either, so nothing is known of it.
            scope[target.id] = name if target.id not in assigned or scope[target.id] == name else None
            assigned.add(target.id)
        return scope

    def _called(self, node: ast.Call, scope: Scope) -> str | None:
        name = self._name(node.func, scope)
        return None if name in NAMES.values() else name  # no module is called, but a method of the name of one may be

    def _name(self, node: ast.expr | None, scope: Scope) -> str | None:
        """Return the dotted name of what an expression stands for; None where it is not known."""
        if isinstance(node, ast.Name):
            return scope.get(node.id, NAMES.get(node.id))
        if isinstance(node, ast.Attribute):
            owner = self._name(node.value, scope)
            if owner is not None:
                return f"{owner}.{node.attr}"
            known: str | None = ATTRIBUTES.get(node.attr)
            return known or (self._attributes.get(node.attr) if _is_self(node.value) else None)
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute):
            return ELEMENTS.get(node.value.attr)
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id in IMPORTERS:
                return IMPORTERS[node.func.id]
            called = self._called(node, scope)
            return None if called is None else f"{called}()"
        return None


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _inside(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a scope; functions and classes in it as they are, without what is in them."""
    for child in ast.iter_child_nodes(tree):
        yield child
        if not isinstance(child, _FUNCTION | ast.ClassDef):
            yield from _inside(child)


def _assigned(tree: ast.AST) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """Yield what is assigned in a scope, and what to; None for what only loops or failures tell."""
    for node in _inside(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from _pairs(target, node.value)
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr):
            yield node.target, node.value
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            yield node.optional_vars, node.context_expr
        elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            yield from _pairs(node.target, None)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((ast.Name(alias.asname or alias.name.partition(".")[0]), None) for alias in node.names)
        elif isinstance(node, ast.ExceptHandler) and node.name is not None:
            caught = None if node.type is None else ast.Call(func=node.type, args=[], keywords=[])
            yield ast.Name(id=node.name, ctx=ast.Store()), caught


def _pairs(target: ast.expr, value: ast.expr | None) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    if not isinstance(target, ast.Tuple):
        yield target, value
        return
    values = value.elts if isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts) else None
    for place, element in enumerate(target.elts):
        yield from _pairs(element, None if values is None else values[place])
