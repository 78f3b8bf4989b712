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
from itertools import chain, islice
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.dataset import default_root
from benchmarks.machine import cpu_s, versions_of
from benchmarks.scenario import Contender, Scenario
from benchmarks.scenarios import SCENARIOS
from benchmarks.workload import Workload


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

    small = workload.part(scenario.warm_up_rows)
    for tally in (scenario.check, scenario.tally) if contender.same_values else (scenario.tally,):
        seen = tally(batches(small))
        if not contender.is_part:
            _require(seen, tally(scenario.expected(small)), contender)
    expected = scenario.expected_tally(workload)
    cpu, wall = cpu_s(), perf_counter()
    passing = batches(workload)
    first = list(islice(passing, 1))
    first_s = perf_counter() - wall
    if scenario.from_first_batch:
        cpu, wall = cpu_s(), perf_counter()
    seen = scenario.tally(chain(first, passing))
    wall_s, used_s = perf_counter() - wall, cpu_s() - cpu
    if not contender.is_part:
        _require(seen, expected, contender)
    return {
        "first_batch_s": round(first_s, 5),
        "wall_s": round(wall_s, 5),
        "cpu_s": round(used_s, 5),
        "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "versions": versions_of(contender.packages),
    }


def _require(seen: object, expected: object, contender: Contender) -> None:
    if seen != expected:
        sys.exit(f"{contender.name} gave {seen}, expected {expected}")


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
        result = measure(scenario, contender, scenario.work(arguments.rows, arguments.data))
    except ImportError as error:
        result = {"error": f"not installed: {error}"}
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
