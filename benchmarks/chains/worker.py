"""Run chains of one library in a process of its own: ``python -m benchmarks.chains.worker ours FOLDER [NAME ...]``."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Any


def measure(library: Any, make: Any) -> dict[str, float]:
    """Return rows, the seconds of a pass, and the seconds to its first element. A pass before it warms up."""
    dataset = make()
    rows = sum(map(library.rows_of, dataset))
    began = perf_counter()
    iterator = iter(dataset)
    next(iterator)
    first = perf_counter() - began
    for _ in iterator:
        pass
    return {"rows": rows, "seconds": perf_counter() - began, "first_s": first}


def main() -> None:
    """Print one line of JSON for each chain."""
    library = import_module(f"benchmarks.chains.{sys.argv[1]}")
    chains = library.chains(Path(sys.argv[2]))
    for name in sys.argv[3:] or chains:
        print(json.dumps({"chain": name, **measure(library, chains[name])}), flush=True)


if __name__ == "__main__":
    main()
