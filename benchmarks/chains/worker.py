"""Run chains of one library in this process: ``python -m benchmarks.chains.worker tf.data FOLDER [NAME ...]``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from math import inf
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.chains.contenders import CONTENDERS, READ
from benchmarks.chains.elements import checksum, rows_of

CHECKED = 20
"""First elements whose values are compared between the libraries."""

WARM_S, LIMIT_S = 1.0, 2.0
"""Most seconds of the pass that warms up, and of the measured pass: slow libraries do not end their passes."""


WHOLE = "cache, batch"
"""Chain whose pass that warms up is always complete, because it fills the cache."""


def measure(make: Callable[[], Iterable[Any]], warm_s: float = WARM_S) -> dict[str, float]:
    """Return rows, the seconds of a pass, and the seconds to its first element. A pass before it warms up."""
    dataset = make()
    checked = _warmed(dataset, warm_s)
    began = perf_counter()
    iterator = iter(dataset)
    rows = rows_of(next(iterator))
    first = now = perf_counter() - began
    for element in iterator:
        rows += rows_of(element)
        now = perf_counter() - began
        if now > LIMIT_S:
            break
    return {"rows": rows, "seconds": now, "first_s": first, "checksum": checked}


def _warmed(dataset: Iterable[Any], warm_s: float) -> int:
    """Read a dataset, and return the checksum of its first elements."""
    began, found = perf_counter(), 0
    for number, element in enumerate(dataset):
        if number < CHECKED:
            found = checksum(element, found)
        elif perf_counter() - began > warm_s:
            break
    return found


def main() -> None:
    """Print one line of JSON for each chain that the library has."""
    chains: dict[str, Callable[[], Iterable[Any]]] = {}
    for module in CONTENDERS[sys.argv[1]]:
        chains |= import_module(f"benchmarks.chains.{module}").chains(Path(sys.argv[2]))
    for name in sys.argv[3:] or chains:
        if name in chains:
            warm_s = inf if name == WHOLE else WARM_S
            found = measure(chains[name], warm_s)
            print(json.dumps({"chain": name, **found, "rows": READ.get(name, found["rows"])}), flush=True)


if __name__ == "__main__":
    main()
