"""One client of an object store in a process of its own: ``python -m benchmarks.pipeline.cloud_client NAME``.

It imports the client, and says what it is. For every line ``{"cell": ..., "place": ...}`` it forks: the child has the
imports behind it and nothing else, opens the client, and reads as many parts as each further line says, until an empty
one. What it measured of each comes back as a line of JSON. So a client is a fresh process in every cell, and a table of
forty cells does not import botocore four hundred times.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from benchmarks.machine import cpu_s, versions_of
from benchmarks.pipeline.cloud_work import CannotError, Cell, Client, Part, Pass, Place, check_bytes
from benchmarks.pipeline.forked import message_of, next_line, reply, serve

CHECK = "check"


@dataclass(frozen=True, kw_only=True)
class Entrant:
    """A row of the table.

    Attributes:
        module: ``benchmarks.compare.<module>`` with ``open_client(place, cell)`` and ``IMPORTS``, the modules it needs.
        how: Its configuration in a few words.
        packages: Distributions whose versions are noted.
        needs_json: It asks for the paths of Google's JSON interface.
    """

    name: str
    module: str
    how: str
    packages: tuple[str, ...] = ()
    needs_json: bool = False


ENTRANTS = (
    Entrant(
        name="aiostream_data s3",
        module="cloud_ours_s3",
        how="the store of a loader: signed GETs of our own, hedging and retries as always, into reused memory",
        packages=("numpy", "uvloop", "s3fs"),
    ),
    Entrant(
        name="aiostream_data http",
        module="cloud_ours_http",
        how="the same for http(s):// URLs",
        packages=("numpy", "uvloop"),
    ),
    Entrant(name="raw sockets", module="cloud_sockets", how="blocking recv_into in threads, into reused memory"),
    Entrant(name="curl", module="cloud_curl", how="curl --parallel, bodies to /dev/null"),
    Entrant(
        name="aiohttp",
        module="cloud_aiohttp",
        how="one session, read(), no limit of connections, nothing decompressed",
        packages=("aiohttp",),
    ),
    Entrant(
        name="aiobotocore",
        module="cloud_aiobotocore",
        how="get_object, 128 connections",
        packages=("aiobotocore", "botocore", "aiohttp"),
    ),
    Entrant(
        name="s3fs",
        module="cloud_s3fs",
        how="_cat_file with start and end (no HEAD before it), 128 connections",
        packages=("s3fs", "aiobotocore", "botocore"),
    ),
    Entrant(
        name="gcsfs",
        module="cloud_gcsfs",
        how="_cat_file with start and end, anonymous",
        packages=("gcsfs", "aiohttp"),
        needs_json=True,
    ),
    Entrant(
        name="obstore",
        module="cloud_obstore",
        how="get_range_async and get_async with S3Store, on uvloop",
        packages=("obstore", "uvloop"),
    ),
    Entrant(
        name="s3torchconnector",
        module="cloud_s3torch",
        how="its client (the AWS CRT) in threads, one object or range at a time",
        packages=("s3torchconnectorclient",),
    ),
)


def _one_cell(open_client: Callable[[Place, Cell], Client], place: Place, cell: Cell) -> None:
    try:
        with open_client(place, cell) as read:
            reply({"ready": True})
            for line in iter(next_line, ""):
                what, _, number = line.partition(" ")
                parts = cell.requests(int(number))
                reply(_checked(read, parts) if what == CHECK else _timed(read, parts))
            reply({"closing": True})
    except CannotError as reason:
        reply({"cannot": str(reason)})
    except Exception as error:  # noqa: BLE001 - a client that fails has an error in its place, and the others go on
        reply({"error": message_of(error)})


def _checked(read: Pass, parts: list[Part]) -> dict[str, Any]:
    seen: list[Part] = []

    def check(part: Part, body: Any) -> None:
        check_bytes(part, body)
        seen.append(part)

    began = perf_counter()
    read(parts, check)
    if sorted(seen) != sorted(parts):
        raise ValueError(f"{len(seen)} of {len(parts)} parts came")
    return {"wall_s": perf_counter() - began}


def _timed(read: Pass, parts: list[Part]) -> dict[str, Any]:
    cpu, began = cpu_s(), perf_counter()
    read(parts, None)
    wall_s = perf_counter() - began
    return {
        "wall_s": wall_s,
        "cpu_s": cpu_s() - cpu,
        "requests": len(parts),
        "nbytes": sum(part.nbytes for part in parts),
    }


def main() -> None:
    """Import the client that the command line names, and serve."""
    entrant = next(each for each in ENTRANTS if each.name == sys.argv[1])
    try:
        module = importlib.import_module(f"benchmarks.compare.{entrant.module}")
        for name in module.IMPORTS:
            importlib.import_module(name)
    except ImportError as error:
        reply({"error": f"not installed: {error}"})
        return
    versions = versions_of(entrant.packages) or getattr(module, "versions", dict)()
    reply({"ready": True, "versions": versions})
    serve(lambda asked: _one_cell(module.open_client, Place(**asked["place"]), Cell(**asked["cell"])))


if __name__ == "__main__":
    main()
