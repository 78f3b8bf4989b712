"""Turn raw results into tables: ``python -m benchmarks.report [results/p1.json ...]``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.pipeline.cloud_table import cloud_tables
from benchmarks.pipeline.dataset_table import all_tables
from benchmarks.scenario import OURS

RESULTS = Path(__file__).parent / "results"
HEADER = (
    "who",
    "{unit} (median)",
    "min to max",
    "ours is",
    "CPU s per million",
    "{unit} and core",
    "first batch ms",
    "peak RSS MiB",
    "how",
)


def table(result: dict[str, Any]) -> str:
    """Return one scenario as a Markdown table, ours first, with the circumstances below it."""
    contenders: dict[str, dict[str, Any]] = result["contenders"]
    our_median = _median_wall(contenders.get(OURS, {"runs": []}))
    rows = [tuple(cell.format(unit=result["unit"]) for cell in HEADER)]
    rows += [_row(name, entry, result["rows"], our_median) for name, entry in contenders.items()]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines.insert(1, "|" + "---|" * len(HEADER))
    return "\n".join([f"### {result['scenario'].upper()}: {result['title']}", "", *lines, "", _closing(result), ""])


def _row(name: str, entry: dict[str, Any], rows: int, our_median: float | None) -> tuple[str, ...]:
    runs = entry["runs"]
    if not runs:
        return (name, entry["error"] or "not run", "", "", "", "", "", "", entry["how"])
    walls = sorted(run["wall_s"] for run in runs)
    cpu_s = median(run["cpu_s"] for run in runs)
    ratio = "" if our_median is None or name == OURS else f"{median(walls) / our_median:.2f}x"
    versions = ", ".join(f"{package} {version}" for package, version in entry["versions"].items())
    return (
        name,
        f"{rows / median(walls):,.0f}",
        f"{rows / walls[-1]:,.0f} to {rows / walls[0]:,.0f}",
        ratio,
        f"{cpu_s * 1e6 / rows:.2f}",
        f"{rows / cpu_s:,.0f}",
        _first_batch_ms(runs),
        f"{max(run['peak_rss_mib'] for run in runs):,}",
        f"{entry['how']} ({versions})" if versions else entry["how"],
    )


def _first_batch_ms(runs: list[dict[str, Any]]) -> str:
    """Return the median as text; older results do not have it."""
    return f"{median(run['first_batch_s'] for run in runs) * 1e3:.0f}" if "first_batch_s" in runs[0] else ""


def _median_wall(entry: dict[str, Any]) -> float | None:
    walls = [run["wall_s"] for run in entry["runs"]]
    return median(walls) if walls else None


def _closing(result: dict[str, Any]) -> str:
    at = result["circumstances"]
    changed = " with uncommitted changes" if at["uncommitted_changes"] else ""
    return (
        f"{result['rows']:,} rows, {result['repetitions']} repetitions after a warm-up, taking turns; {at['date']}, "
        f"commit {at['commit'][:12]}{changed}; {at['cpu_model']}, CPUs {at['cpus']}, {at['memory_gib']} GiB; "
        f"Python {at['python']}; load average at the start {at['load_average'][0]}."
    )


def main() -> None:
    """Print the tables of the files named, or of all results."""
    paths = [Path(name) for name in sys.argv[1:]] or sorted(RESULTS.glob("*.json"))
    for path in paths:
        result = json.loads(path.read_text())
        if result.get("scenario") == "p4d":
            print(all_tables(result))
        elif "cells" in result:
            print(cloud_tables(result))
        elif "contenders" in result:
            print(table(result))
        else:
            print(f"### {path.stem}: see {path}\n")


if __name__ == "__main__":
    main()
