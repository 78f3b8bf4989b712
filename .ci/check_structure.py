"""Refuse import cycles, imports for types included, and class names that stand for two classes."""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGE: Final = "aiostream_data"


def module_of(path: Path) -> str:
    """Return the dotted name of a file of the package."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(tree: ast.AST, modules: Mapping[str, object]) -> Iterator[str]:
    """Yield the package's modules that a file imports anywhere, functions and ``TYPE_CHECKING`` included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for name in node.names:
                inner = f"{node.module}.{name.name}"
                if inner in modules:
                    yield inner
                elif node.module in modules:
                    yield node.module


def repeated_classes(trees: Mapping[str, ast.AST]) -> list[str]:
    """Return complaints about class names with two definitions."""
    places = defaultdict(list)
    for module, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(module)
    return [f"class {name}: defined in {' and '.join(found)}" for name, found in places.items() if len(found) > 1]


def cycle(trees: Mapping[str, ast.AST]) -> list[str]:
    """Return the modules of one import cycle, or nothing."""
    graph = {module: set(imported(tree, trees)) - {module, PACKAGE} for module, tree in trees.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found[::-1]
    return []


def main() -> None:
    files = sorted((ROOT / PACKAGE).rglob("*.py"))
    trees = {module_of(path): ast.parse(path.read_text()) for path in files}
    found = repeated_classes(trees)
    circle = cycle(trees)
    if circle:
        found.append(f"import cycle: {' -> '.join(circle)}")
    if found:
        sys.exit("\n".join(found))
    print(f"{len(trees)} modules, no import cycle, every class name once")


if __name__ == "__main__":
    main()
