"""Time reading a JSON lines file, beside other libraries: ``python -m benchmarks.micro.json_files``.

Every way parses the same local file, and its sum of one column is compared. "rows" files hold an integer, a float of 16
digits, a float of 3 digits, a small integer, a text and a float per row; "nested" files hold a list of 8 floats, an
object, and keys that nobody asks for; "text" files hold 1 KB of text with escapes. "columns" ways give one array per
column, as pyarrow.json and Polars do in a bare loop; "structs" are msgspec's typed objects; "batches" ways give batches
of 1,024 rows; "rows" ways give one dict per row with the keys of the schema; "values" ways give all of each record, as
``json.loads`` does. Libraries use one thread for parsing; ``Dataset`` uses its threads beside the consumer.

Each figure is the median of ``--repetitions`` passes, the ways taking turns. ``--out`` writes them as JSON.
"""

from __future__ import annotations

import os

os.environ.setdefault("POLARS_MAX_THREADS", "1")  # read when Polars is imported

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np

import aiostream_data as asd
from aiostream_data.formats.json_columns import JsonParser
from aiostream_data.formats.json_lines import JsonLinesFormat
from aiostream_data.formats.json_schema import checked_json_schema
from aiostream_data.formats.json_values import JsonValues
from aiostream_data.formats.stream import RecordStream
from aiostream_data.rows.records import Columns, records_chunk
from aiostream_data.rows.row_ids import RowIds
from benchmarks.machine import circumstances, versions_of

BATCH = 1024
RANGE_NBYTES = 1 << 20
HEADROOM_NBYTES = 1 << 13  # room for the rest of the last record, as the reader leaves it
FLOATS = asd.VarLen(np.float64)
KINDS: dict[str, dict[str, Any]] = {
    "rows": {"id": np.int64, "x": np.float64, "y": np.float64, "k": np.int64, "name": str, "z": np.float64},
    "nested": {"id": np.int64, "box": {"w": np.float64, "h": np.float64}, "scores": FLOATS, "name": str},
    "text": {"id": np.int64, "text": str},
}

Way = Callable[[Path, dict[str, Any]], float]


def records_of(kind: str, rows: int) -> Iterator[dict[str, Any]]:
    random = np.random.default_rng(1)
    for row in range(rows):
        number = int(random.integers(0, 10**9))
        if kind == "rows":
            x, z = random.random(2).tolist()
            y = round(float(random.random()), 3)
            yield {"id": number, "x": x, "y": y, "k": row % 100, "name": f"name {row}", "z": z}
        elif kind == "nested":
            scores = random.random(8).round(6).tolist()
            more = {"tags": ["a", "b", {"c": row}], "url": f"https://example.com/{row}"}
            yield {"id": number, "box": {"w": row % 640, "h": 4.5}, "meta": more, "scores": scores, "name": f"n {row}"}
        else:
            yield {"id": number, "text": f'line {row} of a "text" with é\n' * 32}


def write_file(path: Path, kind: str, rows: int) -> None:
    """Write a file of one kind, the same every time."""
    with path.open("w") as file:
        file.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in records_of(kind, rows))


def chunks_of(path: Path) -> Iterator[Columns]:
    """Frame ranges of the file, as a reader of shards does in its hops."""
    stream = RecordStream(JsonLinesFormat(), str(path), "")
    content = np.fromfile(path, np.uint8)
    for at in range(0, len(content), RANGE_NBYTES):
        block = np.empty(HEADROOM_NBYTES + len(content[at : at + RANGE_NBYTES]), np.uint8)
        block[HEADROOM_NBYTES:] = content[at : at + RANGE_NBYTES]
        for column in stream.feed(block, HEADROOM_NBYTES):
            yield records_chunk(column, RowIds.run(0, 0, len(column)))
    for column in stream.finish():
        raise RuntimeError(f"{len(column)} rows without a line end")


def kernels(path: Path, schema: dict[str, Any]) -> float:
    parser = JsonParser(checked_json_schema(schema))
    return sum(float(np.sum(_first(parser.parse(chunk, _nowhere)))) for chunk in chunks_of(path))


def values(path: Path, schema: dict[str, Any]) -> float:
    decoder = JsonValues()
    return sum(float(row["id"]) for chunk in chunks_of(path) for row in decoder.parse(chunk, _nowhere).values)


def _first(chunk: Columns) -> Any:
    return chunk.leaves[0]


def _nowhere(row: int) -> tuple[str, int]:
    return "", row


def batches(path: Path, schema: dict[str, Any]) -> float:
    dataset = asd.Dataset.from_jsonl(path, schema, compression="").batch(BATCH, strings="columns")
    return sum(float(batch["id"].sum()) for batch in dataset)


def rows_of(path: Path, schema: dict[str, Any]) -> float:
    return sum(float(row["id"]) for row in asd.Dataset.from_jsonl(path, schema, compression=""))


def values_of(path: Path, schema: dict[str, Any]) -> float:
    return sum(float(row["id"]) for row in asd.Dataset.from_jsonl(path, compression=""))


def arrow(path: Path, schema: dict[str, Any]) -> float:
    pj, pa = import_module("pyarrow.json"), import_module("pyarrow")

    def type_of(kind: Any) -> Any:
        if isinstance(kind, dict):
            return pa.struct([(name, type_of(inner)) for name, inner in kind.items()])
        if kind is FLOATS:
            return pa.list_(pa.float64())
        return pa.string() if kind is str else pa.from_numpy_dtype(kind)

    fields = pa.schema([(name, type_of(kind)) for name, kind in schema.items()])
    options = pj.ParseOptions(explicit_schema=fields, unexpected_field_behavior="ignore")
    return float(pj.read_json(path, pj.ReadOptions(use_threads=False), options)["id"].to_numpy().sum())


def polars(path: Path, schema: dict[str, Any]) -> float:
    pl = import_module("polars")

    def type_of(kind: Any) -> Any:
        if isinstance(kind, dict):
            return pl.Struct({name: type_of(inner) for name, inner in kind.items()})
        if kind is FLOATS:
            return pl.List(pl.Float64)
        return pl.String if kind is str else pl.Int64 if kind is np.int64 else pl.Float64

    types = {name: type_of(kind) for name, kind in schema.items()}
    return float(pl.read_ndjson(path, schema=types)["id"].sum())


def structs(path: Path, schema: dict[str, Any]) -> float:
    msgspec = import_module("msgspec")

    def type_of(kind: Any, name: str = "Row") -> Any:
        if isinstance(kind, dict):
            return msgspec.defstruct(name, [(key, type_of(inner, key)) for key, inner in kind.items()])
        if kind is FLOATS:
            return list[float]
        return str if kind is str else int if kind is np.int64 else float

    decode = msgspec.json.Decoder(type_of(schema)).decode
    with path.open("rb") as file:
        return sum(float(decode(line).id) for line in file)


def msgspec_values(path: Path, schema: dict[str, Any]) -> float:
    decode = import_module("msgspec").json.Decoder().decode
    with path.open("rb") as file:
        return sum(float(decode(line)["id"]) for line in file)


def module_json(path: Path, schema: dict[str, Any]) -> float:
    with path.open("rb") as file:
        return sum(float(json.loads(line)["id"]) for line in file)


WAYS: dict[str, Way] = {
    "aiostream_data columns": kernels,
    "pyarrow.json columns": arrow,
    "polars columns": polars,
    "msgspec structs": structs,
    "from_jsonl().batch() batches": batches,
    "from_jsonl(schema) rows": rows_of,
    "aiostream_data values": values,
    "from_jsonl() values": values_of,
    "msgspec values": msgspec_values,
    "module json values": module_json,
}
NEEDS = {
    "pyarrow.json columns": "pyarrow",
    "polars columns": "polars",
    "msgspec structs": "msgspec",
    "msgspec values": "msgspec",
}


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
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--repetitions", type=int, default=5)
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
            path = Path(folder) / f"{kind}.jsonl"
            write_file(path, kind, options.rows if kind != "text" else options.rows // 8)
            expected = module_json(path, schema)
            passes: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
            for _ in range(options.repetitions):
                for name, way in ways.items():
                    passes[name].append(measure(way, path, schema, expected))
            found[kind] = {name: _median(figures) for name, figures in passes.items()}
            _show(f"{kind}, {path.stat().st_size / 1e6:.0f} MB", found[kind])
    if options.out is not None:
        result = {
            "scenario": "json_files",
            "title": "JSON lines files into columns and values",
            "circumstances": circumstances(),
            "parameters": {"rows": options.rows, "repetitions": options.repetitions},
            "versions": versions_of(["numpy", *sorted(set(NEEDS.values()))]),
            "median": found,
        }
        options.out.write_text(json.dumps(result, indent=1) + "\n")


def _median(passes: list[dict[str, float]]) -> dict[str, float]:
    return {figure: round(median(one[figure] for one in passes), 1) for figure in passes[0]}


def _show(title: str, ways: dict[str, dict[str, float]]) -> None:
    print(f"\n{title:30}{'MB/s':>10}{'MB/CPU s':>12}")
    for name, figures in ways.items():
        print(f"{name:30}{figures['MB/s']:10,.0f}{figures['MB/cpu_s']:12,.0f}")


if __name__ == "__main__":
    main()
