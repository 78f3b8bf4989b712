"""Measure the CPU time of listing pages of 1,000 keys: ``python -m benchmarks.micro.listing_pages``.

Rows are stores and the clients that request the pages. "s3 library" is aiobotocore. The server is the fault server in a
process of its own, whose CPU time is not counted. Wall times contain the server, which takes longer than the client.

Each figure is the median of ``--repetitions`` listings, the rows taking turns. ``--out`` writes them as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter, process_time, thread_time
from typing import Any

from aiostream_data.storage.stores import StoreSet
from aiostream_data.testing.fault_server import FaultServer, fault_server
from aiostream_data.testing.object_api.dialect import DialectName
from benchmarks.machine import circumstances, versions_of

ROWS: dict[str, tuple[DialectName, dict[str, Any]]] = {
    "s3 library": ("s3", {"reader": "library"}),
    "s3": ("s3", {}),
    "gcs": ("gcs", {}),
}

Figures = dict[str, float]


def listing(server: FaultServer, keys: int, options: dict[str, Any]) -> Figures:
    """List all keys with a new store, and return the milliseconds per 1,000 keys."""

    async def main() -> Figures:
        stores = StoreSet({**server.storage_options, **options}, asyncio.to_thread)
        try:
            await stores.glob(server.url("bucket/folder/image-00000000.jpg*"))  # imports, credentials and connections
            before = perf_counter(), process_time(), thread_time()
            found = await stores.glob(server.url("bucket/folder/*.jpg"))
            after = perf_counter(), process_time(), thread_time()
        finally:
            await stores.aclose()
        if len(found) != keys:
            raise RuntimeError(f"{len(found)} keys were listed of {keys}")
        wall, cpu, loop = ((then - now) * 1e6 / keys for now, then in zip(before, after, strict=True))
        return {"wall_ms": wall, "cpu_ms": cpu, "loop_thread_ms": loop}

    return asyncio.run(main())


def measure(keys: int, repetitions: int) -> dict[str, Figures]:
    """Return the median figures of each row."""
    found: dict[str, list[Figures]] = {row: [] for row in ROWS}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "folder").mkdir()
        for number in range(keys):
            (Path(folder) / "folder" / f"image-{number:08}.jpg").touch()
        with fault_server("s3", where="process") as s3, fault_server("gcs", where="process") as gcs:
            servers = {"s3": s3, "gcs": gcs}
            for server in servers.values():
                server.put_folder("bucket", folder)
            for _ in range(repetitions):
                for row, (dialect, options) in ROWS.items():
                    found[row].append(listing(servers[dialect], keys, options))
    return {row: {name: median(each[name] for each in runs) for name in runs[0]} for row, runs in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    figures = measure(given.keys, given.repetitions)
    for row, found in figures.items():
        print(f"{row:12}" + "".join(f"{name} {value:8.1f}  " for name, value in found.items()) + "per 1,000 keys")
    if given.out is not None:
        versions = versions_of(["aiobotocore", "botocore", "s3fs", "gcsfs"])
        content = {"keys": given.keys, "rows": figures, "versions": versions, "machine": circumstances()}
        given.out.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
