"""Time reading an Arrow IPC file, beside PyArrow and Polars: ``python -m benchmarks.micro.arrow_files``.

Every way reads the same local file, and its sum of one column is compared. "numbers" files hold 8 columns of float64;
"mixed" files hold two integers, a float, a text and a list of floats per row; "stream" files hold the same rows as a
stream of record batches of 1,000 rows, as Hugging Face datasets write them; "lz4" and "zstd" are mixed files with
compressed buffers. The columns are touched by no way except for the sum. "columns" ways give one array per column of
each record batch, as PyArrow does in a bare loop: PyArrow reads the file into memory, as a loader does with a file on
another machine. The "checked" way also checks offsets and text, and the "mapped" way maps the file, so that only
touched bytes are read. "rows" ways give one dict per row.

Each figure is the median of ``--repetitions`` passes, the ways taking turns. ``--out`` writes them as JSON.
"""

from __future__ import annotations

import os

os.environ.setdefault("POLARS_MAX_THREADS", "1")  # read when Polars is imported

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np
import pyarrow as pa

import aiostream_data as asd
from aiostream_data._engine.memory.buffers import BlockPool
from aiostream_data.formats.arrow_files import ArrowFormat
from aiostream_data.formats.row_groups import advance
from aiostream_data.rows.records import ByteRange
from benchmarks.machine import circumstances, versions_of

BATCH = 1024
KINDS = ("numbers", "mixed", "stream", "lz4", "zstd")
BLOCKS = BlockPool(64 << 20)

Way = Callable[[Path], float]


def write_file(path: Path, kind: str, rows: int) -> None:
    """Write a file of one kind, the same every time."""
    random = np.random.default_rng(1)
    if kind == "numbers":
        table = pa.table({f"x{column}": random.random(rows) for column in range(8)})
    else:
        lists = pa.ListArray.from_arrays(np.arange(rows + 1, dtype=np.int32) * 8, random.random(8 * rows).round(3))
        table = pa.table(
            {
                "x0": random.random(rows).round(3),
                "id": np.arange(rows),
                "k": np.arange(rows, dtype=np.int32) % 100,
                "name": [f"name of row {row}" for row in range(rows)],
                "values": lists,
            }
        )
    options = pa.ipc.IpcWriteOptions(compression=kind if kind in ("lz4", "zstd") else None)
    write, rows_of_batch = (pa.ipc.new_stream, 1000) if kind == "stream" else (pa.ipc.new_file, 50_000)
    with pa.OSFile(str(path), "wb") as file, write(file, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=rows_of_batch)


def record_batches(path: Path, opened: Callable[[str], Any] = pa.OSFile) -> Iterator[pa.RecordBatch]:
    """Yield the record batches of a file."""
    with opened(str(path)) as file:
        if path.stem == "stream":
            yield from pa.ipc.open_stream(file)
            return
        reader = pa.ipc.open_file(file)
        yield from map(reader.get_batch, range(reader.num_record_batches))


def summed(batch: pa.RecordBatch) -> float:
    return float(batch["x0"].to_numpy().sum())


def arrow_read(path: Path) -> float:
    return sum(map(summed, record_batches(path)))


def arrow_checked(path: Path) -> float:
    """Check offsets and text as this package does, so that damaged files cannot crash the process."""
    total = 0.0
    for batch in record_batches(path):
        batch.validate(full=True)
        total += summed(batch)
    return total


def arrow_mapped(path: Path) -> float:
    return sum(map(summed, record_batches(path, pa.memory_map)))


def kernels(path: Path) -> float:
    """Read and decode one group of record batches after the other, as a source does in its hops."""
    with path.open("rb", buffering=0) as file:

        def read(ranges: Sequence[ByteRange]) -> list[memoryview]:
            parts = [BLOCKS.lend(part.nbytes).data for part in ranges]
            for part, place in zip(ranges, parts, strict=True):
                file.seek(part.start)
                file.readinto(place)
            return parts

        steps = ArrowFormat().directory(str(path), path.stat().st_size)
        ranges, directory = advance(steps, None)
        while directory is None:
            ranges, directory = advance(steps, read(ranges))
        total = 0.0
        for group in directory.groups_from(0):
            for rows in directory.decode(group, read(group.ranges)):
                column: Any = rows.leaves[0]
                total += float(column.sum())
        return total


def polars(path: Path) -> float:
    pl = import_module("polars")
    read = pl.read_ipc_stream if path.stem == "stream" else pl.read_ipc
    return float(read(path)["x0"].sum())


def batches(path: Path) -> float:
    dataset = asd.Dataset.from_arrow(path).batch(BATCH, strings="columns")
    return sum(float(batch["x0"].sum()) for batch in dataset)


def rows_of(path: Path) -> float:
    return sum(float(row["x0"]) for row in asd.Dataset.from_arrow(path))


def arrow_rows(path: Path) -> float:
    return sum(float(row["x0"]) for batch in record_batches(path) for row in batch.to_pylist())


def arrow_batches(path: Path) -> float:
    """Cut the record batches into batches of equal size."""
    batches = record_batches(path)
    return sum(summed(batch.slice(row, BATCH)) for batch in batches for row in range(0, len(batch), BATCH))


WAYS: dict[str, Way] = {
    "aiostream_data columns": kernels,
    "pyarrow columns": arrow_read,
    "pyarrow columns, checked": arrow_checked,
    "pyarrow columns, mapped": arrow_mapped,
    "polars columns": polars,
    "from_arrow().batch()": batches,
    "pyarrow batches": arrow_batches,
    "from_arrow() rows": rows_of,
    "pyarrow rows": arrow_rows,
}


def measure(way: Way, path: Path, expected: float) -> dict[str, float]:
    """Return the figures of one pass."""
    started, cpu = perf_counter(), process_time()
    total = way(path)
    wall_s, cpu_s = perf_counter() - started, process_time() - cpu
    if abs(total - expected) > 1e-6 * abs(expected):
        raise RuntimeError(f"a sum is {total}, expected {expected}")
    megabytes = path.stat().st_size / 1e6
    return {"MB/s": megabytes / wall_s, "MB/cpu_s": megabytes / cpu_s}


def main() -> None:
    """Print a table, and write the figures where ``--out`` says."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", nargs="*", help="these ways alone")
    options = parser.parse_args()
    ways = {name: way for name, way in WAYS.items() if not options.only or any(map(name.startswith, options.only))}
    found: dict[str, dict[str, dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind in KINDS:
            path = Path(folder) / f"{kind}.arrow"
            write_file(path, kind, options.rows)
            expected = arrow_mapped(path)
            passes: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
            for _ in range(options.repetitions):
                for name, way in ways.items():
                    passes[name].append(measure(way, path, expected))
            found[kind] = {name: _median(figures) for name, figures in passes.items()}
            _show(f"{kind}, {path.stat().st_size / 1e6:.0f} MB", found[kind])
    if options.out is not None:
        result = {
            "scenario": "arrow_files",
            "title": "Arrow IPC files into columns",
            "circumstances": circumstances(),
            "parameters": {"rows": options.rows, "repetitions": options.repetitions},
            "versions": versions_of(["numpy", "pyarrow", "polars"]),
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
