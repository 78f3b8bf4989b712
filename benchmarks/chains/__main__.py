"""Compare the chains: ``python -m benchmarks.chains --runs 5 --out benchmarks/results/chains.json``.

Each library runs all chains that it has in a process of its own, in turns. Values of the first elements must be equal.
The table has medians over the runs, in thousand rows per second, with the least and the most.
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

from benchmarks.chains.contenders import ANY_ORDER, CONTENDERS, OURS, PACKAGES
from benchmarks.chains.files import write
from benchmarks.machine import circumstances, versions_of

ROOT: Final = Path(__file__).resolve().parent.parent.parent


def compare(runs: int, names: list[str], only: list[str]) -> dict[str, Any]:
    """Run the libraries in turns, and return what the report needs."""
    found: dict[str, dict[str, list[dict[str, float]]]] = {}
    libraries = [library for library in CONTENDERS if library in (only or CONTENDERS)]
    with tempfile.TemporaryDirectory(prefix="chains-") as folder:
        write(Path(folder))
        for run in range(runs):
            turn = run % len(libraries)
            for library in libraries[turn:] + libraries[:turn]:
                for line in _lines(library, folder, names):
                    found.setdefault(line.pop("chain"), {}).setdefault(library, []).append(line)
    return {
        "circumstances": circumstances(),
        "versions": versions_of(PACKAGES),
        "runs": runs,
        "chains": found,
    }


def _lines(library: str, folder: str, names: list[str]) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "benchmarks.chains.worker", library, folder, *names]
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "HF_HOME": f"{folder}/hf"}
    done = subprocess.run(command, cwd=ROOT, env=os.environ | quiet, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def wrong(report: dict[str, Any]) -> list[str]:
    """Return the chains and libraries whose first elements have other values than those of this package."""
    found = []
    for name, of_libraries in report["chains"].items():
        if name not in ANY_ORDER and OURS in of_libraries:
            right = of_libraries[OURS][0].get("checksum")
            found += [
                f"{library}: {name}"
                for library, runs in of_libraries.items()
                if any(run.get("checksum") != right for run in runs)
            ]
    return found


def table(report: dict[str, Any]) -> str:
    """Return the report as a Markdown table, with the factor by which this package is faster than the next best."""
    libraries = [name for name in CONTENDERS if any(name in chain for chain in report["chains"].values())]
    heads = " | ".join(f"{library}, k rows/s" for library in libraries)
    lines = [f"| chain | {heads} | factor | first element, ms |", "|---" * (len(libraries) + 3) + "|"]
    for name, of_libraries in report["chains"].items():
        rates = {library: _rates(of_libraries[library]) for library in libraries if library in of_libraries}
        shown = " | ".join(_shown(rates[library]) if library in rates else "" for library in libraries)
        others = [median(rates[library]) for library in rates if library != OURS]
        factor = f"{median(rates[OURS]) / max(others):.1f}" if others and OURS in rates else ""
        firsts = " / ".join(_first_ms(of_libraries[library]) for library in libraries if library in of_libraries)
        lines.append(f"| {name} | {shown} | {factor} | {firsts} |")
    return "\n".join(lines)


def _first_ms(runs: list[dict[str, float]]) -> str:
    return f"{1e3 * median(run['first_s'] for run in runs):.1f}"


def _rates(runs: list[dict[str, float]]) -> list[float]:
    return [run["rows"] / run["seconds"] / 1e3 for run in runs]


def _shown(rates: list[float]) -> str:
    return f"{median(rates):,.0f} ({min(rates):,.0f} to {max(rates):,.0f})"


def main() -> None:
    """Run the comparison, write the report, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="chains to run; all of them by default")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=list(CONTENDERS), default=[], help="libraries to run")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path, help="print the table of a report, and run nothing")
    options = parser.parse_args()
    if options.table:
        print(table(json.loads(options.table.read_text())))
        return
    report = compare(options.runs, options.names, options.only)
    if options.out:
        options.out.write_text(json.dumps(report, indent=1) + "\n")
    print(table(report))
    if differing := wrong(report):
        sys.exit("other elements than aiostream_data: " + "; ".join(differing))


if __name__ == "__main__":
    main()
