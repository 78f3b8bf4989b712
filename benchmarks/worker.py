"""Measure one contender once, in this very process, and print what was measured as one line of JSON.

``python -m benchmarks.worker p1 "tf.data" --rows 1000000``. The warm-up reads a small part, and what it
gave is held against what is expected, value by value, before anything is timed. Importing and warming
up are not timed; building the pipeline, one whole pass, and shutting it down are.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.dataset import default_root, example_files
from benchmarks.machine import versions_of
from benchmarks.scenarios import SCENARIOS, Contender, Scenario
from benchmarks.workload import Workload, expected_batches

WARM_UP_FILES = 2
WARM_UP_ROWS = 20_000


def measure(scenario: Scenario, contender: Contender, workload: Workload) -> dict[str, Any]:
    """Return wall and CPU seconds of one pass, the latter with all threads and child processes.

    Raises:
        ImportError: The contender is not installed.
        SystemExit: Its output is wrong.
    """
    module = importlib.import_module(f"benchmarks.compare.{contender.module}")

    def batches(part: Workload) -> Iterator[Any]:
        made: Iterator[Any] = module.batches(part, contender.variant)
        return made

    small = workload.part(WARM_UP_FILES, WARM_UP_ROWS)
    for tally in (scenario.check, scenario.tally):
        _require(tally(batches(small)), tally(expected_batches(small, scenario.key)), contender)
    expected = scenario.tally(expected_batches(workload, scenario.key))
    cpu, wall = _cpu_s(), perf_counter()
    seen = scenario.tally(batches(workload))
    wall_s, cpu_s = perf_counter() - wall, _cpu_s() - cpu
    _require(seen, expected, contender)
    return {
        "wall_s": round(wall_s, 5),
        "cpu_s": round(cpu_s, 5),
        "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "versions": versions_of(contender.packages),
    }


def _require(seen: object, expected: object, contender: Contender) -> None:
    if seen != expected:
        sys.exit(f"{contender.name} gave {seen}, expected {expected}")


def _cpu_s() -> float:
    """Return CPU seconds of this process and of the children it has waited for."""
    usage = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(part.ru_utime + part.ru_stime for part in usage)


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenario", choices=sorted(SCENARIOS))
    parser.add_argument("contender")
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--data", type=Path, default=default_root())
    arguments = parser.parse_args()
    scenario = SCENARIOS[arguments.scenario]
    contender = next(each for each in scenario.contenders if each.name == arguments.contender)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        result = measure(scenario, contender, workload_of(scenario, arguments.rows, arguments.data))
    except ImportError as error:
        result = {"error": f"not installed: {error}"}
    print(json.dumps(result), flush=True)


def workload_of(scenario: Scenario, rows: int, data: Path) -> Workload:
    """Return the scenario's work, its files written if need be."""
    return example_files(data, rows) if scenario.key == "p1" else Workload(rows=rows)


if __name__ == "__main__":
    main()
