"""Compare the examples in the docstrings of the installed TensorFlow with this package. Needs TensorFlow.

Command lines, with the repository and ``tests/properties`` on the path::

    python -m differential.docstrings
    python -m differential.docstrings --record tests/data/tfdata_docstrings.json

Each statement of an example runs in TensorFlow, and, as :mod:`.translation` rewrites it, in this package. Printed
values, values of expressions and elements of all datasets are compared, with dtypes and shapes. The recorded file
contains for each docstring the number of compared statements, the names of TensorFlow that have no rule, and a hash of
each difference. ``docs/migrate/tf_data.md`` states the reasons.
"""

from __future__ import annotations

import argparse
import ast
import doctest
import hashlib
import inspect
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

import aiostream_data as asd
from differential.docstring_values import cardinality, is_dataset, shared
from differential.translated_names import NAMESPACE
from differential.translation import (
    CALLS,
    FUNCTIONS,
    ONLY_THERE,
    RANDOM,
    UntranslatableError,
    names_of_tensorflow,
    translated,
)

RECORD = Path(__file__).parents[2] / "data" / "tfdata_docstrings.json"

NOT_OFFERED = {
    name: f"{kind}.{name}"
    for kind, methods in (("tf.data.Iterator", tf.data.Iterator), ("tf.data.Dataset", tf.data.Dataset))
    for name in dir(methods)
    if not name.startswith("_") and not hasattr(asd.Dataset, name)
    if name not in {*CALLS, *FUNCTIONS, "as_numpy_iterator"}
}
"""Full names of the methods that this package does not have, and that no rule rewrites."""


class Found(NamedTuple):
    """What became of the examples of one docstring.

    Attributes:
        compared: Number of statements that ran in both libraries.
        skipped: Names of TensorFlow that have no rule.
        differences: Description of each difference, by a hash of the statement and of what differs.
    """

    compared: int
    skipped: list[str]
    differences: dict[str, str]


def docstrings() -> Iterator[tuple[str, list[doctest.Example]]]:
    """Yield the names of tf.data that have examples in their docstrings, with the examples."""
    modules = {"tf.data": tf.data, "tf.data.Dataset": tf.data.Dataset, "tf.data.experimental": tf.data.experimental}
    for prefix, module in modules.items():
        for name in sorted(vars(module) if prefix != "tf.data.Dataset" else dir(module)):
            value = getattr(module, name)
            if name.startswith("_") or isinstance(value, int):  # whose docstring is Python's
                continue
            examples = doctest.DocTestParser().get_examples(inspect.getdoc(value) or "")
            if examples:
                yield f"{prefix}.{name}", examples


class Comparison:
    """Runs the statements of one docstring in both libraries."""

    def __init__(self) -> None:
        self._printed: tuple[list[Any], list[Any]] = ([], [])
        theirs = {"tf": tf, "np": np, "os": os, "Dataset": tf.data.Dataset, "dtypes": tf.dtypes}
        self._theirs: dict[str, Any] = theirs | {"print": self._printer(0)}
        self._ours: dict[str, Any] = NAMESPACE | {"os": os, "print": self._printer(1)}
        self._unknown: dict[str, str] = {}
        self._random: set[str] = set()
        self.compared = 0
        self.skipped: set[str] = set()
        self.differences: dict[str, str] = {}

    def _printer(self, side: int) -> Callable[..., None]:
        return lambda *values: self._printed[side].append([shared(value) for value in values])

    def run(self, statement: ast.stmt) -> None:
        """Run a statement in both libraries, or skip it and all that depend on it."""
        read, stored = _names(statement)
        causes = {self._unknown[name] for name in read if name in self._unknown}
        if names_of_tensorflow(statement) & ONLY_THERE:
            _execute(statement, self._theirs)
            return
        try:
            ours = translated(statement, NOT_OFFERED)
        except UntranslatableError as error:
            causes.add(str(error))
        if causes:
            self.skipped |= causes
            self._unknown |= dict.fromkeys(stored, min(causes))
            return
        for name in stored:
            self._unknown.pop(name, None)
        if read & self._random or _methods(statement) & RANDOM:
            self._random |= stored
        self._compare(statement, ours, stored)

    def _compare(self, statement: ast.stmt, ours: ast.stmt, stored: set[str]) -> None:
        self.compared += 1
        state = np.random.get_state()
        there = _execute(statement, self._theirs)
        np.random.set_state(state)
        here = _execute(ours, self._ours)
        pairs: list[tuple[str, Any, Any]] = [
            ("value", there, here),
            ("print", list(self._printed[0]), list(self._printed[1])),
        ]
        for name in sorted(stored - self._random):
            values = self._theirs.get(name), self._ours.get(name)
            if any(map(is_dataset, values)):
                pairs.append((name, shared(values[0]), shared(values[1])))
            if all(map(is_dataset, values)):
                pairs.append((f"cardinality of {name}", cardinality(values[0]), cardinality(values[1])))
        self._printed[0].clear()
        self._printed[1].clear()
        for what, other, own in pairs:
            if other != own:
                code = ast.unparse(statement)
                digest = hashlib.sha256(f"{what} of {code}".encode()).hexdigest()[:8]
                self.differences[digest] = f"{what} of\n    {code}\n  is {own} here,\n  {other} there"


@dataclass
class Failed:
    """A statement raised an error; the errors of the libraries are of different classes."""

    error: str = field(compare=False)


def _execute(statement: ast.stmt, namespace: dict[str, Any]) -> Any:
    """Return the value of an expression, or how the statement failed; None for other statements."""
    try:
        if isinstance(statement, ast.Expr):
            return shared(eval(compile(ast.Expression(statement.value), "<docstring>", "eval"), namespace))
        exec(compile(ast.Module([statement], []), "<docstring>", "exec"), namespace)
    except Exception as error:
        return Failed(repr(error))
    return None


def _names(statement: ast.stmt) -> tuple[set[str], set[str]]:
    """Return the names that a statement reads, and those that it stores."""
    names = [node for node in ast.walk(statement) if isinstance(node, ast.Name)]
    stored = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    if isinstance(statement, ast.FunctionDef):
        stored.add(statement.name)
    return {node.id for node in names if isinstance(node.ctx, ast.Load)}, stored


def _methods(statement: ast.stmt) -> set[str]:
    return {node.attr for node in ast.walk(statement) if isinstance(node, ast.Attribute)}


def compare() -> dict[str, Found]:
    """Return what became of each docstring."""
    found = {}
    for name, examples in docstrings():
        comparison = Comparison()
        for example in examples:
            for statement in ast.parse(example.source.replace("/tmp/", f"{tempfile.gettempdir()}/")).body:
                comparison.run(statement)
        found[name] = Found(comparison.compared, sorted(comparison.skipped), comparison.differences)
    return found


def record_of(found: dict[str, Found]) -> dict[str, Any]:
    """Return what the recorded file contains."""
    return {
        "tensorflow": tf.__version__,
        "compared": {name: one.compared for name, one in found.items() if one.compared},
        "skipped": {name: one.skipped for name, one in found.items() if one.skipped},
        "different": {name: sorted(one.differences) for name, one in found.items() if one.differences},
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="differential.docstrings", description=__doc__)
    parser.add_argument("--record", type=Path, help="file for what was found, instead of a comparison with it")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tempfile.tempdir = folder
        found = compare()
    record = record_of(found)
    if arguments.record:
        arguments.record.write_text(json.dumps(record, indent=1) + "\n")
        return
    recorded = json.loads(RECORD.read_text())
    for name, one in found.items():
        for digest in one.differences.keys() - set(recorded["different"].get(name, [])):
            print(f"{name}: {one.differences[digest]}")
    for part in ("skipped", "different"):
        for name in record[part].keys() | recorded[part].keys():
            now, before = record[part].get(name, []), recorded[part].get(name, [])
            if now != before:
                print(f"{name}: {part} {now}, recorded {before}")
    print(f"{sum(record['compared'].values())} statements of {len(found)} docstrings compared")
    sys.exit(any(record[part] != recorded[part] for part in ("skipped", "different")))


if __name__ == "__main__":
    main()
