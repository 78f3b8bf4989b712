"""One contender of the benchmark of datasets in its own process: ``python -m benchmarks.pipeline.dataset_reader NAME``.

The process imports the contender. It forks a child for every cell. The child first reads some objects and compares
count, bytes and checksum with what the files contain. Then it runs the passes that the parent requests.
"""

from __future__ import annotations

import importlib
import sys
from functools import cache
from time import perf_counter
from typing import Any

from benchmarks.machine import cpu_s, versions_of
from benchmarks.pipeline.cloud_work import CannotError
from benchmarks.pipeline.dataset_cells import CONTENDERS, Contender, Read, Work
from benchmarks.pipeline.dataset_objects import Tally, expected
from benchmarks.pipeline.forked import message_of, next_line, reply, serve

CHECK = "check"


def require_equal(read: Tally, wanted: Tally) -> None:
    """Compare what a contender read with what it should have read.

    Raises:
        ValueError: They are different.
    """
    if read != wanted:
        raise ValueError(f"read {read}, expected {wanted}")


def _run_cell(contender: Contender, open_reader: Any, sent: dict[str, Any]) -> None:
    try:
        work = Work.of_data(sent)
        with open_reader(work) as prepare:
            prepared = cache(prepare)

            @cache
            def wanted(count: int, checksum: bool) -> Tally:
                return expected(work.objects, contender.unit, count, work.root, work.part_nbytes, checksum=checksum)

            reply({"ready": True})
            for line in iter(next_line, ""):
                command, _, number = line.partition(" ")
                count = int(number)
                nbytes = work.objects.nbytes(work.root, count)
                reply(_measured(wanted(count, command == CHECK), nbytes, prepared(count), count))
        reply({"closed": True})
    except CannotError as reason:
        reply({"cannot": str(reason)})
    except Exception as error:  # noqa: BLE001 - the table shows the error, and the other contenders continue
        reply({"error": message_of(error)})


def _measured(wanted: Tally, nbytes: int, read: Read, count: int) -> dict[str, Any]:
    """Read ``count`` objects, compare the result, and return the seconds and bytes."""
    tally = Tally(wanted.with_checksum)
    cpu, began = cpu_s(), perf_counter()
    read(tally)
    wall_s = perf_counter() - began
    used_s = cpu_s() - cpu
    require_equal(tally, wanted)
    first_s = tally.first_at - began
    return {"wall_s": wall_s, "first_s": first_s, "cpu_s": used_s, "objects": count, "nbytes": nbytes}


def main() -> None:
    """Import the contender that the command line names, and run its cells."""
    contender = next(each for each in CONTENDERS if each.name == sys.argv[1])
    try:
        module = importlib.import_module(f"benchmarks.compare.{contender.module}")
        for name in (*module.IMPORTS, *getattr(module, "IMPORTS_OF", {}).get(contender.variant, ())):
            importlib.import_module(name)
    except ImportError as error:
        reply({"error": f"not installed: {error}"})
        return
    reply({"ready": True, "versions": versions_of(contender.packages)})
    serve(lambda sent: _run_cell(contender, module.open_reader, sent))


if __name__ == "__main__":
    main()
