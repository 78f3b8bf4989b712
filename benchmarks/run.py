"""Run the scenarios: every contender in a process of its own per repetition, taking turns.

``python -m benchmarks.run [p1 p2] [--only NAME ...] [--rows N] [--repetitions 5] [--out FOLDER]``
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from benchmarks.dataset import default_root
from benchmarks.machine import circumstances
from benchmarks.report import RESULTS, table
from benchmarks.scenario import Contender, Scenario
from benchmarks.scenarios import SCENARIOS

TIMEOUT_S = 600.0


def run_scenario(scenario: Scenario, contenders: list[Contender], arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the raw result of one scenario: A B C, A B C, ...; the first round only warms up. The files are there."""
    rows = arguments.rows or scenario.rows
    result: dict[str, Any] = {
        "scenario": scenario.key,
        "title": scenario.title,
        "unit": scenario.unit,
        "rows": rows,
        "repetitions": arguments.repetitions,
        "circumstances": circumstances(),
        "contenders": {each.name: {"how": each.how, "versions": {}, "error": None, "runs": []} for each in contenders},
    }
    for repetition in range(arguments.repetitions + 1):
        for contender in contenders:
            entry = result["contenders"][contender.name]
            if entry["error"] is None:
                _add(entry, _one_run(scenario, contender, rows, arguments.data), keep=repetition > 0)
                _say(scenario, contender, entry, repetition)
    return result


def _one_run(scenario: Scenario, contender: Contender, rows: int, data: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.worker", scenario.key, contender.name]
    command += ["--rows", str(rows), "--data", str(data)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return {"error": f"not finished after {TIMEOUT_S:g} s"}
    if done.returncode != 0:
        return {"error": f"failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}"}
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return measured


def _add(entry: dict[str, Any], measured: dict[str, Any], keep: bool) -> None:
    entry["error"] = measured.pop("error", None)
    if entry["error"] is None:
        entry["versions"] = measured.pop("versions")
        if keep:
            entry["runs"].append(measured)


def _say(scenario: Scenario, contender: Contender, entry: dict[str, Any], repetition: int) -> None:
    last = entry["error"] or (f"{entry['runs'][-1]['wall_s']:.3f} s" if entry["runs"] else "warmed up")
    print(f"{scenario.key} round {repetition} {contender.name}: {last}", file=sys.stderr, flush=True)


def main() -> None:
    """Run what the command line asks for, write the raw results, print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    near = sorted(key for key, scenario in SCENARIOS.items() if scenario.serving is nullcontext)
    parser.add_argument("scenarios", nargs="*", default=near, help="all that need no server when not given")
    parser.add_argument("--only", nargs="*", default=[], help="names of contenders; all when not given")
    parser.add_argument("--rows", type=int, help="another size than the scenario's own, to try things out")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--data", type=Path, default=default_root(), help="where generated files are kept")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for key in arguments.scenarios:
        scenario = SCENARIOS[key]
        contenders = [each for each in scenario.contenders if not arguments.only or each.name in arguments.only]
        scenario.work(arguments.rows or scenario.rows, arguments.data)  # writes the files, before they are served
        with scenario.serving(arguments.data):
            result = run_scenario(scenario, contenders, arguments)
        (arguments.out / f"{key}.json").write_text(json.dumps(result, indent=1) + "\n")
        print(table(result))


if __name__ == "__main__":
    main()
