"""P3d: read and decode a folder of JPEGs, on the local disk and in a store 20 ms away, and compare bare thread pools.

``python -m benchmarks.pipeline.image_folder [--images 10000] [--runs 5] [--quick] [--only NAME ...] [--out p3d.json]``

Every run has a process of its own, and the contenders take turns. A first round warms up. No contender is told how
many files to read or images to decode at once, except the pool and the workers of torch.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from benchmarks.dataset import default_root
from benchmarks.pipeline.end_to_end import share_of_ceiling
from benchmarks.report import table
from benchmarks.run import run_scenario
from benchmarks.scenarios.p3d import CEILING, FAR_CEILING, P3D, S3

QUICK_IMAGES, QUICK_RUNS = 1_000, 2


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print a table and the shares of the ceiling, and write all runs to ``--out``."""
    options = _options(arguments)
    chosen = [each for each in P3D.contenders if not options.only or each.name.startswith(tuple(options.only))]
    how = argparse.Namespace(rows=options.images, repetitions=options.runs, data=default_root())
    P3D.work(how.rows, how.data)  # writes the files, before they are served
    is_far = any(each.variant == S3 for each in chosen)
    with P3D.serving(how.data) if is_far else nullcontext():
        result = run_scenario(P3D, chosen, how)
    if options.out is not None:
        options.out.write_text(json.dumps(result, indent=1) + "\n")
    print(table(result))
    for each in chosen:
        for ceiling in (CEILING, FAR_CEILING) if each.variant == S3 else (CEILING,):
            share = share_of_ceiling(result, each.name, [ceiling])
            if share is not None:
                print(f"{each.name:32} {share:.2f} of the {ceiling}")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--images", type=int, default=P3D.rows)
    parser.add_argument("--runs", type=int, default=5, help="timed runs of each contender")
    parser.add_argument("--quick", action="store_true", help="1,000 images and two runs, in a minute")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="names of contenders, or their beginnings")
    parser.add_argument("--out", type=Path, help="file of the results")
    options = parser.parse_args(arguments)
    if options.quick:
        vars(options).update(images=QUICK_IMAGES, runs=QUICK_RUNS)
    return options


if __name__ == "__main__":
    main()
