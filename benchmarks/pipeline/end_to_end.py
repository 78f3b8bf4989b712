"""P5 end to end: serve the shards 20 ms away, and measure every loader: ``python -m benchmarks.pipeline.end_to_end``.

The same as ``python -m benchmarks.run p5``, with its options; at the end it says how near ours comes to the smaller of
the two ceilings: all bytes over the wire, and all images decoded.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.pipeline.cloud_server import serving
from benchmarks.shards import STORE, shards_root

FAR = (False, 20)
CEILINGS = ("ceiling: wire", "ceiling: decode")


def store_of_shards(data: Path) -> AbstractContextManager[None]:
    """Serve the shards for the block, as :func:`store_of` does."""
    return store_of(shards_root(data))


@contextmanager
def store_of(root: Path) -> Iterator[None]:
    """Serve a folder as a bucket for the block, to this process's children by an environment variable."""
    root.mkdir(parents=True, exist_ok=True)
    with serving(root, [FAR]) as running:
        before = os.environ.get(STORE)
        os.environ[STORE] = running.places[FAR].url
        try:
            yield
        finally:
            os.environ.pop(STORE)
            if before is not None:
                os.environ[STORE] = before


def share_of_ceiling(result: dict[str, Any], name: str, ceilings: Sequence[str] = CEILINGS) -> float | None:
    """Return the throughput of a contender as a share of the smaller ceiling; None where one of them is missing."""
    walls = [_wall_s(result["contenders"].get(each, {})) for each in (name, *ceilings)]
    if None in walls:
        return None
    ours, *slowest = (wall for wall in walls if wall is not None)
    return max(slowest) / ours


def _wall_s(entry: dict[str, Any]) -> float | None:
    runs = entry.get("runs", [])
    return median(run["wall_s"] for run in runs) if runs else None


def main() -> None:
    """Run P5 with the options of ``benchmarks.run``, and print what share of the ceiling everybody reaches."""
    from benchmarks import run
    from benchmarks.report import RESULTS

    sys.argv[1:1] = ["p5"]
    run.main()
    out = Path(sys.argv[sys.argv.index("--out") + 1]) if "--out" in sys.argv else RESULTS
    result = json.loads((out / "p5.json").read_text())
    for name in result["contenders"]:
        share = share_of_ceiling(result, name)
        if share is not None:
            print(f"{name:28} {share:.2f} of the smaller ceiling")


if __name__ == "__main__":
    main()
