"""Compare the chains: ``python -m benchmarks.chains --runs 5 --out benchmarks/results/chains.json``.

Each library runs all chains in a process of its own, in turns. The table has medians over the runs, in thousand rows
per second, with the least and the most.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.chains.files import write
from benchmarks.machine import circumstances, versions_of

LIBRARIES: Final = ("ours", "theirs")
ROOT: Final = Path(__file__).resolve().parent.parent.parent


def compare(runs: int, names: list[str]) -> dict[str, Any]:
    """Run all libraries in turns, and return what the report needs."""
    found: dict[str, dict[str, list[dict[str, float]]]] = {}
    with tempfile.TemporaryDirectory(prefix="chains-") as folder:
        write(Path(folder))
        for run in range(runs):
            for library in LIBRARIES[:: 1 if run % 2 == 0 else -1]:
                for line in _lines(library, folder, names):
                    found.setdefault(line.pop("chain"), {}).setdefault(library, []).append(line)
    return {
        "circumstances": circumstances(),
        "versions": versions_of(["aiostream-data", "numpy", "tensorflow-cpu"]),
        "runs": runs,
        "chains": found,
    }


def _lines(library: str, folder: str, names: list[str]) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "benchmarks.chains.worker", library, folder, *names]
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def table(report: dict[str, Any]) -> str:
    """Return the report as a Markdown table."""
    lines = [
        "| chain | aiostream_data, k rows/s | tf.data, k rows/s | factor | first element, ms |",
        "|---|---|---|---|---|",
    ]
    for name, of_libraries in report["chains"].items():
        ours, theirs = (_rates(of_libraries[library]) for library in LIBRARIES)
        firsts = [1e3 * median(run["first_s"] for run in of_libraries[library]) for library in LIBRARIES]
        factor = median(ours) / median(theirs)
        lines.append(
            f"| {name} | {_shown(ours)} | {_shown(theirs)} | {factor:.1f} | {firsts[0]:.1f}, tf.data {firsts[1]:.1f} |"
        )
    return "\n".join(lines)


def _rates(runs: list[dict[str, float]]) -> list[float]:
    return [run["rows"] / run["seconds"] / 1e3 for run in runs]


def _shown(rates: list[float]) -> str:
    return f"{median(rates):,.0f} ({min(rates):,.0f} to {max(rates):,.0f})"


def main() -> None:
    """Run the comparison, write the report, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="chains to run; all of them by default")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path, help="print the table of a report, and run nothing")
    options = parser.parse_args()
    if options.table:
        print(table(json.loads(options.table.read_text())))
        return
    report = compare(options.runs, options.names)
    if options.out:
        options.out.write_text(json.dumps(report, indent=1) + "\n")
    print(table(report))


if __name__ == "__main__":
    main()
