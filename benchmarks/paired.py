"""Compare two checkouts of this package: the same scenario in alternating processes.

    python -m benchmarks.paired OLD NEW --scenarios p1 p2 p3 --runs 7 --out result.json

Both checkouts need their native core built (``python setup.py build_ext --inplace``). Every process reads the whole
workload once to warm up, and ``PASSES`` times more, which count. The quoted figure is the median over runs of NEW
divided by OLD, run by run.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from benchmarks.dataset import default_root
from benchmarks.machine import circumstances

PASSES: Final = 3

_PROGRAM: Final = """
import importlib, json, sys, time
from pathlib import Path
from benchmarks.scenario import Scenario
name, root, passes = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
scenario: Scenario = getattr(importlib.import_module(f"benchmarks.scenarios.{name}"), name.upper())
workload = scenario.work(scenario.rows, root)
contender = importlib.import_module(f"benchmarks.compare.{name}_aiostream_data")
seconds = []
for _ in range(passes + 1):
    wall, cpu = time.perf_counter(), time.process_time()
    for batch in contender.batches(workload, None):
        pass
    seconds.append((time.perf_counter() - wall, time.process_time() - cpu))
print(json.dumps((scenario.rows, seconds[1:])))
"""


def run(checkout: Path, scenario: str, root: Path) -> dict[str, float]:
    """Return rows per second, and CPU microseconds per row, of one process: medians over its passes."""
    command = [sys.executable, "-c", _PROGRAM, scenario, str(root), str(PASSES)]
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    found = subprocess.run(command, cwd=checkout, env=environment, check=True, capture_output=True, text=True)
    rows, seconds = json.loads(found.stdout.splitlines()[-1])
    walls, cpus = zip(*seconds, strict=True)
    return {"rows_per_s": rows / statistics.median(walls), "cpu_us": statistics.median(cpus) / rows * 1e6}


def compare(old: Path, new: Path, scenario: str, runs: int, root: Path) -> dict[str, Any]:
    """Return every run of both checkouts, and the medians of their ratios."""
    serving = getattr(importlib.import_module(f"benchmarks.scenarios.{scenario}"), scenario.upper()).serving
    pairs = []
    with serving(root):
        for number in range(runs):
            order = (("old", old), ("new", new)) if number % 2 == 0 else (("new", new), ("old", old))
            pairs.append({name: run(checkout, scenario, root) for name, checkout in order})
    ratios = {
        figure: [pair["new"][figure] / pair["old"][figure] for pair in pairs] for figure in ("rows_per_s", "cpu_us")
    }
    medians = {figure: statistics.median(values) for figure, values in ratios.items()}
    return {"scenario": scenario, "pairs": pairs, "ratios": ratios, "median_ratio": medians}


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--scenarios", nargs="+", default=["p1", "p2"])
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    root = default_root()
    results = []
    for scenario in given.scenarios:
        results.append(compare(given.old.resolve(), given.new.resolve(), scenario, given.runs, root))
        print(scenario, results[-1]["median_ratio"], flush=True)
    if given.out is not None:
        commits = {name: _commit(path) for name, path in (("old", given.old), ("new", given.new))}
        document = {"machine": circumstances(), "commits": commits, "results": results}
        given.out.write_text(json.dumps(document, indent=1) + "\n")


def _commit(checkout: Path) -> str:
    command = ["git", "-C", str(checkout), "rev-parse", "HEAD"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    main()
