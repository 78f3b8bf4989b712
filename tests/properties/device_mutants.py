"""The device stage's own code with one wait taken out: every one that is there, found in the source, one at a time.

A wait is a call of ``order_after``, ``join``, ``retire``, ``mark`` or ``timed_mark`` of a backend. The module that
makes it is compiled anew without it, and loaded together with all others of the package, beside the modules that
everybody else uses. So a wait that is added to the stage is covered as soon as it is written: where the drills of
:mod:`device_drill` go by without noticing that it is gone, they have to be made to reach it.

``python tests/properties/device_mutants.py`` prints how soon each of them is caught.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import aiostream_data.device

PACKAGE = aiostream_data.device.__name__
FOLDER = Path(aiostream_data.device.__path__[0])
WAITS = ("join", "mark", "order_after", "retire", "timed_mark")
SHARED = frozenset(f"{PACKAGE}.{name}" for name in ("backend", "cuda", "forks", "host"))
"""Modules of which a backend made outside knows the classes, or that note things of the whole process."""


@dataclass(frozen=True)
class Site:
    """One wait in the source.

    Attributes:
        module: Name in the package.
        function: Which makes it, with its class.
        wait: Which method of the backend.
        number: Its place among the waits of the module.
    """

    module: str
    function: str
    wait: str
    number: int

    def __str__(self) -> str:
        return f"{self.module}.{self.function}-{self.wait}-{self.number}"


class _Waits(ast.NodeTransformer):
    """Finds the waits of a module, and takes one out when told to."""

    def __init__(self, module: str, without: int | None = None) -> None:
        self.found: list[Site] = []
        self._module = module
        self._without = without
        self._inside: list[str] = []

    def _enter(self, node: Any) -> ast.AST:
        self._inside.append(node.name)
        self.generic_visit(node)
        self._inside.pop()
        return node  # type: ignore[no-any-return]

    visit_ClassDef = visit_FunctionDef = _enter

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if node.attr not in WAITS or not is_backend(node.value):
            return node
        site = Site(self._module, ".".join(self._inside), node.attr, len(self.found))
        self.found.append(site)
        if site.number != self._without:
            return node
        call = ast.Call(ast.Name("_nothing_for", ast.Load()), [node.value, ast.Constant(node.attr)], [])
        return ast.copy_location(call, node)


def is_backend(node: ast.expr) -> bool:
    """Say whether an expression is called a backend: ``backend``, ``self._backend``, ``slots.backend`` ..."""
    return ast.unparse(node).rpartition(".")[2].endswith("backend")


def nothing_for(backend: Any, wait: str) -> Callable[..., Any]:
    """Return what stands in for a wait that was taken out."""
    if wait.endswith("mark"):
        return lambda _: backend.unrecorded_mark(timed=wait == "timed_mark")
    return lambda *_: None


def source_of(module: str) -> str:
    return (FOLDER / f"{module}.py").read_text("utf-8")


def modules() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__")


@cache
def sites() -> Sequence[Site]:
    """Return every wait of the stage's code, in the order of the source."""
    found: list[Site] = []
    for module in modules():
        if f"{PACKAGE}.{module}" not in SHARED:
            waits = _Waits(module)
            waits.visit(ast.parse(source_of(module)))
            found += waits.found
    return found


class _Finder:
    """Loads one module without one of its waits, and leaves all others to the import system."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name != f"{PACKAGE}.{self._site.module}":
            return None
        return importlib.util.spec_from_loader(name, self)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        tree = _Waits(self._site.module, without=self._site.number).visit(ast.parse(source_of(self._site.module)))
        vars(module)["_nothing_for"] = nothing_for
        name = f"{self._site.module} without {self._site}"
        exec(compile(ast.fix_missing_locations(tree), name, "exec"), vars(module))


class Device:
    """The modules of the device package, by name: those in use, or a set of their own."""

    def __init__(self, loaded: dict[str, ModuleType] | None = None) -> None:
        self._loaded = loaded

    def __getattr__(self, module: str) -> Any:
        name = f"{PACKAGE}.{module}"
        return importlib.import_module(name) if self._loaded is None else self._loaded[name]


def device_without(site: Site) -> Device:
    """Load the device package anew, beside the one in use, without one wait."""
    package = vars(aiostream_data.device)
    before, names = _take_loaded(), dict(package)
    finder = _Finder(site)
    sys.meta_path.insert(0, finder)
    try:
        for module in modules():
            importlib.import_module(f"{PACKAGE}.{module}")
    finally:
        sys.meta_path.remove(finder)
        loaded = _take_loaded()
        sys.modules.update(before)
        package.clear()
        package.update(names)
    return Device(loaded | {name: sys.modules[name] for name in SHARED if name in sys.modules})


def _take_loaded() -> dict[str, ModuleType]:
    names = [name for name in sys.modules if name.startswith(f"{PACKAGE}.") and name not in SHARED]
    return {name: sys.modules.pop(name) for name in names}


def seeds_that_catch(site: Site, seeds: Sequence[int], wanted: int) -> list[tuple[int, str]]:
    """Return the first seeds for which a drill notices that a wait is gone, each with what it noticed.

    Args:
        seeds: Which are tried, each with every style of drill.
        wanted: After how many the search ends.
    """
    from device_drill import IN_USE, STYLES, drill

    device = device_without(site)
    caught: list[tuple[int, str]] = []
    for seed in seeds:
        found = ((style, drill(device, seed, style)) for style in STYLES)
        told = next(((style, findings) for style, findings in found if findings), None)
        if told is not None:
            assert drill(IN_USE, seed, told[0]) == [], "a drill that finds fault with the stage as it is says nothing"
            caught.append((seed, told[1][0]))
        if len(caught) == wanted:
            break
    return caught


def main() -> None:
    """Tell of all waits how many of 100 seeds notice that one is gone, and what the first of these notices."""
    for site in sites():
        caught = seeds_that_catch(site, range(100), wanted=100)
        sys.stdout.write(f"| `{site}` | {len(caught)} | {caught[0][1] if caught else '**nothing**'} |\n")


if __name__ == "__main__":
    main()
