"""Commands that read data of any format: ``head``, ``count`` and ``inspect``."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

from aiostream_data.cli.elements import as_json, as_text, schema_of
from aiostream_data.dataset.any_format import FoundFormat, find_format
from aiostream_data.dataset.dataset import Dataset

PROGRESS_S = 1.0
"""Seconds between two messages about the progress."""

_COUNTED = 1024
"""Number of rows that are counted together."""


def add_commands(commands: Any) -> None:
    """Add the commands to the subparsers of the command line."""
    told = {
        "head": (head, "print the first records of a file, folder or pattern"),
        "count": (count, "count the records of a file, folder or pattern"),
        "inspect": (inspect, "say the format, schema, sizes and compression of a file, folder or pattern"),
    }
    for name, (function, help) in told.items():
        command = commands.add_parser(name, help=help)
        command.add_argument("url", help="URL or path of a file or folder, or a pattern in quotes")
        command.add_argument("--json", action="store_true", help="print JSON, for programs")
        command.add_argument(
            "--option", action="append", type=_option, default=[], metavar="NAME=VALUE", help="option of the store"
        )
        command.set_defaults(run=function)
        if name == "head":
            command.add_argument("-n", type=_positive, default=5, metavar="COUNT", help="number of records (5)")


def head(chosen: argparse.Namespace) -> Iterator[str]:
    """Yield the first records."""
    write = as_json if chosen.json else as_text
    with _dataset(chosen).take(chosen.n).open() as loader:
        for element in loader:
            yield write(element)


def count(chosen: argparse.Namespace) -> Iterator[str]:
    """Yield the number of records. Reads all of them, and tells the progress on a terminal."""
    rows, tell = 0, _progress()
    with _counted(_dataset(chosen)).open() as loader:
        for number in loader:
            rows += number
            tell(rows)
    yield json.dumps({"records": rows}) if chosen.json else f"{rows:,} records"


def inspect(chosen: argparse.Namespace) -> Iterator[str]:
    """Yield what is known of the files, and the schema of the first record."""
    options = dict(chosen.option)
    found = find_format(chosen.url, options)
    with found.read_by(Dataset, storage_options=options).take(1).open() as loader:
        schema = [schema_of(element) for element in loader]
    facts = _facts(found) | {"schema": schema[0] if schema else {}}
    if chosen.json:
        yield json.dumps(facts, ensure_ascii=False)
        return
    for name, value in facts.items():
        if name == "schema":
            yield from ["schema:", *(f"  {field or 'record'}: {kind}" for field, kind in value.items())]
        else:
            yield f"{name.replace('_', ' ')}: {value:,}" if isinstance(value, int) else f"{name}: {value}"


def _facts(found: FoundFormat) -> dict[str, Any]:
    """Return the facts about the files. ``skew`` is the size of the largest file, in sizes of the median file."""
    sizes = [size or 0 for size in found.sizes]
    median = int(statistics.median(sizes))
    return {
        "format": found.format.name,
        "call": found.call,
        "compression": found.compression or "none",
        "files": len(sizes),
        "bytes": sum(sizes),
        "smallest_file": min(sizes),
        "median_file": median,
        "largest_file": max(sizes),
        "skew": round(max(sizes) / max(1, median), 2),
    }


def _dataset(chosen: argparse.Namespace) -> Dataset[Any]:
    return Dataset.open_any(chosen.url, storage_options=dict(chosen.option))


def _counted(dataset: Dataset[Any]) -> Dataset[int]:
    """Return the numbers of rows of consecutive groups. Rows of any shape are counted, so they are not batched."""
    return dataset.map(_one).batch(_COUNTED).map(len)


def _one(_: Any) -> bool:
    return True


def _progress() -> Callable[[int], None]:
    """Return a function that tells the number of records on a terminal, at most once per ``PROGRESS_S``."""
    started = told = perf_counter()
    is_terminal = sys.stderr.isatty()

    def tell(rows: int) -> None:
        nonlocal told
        now = perf_counter()
        if is_terminal and now - told >= PROGRESS_S:
            told = now
            print(f"\r{rows:,} records, {rows / (now - started):,.0f} per second", end="", file=sys.stderr, flush=True)

    return tell


def _option(text: str) -> tuple[str, Any]:
    """Parse an option of the store. A value that is JSON is parsed, so that numbers and switches are possible."""
    name, separator, value = text.partition("=")
    if not separator:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _positive(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"the number of records must be an integer of at least 1, got {text!r}")
    return number
