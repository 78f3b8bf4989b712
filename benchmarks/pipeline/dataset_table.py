"""Tables of the benchmark of datasets: one cell as text, the whole result and its summary as Markdown.

``python -m benchmarks.pipeline.dataset_table benchmarks/results/p4d.json`` prints the section of the README.
``python -m benchmarks.report benchmarks/results/p4d.json`` prints the whole result.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.pipeline.dataset_cells import CLIENT, CONTENDERS, LOADER, LOCAL, OURS, Contender
from benchmarks.pipeline.dataset_objects import FIXED, GZIP

BY_NAME = {each.name: each for each in CONTENDERS}
OUR_NAMES = [each.name for each in CONTENDERS if each.group == OURS]
RATE = "objects_per_s"
DEFAULTS = "defaults"

README_BEGIN = """### Object stores

The table shows the throughput of datasets with default arguments, in MB/s. Clients and other loaders run with 1 to 64
concurrent requests. The table shows their fastest run (`p4d.json`). An nginx server on the same machine sends the
objects from its memory, over plain HTTP.
"""

README_END = """
- The clients return the bytes of an object. The datasets of records also split them into records of 64 KiB, and
  `from_tfrecord` checks the CRC of every record.
- Objects with gzip contain twice their size. Their throughput counts compressed bytes.
- tf.data reads copies of the objects from local memory, as files or as TFRecord files.
"""


def yardsticks(layout: str) -> list[Contender]:
    """Return the clients and loaders that a dataset of this layout is compared with.

    Decompression has a speed of its own, so gzip is compared only with contenders that decompress.
    """
    is_gzip = layout == GZIP
    return [each for each in CONTENDERS if each.group in (CLIENT, LOADER) and (each.layout == GZIP) == is_gzip]


def best_of(cells: Iterable[dict[str, Any]], contenders: Sequence[Contender]) -> tuple[str, dict[str, Any]]:
    """Return name and summary of the fastest of some contenders in some cells; ("", {}) if none was measured."""
    measured = [
        (each.name, cell["contenders"][each.name])
        for cell in cells
        for each in contenders
        if RATE in cell["contenders"].get(each.name, {})
    ]
    return max(measured, key=lambda pair: float(pair[1][RATE]), default=("", {}))


def ratio(cell: dict[str, Any], name: str, beside: Iterable[dict[str, Any]] = ()) -> float | None:
    """Return the objects per second of a dataset, divided by those of the fastest client or loader.

    Args:
        beside: Cells whose clients and loaders it is compared with; by default the cell itself.
    """
    ours = cell["contenders"].get(name, {})
    _, fastest = best_of(beside or [cell], yardsticks(BY_NAME[name].layout))
    return float(ours[RATE]) / float(fastest[RATE]) if RATE in ours and fastest else None


def cell_table(cell: dict[str, Any]) -> str:
    """Return one cell as text, a line for each contender."""
    lines = [cell["cell"]]
    for name, each in cell["contenders"].items():
        if RATE not in each:
            lines.append(f"  {name:26} {each['error']}")
            continue
        low, high = each["objects_per_s_from_to"]
        share = ratio(cell, name) if name in OUR_NAMES else None
        fastest, _ = best_of([cell], yardsticks(BY_NAME[name].layout))
        compared = "" if share is None else f"{share:7.2f} of {fastest}{_start(each, share)}"
        lines.append(
            f"  {name:26}{each['objects_per_s']:9.0f} objects/s ({low:.0f} to {high:.0f}){each['mb_per_s']:8.0f} MB/s"
            f"{each['cpu_s_per_gb']:9.2f} CPU s/GB{each['server_cores']:6.2f} server cores{compared}"
        )
    return "\n".join(lines)


def _start(each: dict[str, Any], share: float) -> str:
    with_start = share * each["objects_per_s_with_start"] / each[RATE]
    return f" ({with_start:.2f} with the start); first element after {each['first_s'] * 1e3:.0f} ms"


def all_tables(result: dict[str, Any]) -> str:
    """Return the whole result as Markdown: a table of ratios, and one table of figures for each group of cells."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for cell in result["cells"]:
        groups.setdefault(cell["cell"].rpartition("/")[0], []).append(cell)
    tables = [_ratios(groups), *(_figures(name, cells) for name, cells in groups.items()), _closing(result)]
    return "\n".join(tables)


def _ratios(groups: dict[str, list[dict[str, Any]]]) -> str:
    columns = list(dict.fromkeys(_column(cell) for cells in groups.values() for cell in cells))
    lines = ["### P4d: objects/s of a Dataset, divided by those of the fastest client", ""]
    lines += _head("objects", "source", *columns)
    for group, cells in groups.items():
        by_column = {_column(cell): cell for cell in cells}
        for name in OUR_NAMES:
            shares = [_ratio_of(by_column, column, name) for column in columns]
            lines.append(_line([group, name, *shares]))
    return "\n".join([*lines, ""])


def _ratio_of(group: dict[str, dict[str, Any]], column: str, name: str) -> str:
    """Return a ratio as text.

    A dataset without arguments is compared with the clients of all cells of its group. One that has no ``cycle_length``
    is measured without arguments only, and also compared with the clients of each cell.
    """
    beside = list(group.values()) if column == DEFAULTS else [group[column]] if column in group else []
    ours = group.get(column if BY_NAME[name].has_cycle else DEFAULTS)
    share = ratio(ours, name, beside) if ours is not None and beside else None
    return "-" if share is None else f"{share:.2f}"


def _figures(group: str, cells: list[dict[str, Any]]) -> str:
    names = [each.name for each in CONTENDERS if any(each.name in cell["contenders"] for cell in cells)]
    lines = [f"### P4d: {group}", "", *_head("contender", *map(_column, cells))]
    lines += [_line([name, *(_figure(cell["contenders"].get(name, {})) for cell in cells)]) for name in names]
    return "\n".join([*lines, ""])


def _figure(each: dict[str, Any]) -> str:
    return f"{each[RATE]:,.0f} ({each['cpu_s_per_gb']:.2f})" if RATE in each else "-"


def _closing(result: dict[str, Any]) -> str:
    at = result["circumstances"]
    commits = ", ".join(dict.fromkeys(cell["commit"][:12] for cell in result["cells"]))
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    return (
        f"Objects/s (CPU s/GB). Server: {result['server']}. {at['date']}, commit {commits}; {at['cpu_model']}, CPUs "
        f"{at['cpus']}; Python {at['python']}; {versions}.\n"
    )


def readme_section(result: dict[str, Any]) -> str:
    """Return the summary as Markdown: MB/s of a Dataset without arguments, over plain HTTP."""
    lines = _head(
        "objects", "latency", "`from_files`", "`from_fixed_length`", "`from_tfrecord`", "fastest client",
        "torch DataLoader", "tf.data, local copies", "`from_tfrecord`, gzip", "obstore + zlib",
    )  # fmt: skip
    loaders, local = ([each for each in CONTENDERS if each.group == group] for group in (LOADER, LOCAL))
    for cell in result["cells"]:
        if cell["tls"] or cell["at_once"]:
            continue
        group = [each for each in result["cells"] if each["cell"].rpartition("/")[0] == cell["cell"].rpartition("/")[0]]
        same_size = [each for each in result["cells"] if each["size"] == cell["size"]]
        files, fixed, tfrecord, gzip = (cell["contenders"].get(name, {}) for name in OUR_NAMES)
        name, fastest = best_of(group, [each for each in yardsticks(FIXED) if each.group == CLIENT])
        torch_name, torch = best_of(group, loaders)
        _, tensorflow = best_of(same_size, [each for each in local if each.layout != GZIP])
        figures = [files, fixed, tfrecord, fastest, torch, tensorflow, gzip, best_of(group, yardsticks(GZIP))[1]]
        notes = ["", "", "", name.partition(",")[0], torch_name.partition(", ")[2], "", "", ""]
        shown = [_rate(each, note) for each, note in zip(figures, notes, strict=True)]
        lines.append(_line([f"{cell['size'][:-3]} {cell['size'][-3:]}", f"{cell['latency_ms']} ms", *shown]))
    return "\n".join([README_BEGIN, *lines, README_END])


def _rate(each: dict[str, Any], note: str) -> str:
    if RATE not in each:
        return "-"
    rate = f"{each['mb_per_s']:,.0f}" if each["mb_per_s"] >= 10 else f"{each['mb_per_s']:.1f}"
    return f"{rate} ({note})" if note else rate


def _column(cell: dict[str, Any]) -> str:
    return f"c={cell['at_once']}" if cell["at_once"] else DEFAULTS


def _head(*names: str) -> list[str]:
    return [_line(names), "|" + "---|" * len(names)]


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    print(readme_section(json.loads(Path(sys.argv[1]).read_text())))
