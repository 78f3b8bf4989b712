"""What it costs to run a pipeline in a process of its own, so that it takes no time from the training loop's.

The clocks start at the first batch: starting a process takes about half a second, once.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from benchmarks.dataset import example_files
from benchmarks.scenario import NATIVE, OURS, Contender, Scenario
from benchmarks.scenarios.p1 import P1
from benchmarks.scenarios.p3 import DECODERS, P3
from benchmarks.workload import Tally, Workload

PASSES = 8
"""How often the files of P1 are read: one pass is over before a difference could be seen."""

IMAGE_PASSES = 4
"""How often as many images as in P3: in two seconds the end of a process, once, would count for more than its work."""


def _with_and_without(scenario: Scenario, module: str, packages: tuple[str, ...]) -> Scenario:
    here = Contender(name=OURS, module=module, how="in the consumer's process", packages=packages)
    beside = replace(here, name="aiostream_data, in_subprocess()", how="in_subprocess()", variant="in_subprocess")
    return replace(
        scenario,
        key=f"{scenario.key}_in_subprocess",
        title=f"{scenario.title}; from the first batch on, in_subprocess() against none",
        contenders=(here, beside),
        from_first_batch=True,
    )


def _examples_over_and_over(rows: int, data: Path) -> Workload:
    once = example_files(data, rows // PASSES)
    return replace(once, rows=once.rows * PASSES, paths=once.paths * PASSES)


def _total_of_examples(workload: Workload) -> Tally:
    once = P1.tally(P1.expected(Workload(rows=workload.rows // PASSES)))
    return Tally(once.rows * PASSES, once.checksum * PASSES)


P1_IN_SUBPROCESS = replace(
    _with_and_without(P1, "p1_aiostream_data", NATIVE),
    rows=PASSES * P1.rows,
    work=_examples_over_and_over,
    total=_total_of_examples,
)
P3_IN_SUBPROCESS = replace(_with_and_without(P3, "p3_aiostream_data", NATIVE + DECODERS), rows=IMAGE_PASSES * P3.rows)
