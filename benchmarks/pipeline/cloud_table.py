"""Turn the raw result of P4 into tables: one for a cell, and one for each kind of requests with a column for a cell."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

OURS = ("aiostream_data s3", "aiostream_data http")
YARDSTICK = "raw sockets"
"""What is no client that anybody uses: it stands in the tables, and nobody is compared with it."""

SERVER_BOUND_CORES = 0.9


def best_other(cell: dict[str, Any]) -> float:
    """Return the MB/s of the quickest client of a cell that is not ours."""
    rates = [each["mb_per_s"] for name, each in _clients(cell) if name not in OURS]
    return max(rates, default=0.0)


def is_server_bound(cell: dict[str, Any]) -> bool:
    """Return whether the server had no more to give to the quickest client, ours included."""
    quickest = max((each for _, each in _clients(cell)), key=lambda each: float(each["mb_per_s"]), default=None)
    return quickest is not None and quickest["server_cores"] >= SERVER_BOUND_CORES


def _clients(cell: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(name, each) for name, each in cell["clients"].items() if name != YARDSTICK and "mb_per_s" in each]


def cell_table(cell: dict[str, Any]) -> str:
    """Return one cell as text, a line for each client."""
    best = best_other(cell)
    lines = [f"{cell['cell']}{' (server-bound)' if is_server_bound(cell) else ''}"]
    for name, each in cell["clients"].items():
        if "mb_per_s" not in each:
            lines.append(f"  {name:20} {each['error']}")
            continue
        low, high = each["mb_per_s_from_to"]
        lines.append(
            f"  {name:20}{each['mb_per_s']:8.0f} MB/s ({low:.0f} to {high:.0f}){each['requests_per_s']:9.0f} requests/s"
            f"{each['cpu_s_per_gb']:8.2f} CPU s/GB{each['mb_per_s'] / best if best else 0.0:6.2f} of the best other"
            f"{each['server_cores']:6.2f} server cores"
        )
    return "\n".join(lines)


def cloud_tables(result: dict[str, Any]) -> str:
    """Return the whole result as Markdown: MB/s, CPU seconds per GB, and requests per second of small ones."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for cell in result["cells"]:
        heading = f"{cell['kind']}, {'TLS' if cell['tls'] else 'plain HTTP'}, {cell['latency_ms']} ms to first byte"
        rows.setdefault(heading, []).append(cell)
    at = result["circumstances"]
    closing = (
        f"MB/s (client CPU s/GB) [requests/s of small objects]; * server-bound. Server: {result['server']}. "
        f"{at['date']}, commit {at['commit'][:12]}; {at['cpu_model']}, CPUs {at['cpus']}; Python {at['python']}."
    )
    return "\n".join([*(_table(heading, cells) for heading, cells in rows.items()), closing, ""])


def _table(heading: str, cells: list[dict[str, Any]]) -> str:
    names = cells[0]["clients"]
    top = ["client", *(f"c={cell['at_once']}{'*' if is_server_bound(cell) else ''}" for cell in cells)]
    lines = [_line(top), "|" + "---|" * len(top)]
    lines += [_line([name, *(_figure(cell, name) for cell in cells)]) for name in names]
    lines += [_line([f"{name}, of the best other", *(_share(cell, name) for cell in cells)]) for name in OURS]
    return "\n".join([f"### P4: {heading}", "", *lines, ""])


def _share(cell: dict[str, Any], name: str) -> str:
    rate, best = cell["clients"].get(name, {}).get("mb_per_s"), best_other(cell)
    return f"{rate / best:.2f}" if rate is not None and best else "-"


def _figure(cell: dict[str, Any], name: str) -> str:
    each = cell["clients"].get(name, {})
    if "mb_per_s" not in each:
        return "-"
    requests = f" [{each['requests_per_s']:,.0f}]" if cell["kind"].startswith("256 KiB") else ""
    return f"{each['mb_per_s']:,.0f} ({each['cpu_s_per_gb']:.2f}){requests}"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
