"""Compare new plans with tf.data, or record outcomes of tf.data. Needs TensorFlow.

Command lines, with the repository and ``tests/properties`` on the path::

    python -m differential --plans 20000 --first 1000000
    python -m differential --plans 5000 --record tests/data/tfdata_outcomes.jsonl.xz
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from differential import ours, tfdata
from differential.outcomes import difference
from differential.plans import draw_plan
from differential.recorded import Recorded, write


def differences(seeds: range) -> Iterator[str]:
    """Yield a description of each plan that differs."""
    for number, seed in enumerate(seeds, 1):
        plan = draw_plan(seed)
        found = difference(ours.run(plan), tfdata.run(plan))
        if found:
            yield f"plan {seed}: {found}\n    {json.dumps(plan)}"
        if number % 1_000 == 0:
            print(f"{number} plans compared", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(prog="differential", description=__doc__)
    parser.add_argument("--plans", type=int, default=1_000, help="number of plans")
    parser.add_argument("--first", type=int, default=0, help="seed of the first plan")
    parser.add_argument("--record", type=Path, help="file for outcomes of tf.data, instead of a comparison")
    arguments = parser.parse_args()
    seeds = range(arguments.first, arguments.first + arguments.plans)
    if arguments.record:
        plans = ((seed, draw_plan(seed)) for seed in seeds)
        write(arguments.record, (Recorded.of(seed, plan, tfdata.run(plan)) for seed, plan in plans))
        return
    found = 0
    for text in differences(seeds):
        found += 1
        print(text)
    print(f"{arguments.plans} plans from {arguments.first}: {found} differ")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
