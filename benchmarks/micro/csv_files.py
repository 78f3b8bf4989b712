"""Time reading a CSV file into columns, beside other libraries: ``python -m benchmarks.micro.csv_files``.

Every way parses the same local file with the same types, and its sum of one column is compared. "rows" files hold an
integer, a float of 16 digits, a float of 3 digits, a small integer, a text and a float per row; in "quoted" files every
text has quotes; "numbers" files hold 16 floats of 6 digits. "columns" ways give one array per column, as pyarrow.csv
and Polars do in a bare loop; "batches" ways give batches of 1,024 rows; "rows" ways give one dict or tuple per row.
Libraries use one thread for parsing; ``Dataset`` uses its threads beside the consumer. tf.data's ``CsvDataset`` is
measured where TensorFlow is installed.

Each figure is the median of ``--repetitions`` passes, the ways taking turns. ``--out`` writes them as JSON.
"""

from __future__ import annotations

import os

os.environ.setdefault("POLARS_MAX_THREADS", "1")  # read when Polars is imported

import argparse
import csv
import json
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np

import aiostream_data as asd
from aiostream_data.formats.csv import CsvFormat
from aiostream_data.formats.csv_columns import CsvParser, checked_schema
from aiostream_data.formats.stream import RecordStream
from aiostream_data.rows.records import records_chunk
from aiostream_data.rows.row_ids import RowIds
from benchmarks.machine import circumstances, versions_of

BATCH = 1024
RANGE_NBYTES = 1 << 20
MIXED: dict[str, Any] = {"id": np.int64, "x": np.float64, "y": np.float64, "k": np.int64, "name": str, "z": np.float64}
NUMBERS: dict[str, Any] = {f"x{column}": np.float64 for column in range(16)}
KINDS: dict[str, dict[str, Any]] = {"rows": MIXED, "quoted": MIXED, "numbers": NUMBERS}

Way = Callable[[Path, dict[str, Any]], float]


def write_file(path: Path, kind: str, rows: int) -> None:
    """Write a file of one kind, the same every time."""
    random = np.random.default_rng(1)
    with path.open("w", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC if kind == "quoted" else csv.QUOTE_MINIMAL)
        writer.writerow(KINDS[kind])
        if kind == "numbers":
            writer.writerows(random.random((rows, len(NUMBERS))).round(6).tolist())
            return
        wide, narrow = random.random((2, rows)).tolist(), random.random(rows).round(3).tolist()
        ids = random.integers(0, 10**9, rows).tolist()
        writer.writerows(
            (ids[row], wide[0][row], narrow[row], row % 100, f"name {row}", wide[1][row]) for row in range(rows)
        )


def kernels(path: Path, schema: dict[str, Any]) -> float:
    """Frame and parse ranges of the file, as a reader of shards does in its hops."""
    types = checked_schema(schema)
    parser = CsvParser(tuple(types), tuple(types.values()), tuple(types))
    stream = RecordStream(CsvFormat(names=tuple(types)), str(path), "")
    total, at = 0.0, 0
    content = np.fromfile(path, np.uint8)
    while at <= len(content):
        block = content[at : at + RANGE_NBYTES]
        at += RANGE_NBYTES
        for column in stream.feed(block, 0):
            chunk = records_chunk(column, RowIds.run(0, 0, len(column)))
            numbers: Any = parser.parse(chunk, lambda row: ("", row)).leaves[0]
            total += float(np.sum(numbers))
    for column in stream.finish():
        raise RuntimeError(f"{len(column)} rows without a line end")
    return total


def batches(path: Path, schema: dict[str, Any]) -> float:
    first = next(iter(schema))
    dataset = asd.Dataset.from_csv(path, schema, compression="").batch(BATCH, strings="columns")
    return sum(float(batch[first].sum()) for batch in dataset)


def rows_of(path: Path, schema: dict[str, Any]) -> float:
    first = next(iter(schema))
    return sum(float(row[first]) for row in asd.Dataset.from_csv(path, schema, compression=""))


def arrow(path: Path, schema: dict[str, Any]) -> float:
    pc, pa = import_module("pyarrow.csv"), import_module("pyarrow")
    types = {name: pa.string() if kind is str else pa.from_numpy_dtype(kind) for name, kind in schema.items()}
    table = pc.read_csv(path, pc.ReadOptions(use_threads=False), convert_options=pc.ConvertOptions(column_types=types))
    return float(table[next(iter(schema))].to_numpy().sum())


def polars(path: Path, schema: dict[str, Any]) -> float:
    pl = import_module("polars")
    types = {
        name: pl.String if kind is str else pl.Int64 if kind is np.int64 else pl.Float64
        for name, kind in schema.items()
    }
    return float(pl.read_csv(path, schema=types)[next(iter(schema))].sum())


def parsed(row: list[str], makers: list[Any]) -> list[Any]:
    return [make(text) for make, text in zip(makers, row, strict=True)]


def module_csv(path: Path, schema: dict[str, Any]) -> float:
    with path.open(newline="") as file:
        reader = csv.reader(file)
        next(reader)
        makers = [kind if kind is str else int if kind is np.int64 else float for kind in schema.values()]
        return sum(float(parsed(row, makers)[0]) for row in reader)


def tensorflow(path: Path, schema: dict[str, Any]) -> float:
    tf = import_module("tensorflow")
    types = [tf.string if kind is str else tf.as_dtype(kind) for kind in schema.values()]
    dataset = tf.data.experimental.CsvDataset([str(path)], types, header=True).batch(BATCH)
    return sum(float(np.sum(batch[0])) for batch in dataset.as_numpy_iterator())


WAYS: dict[str, Way] = {
    "aiostream_data columns": kernels,
    "pyarrow.csv columns": arrow,
    "polars columns": polars,
    "from_csv().batch() batches": batches,
    "CsvDataset batches": tensorflow,
    "from_csv() rows": rows_of,
    "module csv rows": module_csv,
}
NEEDS = {"pyarrow.csv columns": "pyarrow", "polars columns": "polars", "CsvDataset batches": "tensorflow"}


def measure(way: Way, path: Path, schema: dict[str, Any], expected: float) -> dict[str, float]:
    """Return the figures of one pass."""
    started, cpu = perf_counter(), process_time()
    total = way(path, schema)
    wall_s, cpu_s = perf_counter() - started, process_time() - cpu
    if abs(total - expected) > 1e-6 * abs(expected):
        raise RuntimeError(f"a sum is {total}, expected {expected}")
    megabytes = path.stat().st_size / 1e6
    return {"MB/s": megabytes / wall_s, "MB/cpu_s": megabytes / cpu_s}


def main() -> None:
    """Print a table, and write the figures where ``--out`` says."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", nargs="*", help="these ways alone")
    options = parser.parse_args()
    ways = {
        name: way
        for name, way in WAYS.items()
        if (name not in NEEDS or versions_of([NEEDS[name]]))
        and (not options.only or any(map(name.startswith, options.only)))
    }
    found: dict[str, dict[str, dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind, schema in KINDS.items():
            path = Path(folder) / f"{kind}.csv"
            write_file(path, kind, options.rows if kind != "numbers" else options.rows // 3)
            expected = module_csv(path, schema)
            passes: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
            for _ in range(options.repetitions):
                for name, way in ways.items():
                    passes[name].append(measure(way, path, schema, expected))
            found[kind] = {name: _median(figures) for name, figures in passes.items()}
            _show(f"{kind}, {path.stat().st_size / 1e6:.0f} MB", found[kind])
    if options.out is not None:
        result = {
            "scenario": "csv_files",
            "title": "CSV files into columns",
            "circumstances": circumstances(),
            "parameters": {"rows": options.rows, "repetitions": options.repetitions},
            "versions": versions_of(["numpy", *NEEDS.values()]),
            "median": found,
        }
        options.out.write_text(json.dumps(result, indent=1) + "\n")


def _median(passes: list[dict[str, float]]) -> dict[str, float]:
    return {figure: round(median(one[figure] for one in passes), 1) for figure in passes[0]}


def _show(title: str, ways: dict[str, dict[str, float]]) -> None:
    print(f"\n{title:28}{'MB/s':>10}{'MB/CPU s':>12}")
    for name, figures in ways.items():
        print(f"{name:28}{figures['MB/s']:10,.0f}{figures['MB/cpu_s']:12,.0f}")


if __name__ == "__main__":
    main()
